"""Converting any value to JSON data, and reading strict JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from pydantic_core import PydanticSerializationError, from_json, to_json, to_jsonable_python

# How deep values that aren't JSON data may be nested.
MAX_DEPTH = 20

_FAILURES = (PydanticSerializationError, ValueError, TypeError, RecursionError)


def as_json(value: Any) -> Any:
    """A value as JSON data: models and dataclasses as dicts, other objects as their `repr`.

    Example:
        >>> as_json({"board": (1, 2), "score": float("nan"), "kind": complex})
        {'board': [1, 2], 'score': 'NaN', 'kind': "<class 'complex'>"}
    """
    if value is None or type(value) in (str, bool, int):
        return value
    try:
        return _serialized(value, _fallback)
    except _FAILURES:
        return repr(value)


def json_items(mapping: Mapping[Any, Any]) -> dict[str, Any]:
    """The items of a mapping that can be JSON data; the others are left out.

    Example:
        >>> json_items({"step_rewards": [0.5], "socket": object()})
        {'step_rewards': [0.5]}
    """
    kept = {}
    for name, value in mapping.items():
        try:
            kept[str(name)] = _serialized(value, None)
        except _FAILURES:
            continue
    return kept


def _serialized(value: Any, fallback: Callable[[Any], Any] | None) -> Any:
    try:
        return from_json(to_json(value, inf_nan_mode="strings", fallback=fallback))
    except PydanticSerializationError:  # perhaps a lone surrogate, which UTF-8 doesn't have
        return json.loads(
            json.dumps(to_jsonable_python(value, fallback=fallback)), parse_constant=str
        )


def _fallback(value: Any) -> Any:
    """A form of a value that pydantic doesn't know."""
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):  # an array, or one of its numbers
        return value.tolist()
    if hasattr(value, "__dict__") and not isinstance(value, type) and not callable(value):
        return {name: each for name, each in vars(value).items() if not name.startswith("_")}
    return repr(value)


def as_text(value: Any, inside: tuple[int, ...] = ()) -> Any:
    """A value as strict JSON data: what JSON doesn't have, such as infinity, becomes text.

    Example:
        >>> as_text({"id": float("inf"), "turns": [1, {2}]})
        {'id': 'inf', 'turns': [1, [2]]}

    Args:
        value: The value.
        inside: The identities of the containers around it.
    """
    try:
        json.dumps(value, allow_nan=False)
        return value
    except Exception:  # a user's class may raise anything
        if id(value) in inside or len(inside) >= MAX_DEPTH:
            return "…"
    inside = (*inside, id(value))
    try:
        if isinstance(value, Mapping):
            return {_text(name): as_text(each, inside) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [as_text(each, inside) for each in value]
        if isinstance(value, set | frozenset):  # in a stable order
            return sorted((as_text(each, inside) for each in value), key=repr)
        if hasattr(value, "tolist"):  # an array, or one of its numbers
            return as_text(value.tolist(), inside)
    except Exception as error:
        return f"(unreadable: {type(error).__name__})"
    return _text(value)


def _text(value: Any) -> str:
    try:
        return str(value)
    except Exception as error:
        return f"(unreadable: {type(error).__name__})"


def group_key(group: Any) -> Hashable:
    """Return a hashable key of a group, which may be any JSON value; None is its own key."""
    return None if group is None else json.dumps(group, sort_keys=True, default=repr)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not valid JSON")


_decoder = json.JSONDecoder(parse_constant=_refuse_constant)


def parse_json(text: str) -> Any:
    """Parse strict JSON, which has no NaN and no infinity.

    Example:
        >>> parse_json('{"n": 7}')
        {'n': 7}

    Raises:
        ValueError: The text is not valid JSON.
        RecursionError: It is nested too deeply.
    """
    return _decoder.decode(text)
