"""The JSON Schema of a reward's file, with which editors complete it and mark mistakes."""

from __future__ import annotations

import re
from inspect import Parameter
from typing import Any

from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError

from guerdon.config.annotations import (
    adapter_of,
    arguments_of,
    config_class,
)
from guerdon.config.builder import CLIENT, CONFIG, SCORED, is_score
from guerdon.config.registry import RubricRegistry, rubric_registry
from guerdon.config.schema import SCHEMA_VERSION, RewardConfig
from guerdon.errors import RewardConfigError
from guerdon.rubrics.functions.function import RewardFunction
from guerdon.rubrics.rubric import Rubric
from guerdon.services.config import McpService, OpenAIService

__all__ = ["reward_schema"]

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def reward_schema(registry: RubricRegistry = rubric_registry) -> dict[str, Any]:
    """Return the JSON Schema of a reward's file.

    It includes what the config of each registered rubric accepts.

    Example:
        >>> schema = reward_schema()
        >>> sorted(schema["properties"])[:3]
        ['curriculum', 'episode_end', 'mcp_services']

    Args:
        registry: The rubrics to include.
    """
    schema = RewardConfig.model_json_schema()
    defs = schema["$defs"]
    for model in (McpService, OpenAIService):  # a file must name the type
        required = defs[model.__name__].setdefault("required", [])
        required.insert(0, "type")
    names = registry.names()
    entry = defs["RubricEntry"]
    entry["properties"]["rubric"] = {
        "title": "Rubric",
        "description": "A registered name, package.module.Class, or file.py:name.",
        "anyOf": [{"enum": names}, {"type": "string", "pattern": r"^\S.*[.:].*\S$"}],
    }
    configs = {name: _config_schema(name, registry, defs) for name in names}
    entry["allOf"] = [
        {
            "if": {"properties": {"rubric": {"const": name}}, "required": ["rubric"]},
            "then": {"properties": {"config": config}},
        }
        for name, config in configs.items()
        if config is not None
    ]
    for each in (schema, *defs.values()):
        _describe(each)
    version = {"enum": [SCHEMA_VERSION, float(SCHEMA_VERSION)]}  # with quotes or without
    schema["properties"]["schema_version"] = version | {"default": SCHEMA_VERSION}
    return {"$schema": DIALECT, **schema, "title": "A reward of guerdon"}


def _describe(schema: dict[str, Any]) -> None:
    """Turn a docstring into descriptions: its first lines, and those of its arguments."""
    doc = schema.get("description")
    if doc is None:
        return
    schema["description"] = doc.partition("\n\n")[0]
    section = re.search(r"^(?:Args|Attributes):\n((?:    .*(?:\n|$))+)", doc, re.M)
    for found in re.finditer(r"^    (\w+): (.*(?:\n {8}.*)*)", section[1] if section else "", re.M):
        if found[1] in schema.get("properties", ()):
            text = re.sub(r"\s+", " ", found[2]).replace("``", "")
            schema["properties"][found[1]].setdefault("description", text)


def _config_schema(
    name: str, registry: RubricRegistry, defs: dict[str, Any]
) -> dict[str, Any] | None:
    """The schema of the config of a registered rubric; None if it isn't known."""
    try:
        make = registry.resolve(name)
    except (RewardConfigError, ImportError):
        return None  # a requirement of its package isn't installed
    if isinstance(make, Rubric | RewardFunction):
        return {"type": "object", "maxProperties": 0}
    arguments, takes_all = arguments_of(make)
    by_name = {each.name: each for each in arguments}
    if CONFIG in by_name:
        kind = config_class(by_name[CONFIG].annotation)
        if kind is None:
            return {"type": "object"}
        return _closed(_type_schema(name, TypeAdapter(kind), defs))
    given = (*SCORED, CLIENT)
    if is_score(make, given) and by_name.keys().isdisjoint(given):
        # Its first two parameters, of any name, are not keys of the config.
        arguments[:2] = [each.replace(default=None) for each in arguments[:2]]
    kept = [each for each in arguments if each.name not in given]
    return _arguments_schema(name, kept, defs, is_open=takes_all)


def _arguments_schema(
    name: str, arguments: list[Parameter], defs: dict[str, Any], *, is_open: bool = False
) -> dict[str, Any]:
    properties = {}
    for each in arguments:
        adapter = adapter_of(each.annotation)
        schema = _type_schema(name, adapter, defs) if adapter is not None else {}
        if isinstance(each.default, str | int | float | bool | None):
            schema["default"] = each.default
        properties[each.name] = schema
    return {
        "type": "object",
        "properties": properties,
        "required": [each.name for each in arguments if each.default is Parameter.empty],
        "additionalProperties": is_open,
    }


def _type_schema(name: str, adapter: TypeAdapter[Any], defs: dict[str, Any]) -> dict[str, Any]:
    """The schema of a type, whose definitions are added to `defs`; empty if it has none."""
    try:
        schema = adapter.json_schema(ref_template=f"#/$defs/{name}.{{model}}")
    except PydanticUserError:
        return {}
    for key, each in schema.pop("$defs", {}).items():
        defs[f"{name}.{key}"] = _closed(each)
    return schema


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    return {"additionalProperties": False, **schema} if "properties" in schema else schema
