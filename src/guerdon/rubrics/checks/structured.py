"""Texts that are JSON and fit a schema."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, cast

from guerdon.errors import InvalidArgumentError
from guerdon.rubrics.checks.fences import fenced_blocks
from guerdon.rubrics.checks.inputs import AnswerCheck
from guerdon.types.reasoning import REASONING_TAGS

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

__all__ = ["ValidJson"]

MAX_DEPTH = 100
"""Arrays and objects nested deeper are rejected, at any depth of the call stack."""


class ValidJson(AnswerCheck):
    r"""The text is JSON and fits the schema.

    JSON means RFC 8259: no NaN, no Infinity, no comments, no trailing commas, at most 100 levels.

    Args:
        schema: A JSON Schema, as a mapping or bool; its `$schema` selects the draft, by default
            2020-12. None accepts any JSON. References within the schema are resolved, others are
            rejected and never fetched.
        field: The attribute or key of the action that contains the text.
        fenced: Whether the JSON is in the last block fenced as `json`, or else in the last one
            fenced without a language, if there is any.
        reasoning_tags: The tags around reasoning, which is left out, as for `split_reasoning`.

    Returns:
        1.0 if the text parses and fits, otherwise 0.0. Of a repeated key in an object the last one
        counts, and the explanation lists it.

    Raises:
        InvalidArgumentError: `schema` is not a valid JSON Schema, or has an unresolvable reference.
        MissingInputError: At evaluation, the action has no text.

    Example:
        >>> ValidJson({"type": "object", "required": ["city"]})('{"city": "Oslo"}', None)
        1.0
    """

    score_range = (0.0, 1.0)
    state_names: ClassVar[tuple[str, ...]] = ("schema",)

    def __init__(
        self,
        schema: Mapping[str, Any] | bool | None = None,
        *,
        field: str = "content",
        fenced: bool = True,
        reasoning_tags: Sequence[str] = REASONING_TAGS,
    ) -> None:
        super().__init__(reasoning_tags)
        self.schema = schema
        self.field = field
        self.fenced = fenced

    @property
    def schema(self) -> dict[str, Any] | bool | None:
        """The JSON Schema; setting it makes a copy."""
        return self._schema

    @schema.setter
    def schema(self, value: Mapping[str, Any] | bool | None) -> None:
        schema = None if value is None else _plain(value)
        self._validator = None if schema is None else _validator_for(schema)
        self._schema: dict[str, Any] | bool | None = schema

    def forward(self, action: Any, observation: Any) -> float:
        """Parse the text of the action and validate it against the schema."""
        text = self.answer_of(action)
        blocks = fenced_blocks(text, "json") if self.fenced else []
        duplicates: list[str] = []
        try:
            value = _parsed(blocks[-1].text if blocks else text, duplicates)
        except ValueError as error:
            self.explain("is not JSON: %s", error)
            return 0.0
        if self._validator is not None:
            problem = _problem_with(value, self._validator)
            if problem is not None:
                self.explain("does not fit the schema: %s", problem)
                return 0.0
        if duplicates:
            self.explain("fits, with duplicate keys: %.80s", ", ".join(duplicates))
        return 1.0

    def __getstate__(self) -> dict[str, Any]:
        # The library's validators can't be pickled; __setstate__ makes a new one.
        return {**super().__getstate__(), "_validator": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.schema = self._schema


def _parsed(text: str, duplicates: list[str]) -> Any:
    def noting_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) < len(pairs):
            counts = Counter(name for name, _ in pairs)
            duplicates.extend(repr(name) for name, count in counts.items() if count > 1)
        return members

    too_deep = f"nested deeper than {MAX_DEPTH} levels"
    try:
        value = json.loads(
            text,
            object_pairs_hook=noting_duplicates,
            parse_constant=_not_a_number,
            parse_float=_finite,
        )
    except RecursionError as error:
        raise ValueError(too_deep) from error
    if text.count("[") + text.count("{") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        raise ValueError(too_deep)
    return value


def _not_a_number(literal: str) -> NoReturn:
    raise ValueError(f"{literal} is not a JSON number")


def _finite(literal: str) -> float:
    value = float(literal)
    if not math.isfinite(value):
        raise ValueError(f"{literal[:40]} is too large for a float")
    return value


def _depth(value: Any) -> int:
    """The nesting depth of arrays and objects, counted up to one more than is accepted."""
    depth, nested = 0, [value]
    while depth <= MAX_DEPTH:
        nested = [item for item in nested if isinstance(item, dict | list)]
        if not nested:
            break
        depth += 1
        nested = [
            part for item in nested for part in (item.values() if isinstance(item, dict) else item)
        ]
    return depth


def _problem_with(value: Any, validator: Validator) -> str | None:
    from jsonschema.exceptions import best_match

    try:
        if validator.is_valid(value):
            return None
        error = best_match(validator.iter_errors(value))
    except OverflowError as overflow:  # an integer of hundreds of digits against a float
        return f"a number is too large: {overflow}"
    return None if error is None else f"at {error.json_path}: {error.message[:200]}"


def _plain(schema: object) -> dict[str, Any] | bool:
    """Copy a schema through JSON."""
    if not isinstance(schema, Mapping | bool):
        raise InvalidArgumentError(
            f"`schema` must be a JSON Schema as a mapping or bool, got {type(schema).__name__}"
        )
    try:
        given = schema if isinstance(schema, bool) else dict(schema)
        plain: dict[str, Any] | bool = json.loads(json.dumps(given, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(
            f"`schema` can't be written as JSON ({error}); it may contain mappings with string "
            "keys, lists, strings, finite numbers, bools and None"
        ) from error
    return plain


def _validator_for(schema: dict[str, Any] | bool) -> Validator:
    from jsonschema.exceptions import SchemaError
    from referencing import Registry

    cls = _draft_of(schema)
    try:
        if isinstance(schema, dict):
            cls.check_schema(schema)
            _check_references(schema, cls)
        # With an empty registry, nothing outside the schema is looked up or fetched.
        validator = cls(schema, registry=Registry())
        validator.is_valid(None)
    except SchemaError as error:
        raise InvalidArgumentError(
            f"`schema` is not a valid JSON Schema: at {error.json_path}: {error.message[:200]}"
        ) from error
    except RecursionError as error:
        raise InvalidArgumentError(
            "`schema` is nested too deeply or refers to itself without end"
        ) from error
    return validator


def _draft_of(schema: dict[str, Any] | bool) -> type[Validator]:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for

    if isinstance(schema, bool) or "$schema" not in schema:
        return Draft202012Validator
    name = schema["$schema"]
    cls: type[Validator] | None = None
    if isinstance(name, str):
        cls = validator_for(schema, default=None)  # type: ignore[arg-type]
    if cls is None:
        raise InvalidArgumentError(
            "`schema['$schema']` must be the address of a draft from 3 to 2020-12, such as "
            f"'https://json-schema.org/draft/2020-12/schema', got {name!r:.80}"
        )
    return cls


def _check_references(schema: dict[str, Any], cls: type[Validator]) -> None:
    """Reject references that can't be resolved within the schema, before anything is scored."""
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import specification_with

    dialect = cast(Mapping[str, Any], cls.META_SCHEMA)["$schema"]
    root = specification_with(dialect).create_resource(schema)
    waiting = [(root, REGISTRY.resolver_with_root(root))]
    while waiting:
        resource, resolver = waiting.pop()
        contents = resource.contents if isinstance(resource.contents, dict) else {}
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            target = contents.get(keyword)
            try:
                if isinstance(target, str):
                    resolver.lookup(target)
            except Unresolvable as error:
                raise InvalidArgumentError(
                    f"`schema` has {keyword} {target!r:.200}, which must refer to a part of the "
                    "schema (nothing is fetched)"
                ) from error
        for part in resource.subresources():
            waiting.append((part, resolver.in_subresource(part)))
