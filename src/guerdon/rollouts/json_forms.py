"""What JSON can hold of anything."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pydantic_core import PydanticSerializationError, from_json, to_json, to_jsonable_python

__all__ = ["as_json", "as_text", "json_items"]

# How deep values may be nested that JSON can't hold as they are.
MAX_DEPTH = 20

_FAILURES = (PydanticSerializationError, ValueError, TypeError, RecursionError)


def as_json(value: Any) -> Any:
    """A value as JSON can hold it: models and dataclasses as dicts, the rest by its `repr`.

    Example:
        >>> as_json({"board": (1, 2), "score": float("nan"), "kind": complex})
        {'board': [1, 2], 'score': 'NaN', 'kind': "<class 'complex'>"}
    """
    if value is None or type(value) in (str, bool, int):
        return value
    try:
        return _held(value, _form)
    except _FAILURES:
        return repr(value)


def json_items(mapping: Mapping[Any, Any]) -> dict[str, Any]:
    """The items of a mapping that JSON can hold; the others are left out.

    Example:
        >>> json_items({"step_rewards": [0.5], "socket": object()})
        {'step_rewards': [0.5]}
    """
    kept = {}
    for name, value in mapping.items():
        try:
            kept[str(name)] = _held(value, None)
        except _FAILURES:
            continue
    return kept


def _held(value: Any, form: Callable[[Any], Any] | None) -> Any:
    try:
        return from_json(to_json(value, inf_nan_mode="strings", fallback=form))
    except PydanticSerializationError:  # perhaps of a lone surrogate, which UTF-8 can't hold
        return json.loads(json.dumps(to_jsonable_python(value, fallback=form)), parse_constant=str)


def _form(value: Any) -> Any:
    """What is made of a value that pydantic doesn't know."""
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):  # an array, or one of its numbers
        return value.tolist()
    if hasattr(value, "__dict__") and not isinstance(value, type) and not callable(value):
        return {name: each for name, each in vars(value).items() if not name.startswith("_")}
    return repr(value)


def as_text(value: Any, inside: tuple[int, ...] = ()) -> Any:
    """A value as strict JSON can hold it: what it can't, such as infinity, becomes text.

    Example:
        >>> as_text({"id": float("inf"), "turns": [1, {2}]})
        {'id': 'inf', 'turns': [1, [2]]}

    Args:
        value: The value.
        inside: The identities of what it stands in.
    """
    try:
        json.dumps(value, allow_nan=False)
        return value
    except Exception:  # also that of somebody's own class
        if id(value) in inside or len(inside) >= MAX_DEPTH:
            return "…"
    inside = (*inside, id(value))
    try:
        if isinstance(value, Mapping):
            return {_said(name): as_text(each, inside) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [as_text(each, inside) for each in value]
        if isinstance(value, set | frozenset):  # in an order that stays
            return sorted((as_text(each, inside) for each in value), key=repr)
        if hasattr(value, "tolist"):  # an array, or one of its numbers
            return as_text(value.tolist(), inside)
    except Exception as unreadable:
        return f"(it can't be read: {type(unreadable).__name__})"
    return _said(value)


def _said(value: Any) -> str:
    try:
        return str(value)
    except Exception as unsayable:
        return f"(its text can't be made: {type(unsayable).__name__})"
