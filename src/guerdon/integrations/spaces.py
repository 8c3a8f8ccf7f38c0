"""`ModelSpace`: Gymnasium's space of a pydantic model, and the conversion of its values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypedDict

import numpy as np
from pydantic import BaseModel

from guerdon.errors import InvalidArgumentError, MissingExtraError

try:
    from gymnasium import Space, spaces
    from gymnasium.vector.utils import concatenate, create_empty_array
except ImportError as error:
    message = "this module needs the package gymnasium: pip install 'guerdon[gymnasium]'"
    raise MissingExtraError(message, extra="gymnasium") from error

BESIDE = {"done", "reward", "metadata"}  # returned beside the observation
LONGEST = 10_000  # characters of a text without a limit
INSTEAD = "pass a space, and a function that converts to or from it"
CHARACTERS = "\n" + "".join(map(chr, range(32, 127)))


class SpaceOptions(TypedDict, total=False):
    """The arguments by which every adapter takes spaces of your own.

    Attributes:
        action_space: The space of actions; by default that of the class of actions, see
            `ModelSpace`. With several agents, one space or a dict of one for each.
        to_action: Turns an element of it into an action, a model or a dict. With several agents,
            it is also passed the agent.
        observation_space: The space of observations, likewise.
        to_observation: Turns an observation into an element of it, likewise.
    """

    action_space: Any
    to_action: Callable[..., Any]
    observation_space: Any
    to_observation: Callable[..., Any]


class _Field(NamedTuple):
    """The space of a field, and the conversion of its values."""

    space: Space[Any]
    encode: Callable[[Any], Any]  # a value → an element
    decode: Callable[[Any], Any]  # an element → a value
    batch: Callable[[list[Any]], Any]  # values → an element of the batched space


class ModelSpace:
    """The space of a model's fields: that of its only field, or a `Dict` of several.

    ========================================  ====================================
    Field                                     Space
    ========================================  ====================================
    ``Literal``, ``Enum``, ``bool``           ``Discrete``, by position
    ``int`` with both bounds                  ``Discrete`` that starts at the lower
    ``int``, ``float``                        ``Box`` of shape ``()``
    ``list`` of a fixed length, of numbers    ``Box`` of shape ``(length,)``
    ``str``                                   ``Text`` of printable ASCII
    ========================================  ====================================

    Example:
        >>> from pydantic import Field
        >>> from guerdon import Action
        >>> from guerdon.integrations.spaces import ModelSpace
        >>> class Move(Action):
        ...     column: int = Field(ge=0, lt=7)
        >>> moves = ModelSpace(Move)
        >>> moves.space, moves.to_fields(3)
        (Discrete(7), {'column': 3})

    Args:
        model: The class of actions or observations. `metadata`, `done` and `reward` are left out.

    Raises:
        InvalidArgumentError: A field has no space.
    """

    def __init__(self, model: type[BaseModel]) -> None:
        schema = model.model_json_schema()
        fields = {
            name: _field(f"{model.__name__}.{name}", field, schema.get("$defs", {}))
            for name, field in schema.get("properties", {}).items()
            if name not in BESIDE
        }
        if not fields:
            raise InvalidArgumentError(f"{model.__name__} has no fields; {INSTEAD}")
        self._fields = fields
        self._name = next(iter(fields)) if len(fields) == 1 else None
        self.space = self._only({name: each.space for name, each in fields.items()})
        if self._name is None:
            self.space = spaces.Dict(self.space)

    def to_fields(self, element: Any, agent: str = "") -> dict[str, Any]:
        """Return the fields of an element of the space, which is the same for all agents."""
        if self._name is not None:
            return {self._name: self._fields[self._name].decode(element)}
        return {name: each.decode(element[name]) for name, each in self._fields.items()}

    def to_element(self, model: Any, agent: str = "") -> Any:
        """Return a model as an element of the space."""
        fields = self._fields.items()
        return self._only({name: each.encode(getattr(model, name)) for name, each in fields})

    def to_batch(self, models: Sequence[Any]) -> Any:
        """Return models as an element of the batched space; faster than one by one."""
        columns = {name: [getattr(each, name) for each in models] for name in self._fields}
        return self._only({name: self._fields[name].batch(each) for name, each in columns.items()})

    def _only(self, values: dict[str, Any]) -> Any:
        return values if self._name is None else values[self._name]


class OwnSpace:
    """A space that was given with the function that converts to or from its elements."""

    def __init__(self, space: Any, convert: Callable[..., Any]) -> None:
        self.space = space
        self.to_fields = self.to_element = convert

    def to_batch(self, models: Sequence[Any]) -> Any:
        """Return observations as an element of the batched space."""
        empty = create_empty_array(self.space, len(models))
        return concatenate(self.space, [self.to_element(each) for each in models], empty)


def spaces_of(environment: Any, options: SpaceOptions) -> tuple[Any, Any]:
    """Return the spaces of actions and of observations, given or of the environment's models.

    Raises:
        InvalidArgumentError: A space was given without its function, or the reverse, or a model
            has none.
    """
    return (
        _chosen(environment.action_type, "action_space", "to_action", options),
        _chosen(environment.observation_type, "observation_space", "to_observation", options),
    )


def _chosen(model: Any, space: str, function: str, options: Any) -> Any:
    if (space in options) != (function in options):
        raise InvalidArgumentError(f"`{space}` and `{function}` must be given together")
    return OwnSpace(options[space], options[function]) if space in options else ModelSpace(model)


def _field(name: str, schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> _Field:
    """The space of a field's JSON Schema."""
    if "$ref" in schema:
        return _field(name, definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "enum" in schema or "const" in schema:
        return _choice(schema.get("enum") or [schema["const"]])
    match schema.get("type"):
        case "boolean":
            return _choice([False, True])
        case "integer" | "number":
            return _number(schema, ())
        case "string":
            longest, shortest = schema.get("maxLength", LONGEST), schema.get("minLength", 0)
            space = spaces.Text(longest, min_length=shortest, charset=CHARACTERS)
            return _Field(space, str, str, tuple)
        case "array" if schema.get("minItems", 0) == schema.get("maxItems"):
            if schema.get("items", {}).get("type") in ("integer", "number"):
                return _number(schema["items"], (schema["minItems"],))
    raise InvalidArgumentError(f"`{name}` is of a type without a space; {INSTEAD}")


def _choice(values: list[Any]) -> _Field:
    def batch(given: list[Any]) -> Any:  # a member of an Enum has its value
        return np.array([values.index(getattr(each, "value", each)) for each in given], np.int64)

    space = spaces.Discrete(len(values))
    return _Field(space, lambda value: batch([value])[0], lambda index: values[int(index)], batch)


def _number(schema: Mapping[str, Any], shape: tuple[int, ...]) -> _Field:
    is_int = schema["type"] == "integer"
    kind = np.int64 if is_int else np.float64
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    if (above := schema.get("exclusiveMinimum")) is not None:
        low = above + 1 if is_int else math.nextafter(above, math.inf)
    if (below := schema.get("exclusiveMaximum")) is not None:
        high = below - 1 if is_int else math.nextafter(below, -math.inf)

    array = partial(np.array, dtype=kind)
    if is_int and not shape and math.isfinite(low) and math.isfinite(high):
        return _Field(spaces.Discrete(int(high - low + 1), start=int(low)), int, int, array)
    box = spaces.Box(low, high, shape, kind)
    return _Field(box, array, lambda element: np.asarray(element).tolist(), array)
