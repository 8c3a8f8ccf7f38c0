"""The JSON Schema of a reward's file, so that editors complete it and mark mistakes."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic.errors import PydanticUserError

from guerdon.errors import ConfigError
from guerdon.rewards.config.config import RewardConfig
from guerdon.rewards.config.versions import SCHEMA_VERSION
from guerdon.rewards.making.arguments import Argument, arguments_of
from guerdon.rewards.making.config_classes import config_class
from guerdon.rewards.making.registry import RubricRegistry, rubric_registry

__all__ = ["reward_schema"]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
GIVEN = ("action", "observation", "mcp_client")  # arguments that no config gives


def reward_schema(registry: RubricRegistry = rubric_registry) -> dict[str, Any]:
    """The JSON Schema of a reward's file.

    What a rubric's config takes is told of those that are registered, by their names.

    Example:
        >>> schema = reward_schema()
        >>> sorted(schema["properties"])[:3]
        ['curriculum', 'episode_end', 'mcp_services']

    Args:
        registry: Whose rubrics are offered.
    """
    schema = RewardConfig.model_json_schema()
    names = registry.names()
    entry = schema["$defs"]["RubricEntry"]
    entry["properties"]["rubric"] = {
        "title": "Rubric",
        "description": "A registered name, package.module.Class, or file.py:name.",
        "anyOf": [{"enum": names}, {"type": "string", "pattern": r"^\S.*[.:].*\S$"}],
    }
    known = {name: _config_schema(registry, name) for name in names}
    entry["allOf"] = [
        {
            "if": {"properties": {"rubric": {"const": name}}, "required": ["rubric"]},
            "then": {"properties": {"config": config}},
        }
        for name, config in known.items()
        if config is not None
    ]
    schema["properties"]["schema_version"]["enum"] = [SCHEMA_VERSION]
    return {"$schema": DIALECT, **schema, "title": "A reward of guerdon"}


def _config_schema(registry: RubricRegistry, name: str) -> dict[str, Any] | None:
    """What the config of a registered rubric is; None where nobody knows."""
    try:
        make = registry.resolve(name)
    except (ConfigError, ImportError):
        return None  # of a package whose own requirements aren't there
    if not callable(make):
        return None
    arguments, takes_all = arguments_of(make)
    for each in arguments:
        if each.name == "config":
            kind = config_class(each.annotation)
            return _schema_of(kind) if kind is not None else {"type": "object"}
    kept = [each for each in arguments if each.name not in GIVEN]
    return {
        "type": "object",
        "properties": {each.name: _property(each) for each in kept},
        "required": [each.name for each in kept if each.is_required],
        "additionalProperties": takes_all,
    }


def _schema_of(kind: type) -> dict[str, Any]:
    schema = _generated(TypeAdapter(kind))
    if not issubclass(kind, BaseModel) or kind.model_config.get("extra") != "allow":
        schema["additionalProperties"] = False
    return schema


def _property(argument: Argument) -> dict[str, Any]:
    adapter = argument.adapter()
    schema = _generated(adapter) if adapter is not None else {}
    if isinstance(argument.default, str | int | float | bool | None):
        schema["default"] = argument.default
    return schema


def _generated(adapter: TypeAdapter[Any]) -> dict[str, Any]:
    """A type's schema, in one piece; nothing of a type that has none."""
    try:
        schema = adapter.json_schema()
    except PydanticUserError:
        return {}
    return {} if "$defs" in schema else schema
