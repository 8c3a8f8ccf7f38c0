"""The JSON Schema of a reward's file, so that editors complete it and mark mistakes."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError

from guerdon.config.config import RewardConfig
from guerdon.config.making.arguments import Argument, arguments_of, fields_of
from guerdon.config.making.calling import is_score
from guerdon.config.making.config_classes import config_class, is_model
from guerdon.config.making.registry import RubricRegistry, rubric_registry
from guerdon.config.versions import SCHEMA_VERSION
from guerdon.errors import RewardConfigError
from guerdon.rubrics.functions.decorator import RewardFunction
from guerdon.rubrics.rubric import Rubric
from guerdon.services.config import McpService, OpenAIService

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
    defs = schema["$defs"]
    for model in (McpService, OpenAIService):  # which of them it is, a file must say
        required = defs[model.__name__].setdefault("required", [])
        required.insert(0, "type")
    names = registry.names()
    entry = defs["RubricEntry"]
    entry["properties"]["rubric"] = {
        "title": "Rubric",
        "description": "A registered name, package.module.Class, or file.py:name.",
        "anyOf": [{"enum": names}, {"type": "string", "pattern": r"^\S.*[.:].*\S$"}],
    }
    known = {name: _Configs(name, defs).of(registry) for name in names}
    entry["allOf"] = [
        {
            "if": {"properties": {"rubric": {"const": name}}, "required": ["rubric"]},
            "then": {"properties": {"config": config}},
        }
        for name, config in known.items()
        if config is not None
    ]
    for each in (schema, *defs.values()):
        _describe(each)
    version = {"enum": [SCHEMA_VERSION, float(SCHEMA_VERSION)]}  # with quotes or without
    schema["properties"]["schema_version"] = version | {"default": SCHEMA_VERSION}
    return {"$schema": DIALECT, **schema, "title": "A reward of guerdon"}


def _describe(schema: dict[str, Any]) -> None:
    """Make of a docstring what editors show: its first lines, and, of each key, what it says."""
    doc = schema.get("description")
    if doc is None:
        return
    schema["description"] = doc.partition("\n\n")[0]
    section = re.search(r"^(?:Args|Attributes):\n((?:    .*(?:\n|$))+)", doc, re.M)
    for found in re.finditer(r"^    (\w+): (.*(?:\n {8}.*)*)", section[1] if section else "", re.M):
        if found[1] in schema.get("properties", ()):
            told = re.sub(r"\s+", " ", found[2]).replace("``", "")
            schema["properties"][found[1]].setdefault("description", told)


@dataclass(frozen=True, slots=True)
class _Configs:
    """Tells what the config of a registered rubric is.

    Attributes:
        name: The rubric's.
        defs: The definitions of the whole schema, where those of its classes go.
    """

    name: str
    defs: dict[str, Any]

    def of(self, registry: RubricRegistry) -> dict[str, Any] | None:
        """The schema; None where nobody knows."""
        try:
            make = registry.resolve(self.name)
        except (RewardConfigError, ImportError):
            return None  # of a package whose own requirements aren't there
        if isinstance(make, Rubric | RewardFunction):
            return {"type": "object", "maxProperties": 0}
        if not callable(make):
            return None
        arguments, takes_all = arguments_of(make)
        for each in arguments:
            if each.name == "config":
                kind = config_class(each.annotation)
                return self._class(kind) if kind is not None else {"type": "object"}
        kept = [each for each in arguments if each.name not in GIVEN]
        if len(kept) == len(arguments) and is_score(make, GIVEN):
            # Its first two, however they are called, are no keys; a factory's would be.
            kept = [replace(each, default=None) for each in kept[:2]] + kept[2:]
        return self._object(kept, takes_all)

    def _class(self, kind: Any) -> dict[str, Any]:
        if not is_model(kind):
            return self._object(fields_of(kind), False)
        schema = self._generated(TypeAdapter(kind))
        return {"additionalProperties": False, **schema} if "properties" in schema else schema

    def _object(self, arguments: list[Argument], takes_all: bool) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {each.name: self._property(each) for each in arguments},
            "required": [each.name for each in arguments if each.is_required],
            "additionalProperties": takes_all,
        }

    def _property(self, argument: Argument) -> dict[str, Any]:
        adapter = argument.adapter()
        schema = self._generated(adapter) if adapter is not None else {}
        if isinstance(argument.default, str | int | float | bool | None):
            schema["default"] = argument.default
        return schema

    def _generated(self, adapter: TypeAdapter[Any]) -> dict[str, Any]:
        """A type's schema; nothing of a type that has none."""
        try:
            schema = adapter.json_schema(ref_template=f"#/$defs/{self.name}.{{model}}")
        except PydanticUserError:
            return {}
        for name, each in schema.pop("$defs", {}).items():
            closed = {"additionalProperties": False} if "properties" in each else {}
            self.defs[f"{self.name}.{name}"] = closed | each
        return schema
