"""What a check is given: the text of an action, the ground truth, bounded numbers.

The two readers run once per check in a hot loop, so each has a short way for the usual shape and
leaves everything else, errors included, to a slower function.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from guerdon.errors import InvalidArgumentError, MissingInputError

__all__ = ["ground_truth_of", "number_within", "text_of"]


def text_of(action: object, field: str = "content") -> str:
    """Return the text of an action.

    A string is its own text, whatever the field. Anything else holds it as an attribute or, for a
    mapping, under a key. Where an action has no `content`, its `message` is taken.

    Args:
        action: A string, an object with attributes, or a mapping.
        field: The attribute or key that holds the text.

    Returns:
        The text, which may be empty.

    Raises:
        MissingInputError: If the action has no such field or the field holds no string.

    Example:
        >>> text_of({"message": "42"})
        '42'
    """
    if isinstance(action, str):
        return action
    value = getattr(action, field, None)
    if type(value) is str:
        return value
    return _text_elsewhere(action, field)


def _text_elsewhere(action: object, field: str) -> str:
    names = ("content", "message") if field == "content" else (field,)
    for name in names:
        for value in (_attribute(action, name), _item(action, name)):
            if isinstance(value, str):
                return str(value)
    what = _kind_of_field(action, field)
    raise MissingInputError(
        f"the action ({type(action).__name__}) has no text: {what}; accepted are a string, or an "
        f"object or mapping whose {' or '.join(map(repr, names))} is a string"
    )


def _kind_of_field(action: object, field: str) -> str:
    value = _item(action, field) if isinstance(action, Mapping) else _attribute(action, field)
    return f"{field!r} is missing" if value is None else f"{field!r} is {type(value).__name__}"


def _attribute(holder: object, name: str) -> Any:
    return getattr(holder, name, None)


def _item(holder: object, name: str) -> Any:
    return holder.get(name) if isinstance(holder, Mapping) else None


def ground_truth_of(observation: object) -> Any:
    """Return the ground truth that comes with an observation.

    It is looked for in `observation.metadata["ground_truth"]`, then in `observation.ground_truth`;
    a mapping is read by its keys in the same order.

    Args:
        observation: An object with attributes, or a mapping.

    Returns:
        Whatever stands there, of any type but None.

    Raises:
        MissingInputError: If there is no ground truth, or it is None.

    Example:
        >>> ground_truth_of({"metadata": {"ground_truth": "42"}})
        '42'
    """
    metadata = getattr(observation, "metadata", None)
    if type(metadata) is dict:
        value = metadata.get("ground_truth")
        if value is not None:
            return value
    return _ground_truth_elsewhere(observation)


def _ground_truth_elsewhere(observation: object) -> Any:
    for holder in (_attribute(observation, "metadata"), _item(observation, "metadata")):
        value = _item(holder, "ground_truth")
        if value is not None:
            return value
    for value in (_attribute(observation, "ground_truth"), _item(observation, "ground_truth")):
        if value is not None:
            return value
    raise MissingInputError(
        f"the observation ({type(observation).__name__}) has no ground truth: give one in "
        "observation.metadata['ground_truth'] or as observation.ground_truth"
    )


def number_within(value: object, name: str, *, low: float, high: float = math.inf) -> float:
    """Return `value` where it is a finite number from `low` to `high`.

    Args:
        value: What the person gave.
        name: The argument's name, for the message.
        low: The least accepted value.
        high: The greatest accepted value; infinity means that only finiteness is asked.

    Returns:
        The value as a float.

    Raises:
        InvalidArgumentError: If it is no number, a bool, not finite, or out of range.

    Example:
        >>> number_within(1, "tolerance", low=0.0)
        1.0
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high:
        with suppress(OverflowError):  # an integer beyond every float
            if math.isfinite(value):
                return float(value)
    wanted = f"from {low} to {high}" if high < math.inf else f"of at least {low}"
    raise InvalidArgumentError(f"{name} is {value!r:.80}; accepted is a finite number {wanted}")
