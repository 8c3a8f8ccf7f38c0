"""What JSON can hold of anything."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pydantic_core import PydanticSerializationError, from_json, to_json, to_jsonable_python

__all__ = ["as_json", "json_items"]

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
