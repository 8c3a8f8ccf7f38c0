"""What may be logged: numbers that are some, names, and steps."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from numbers import Real
from typing import Any

from guerdon._validation import shown as told
from guerdon.errors import InvalidArgumentError

__all__ = [
    "IDS", "LAST_STEP", "checked_amount", "checked_id", "checked_scores", "checked_step",
    "checked_weights",
]  # fmt: skip

#: The types of an episode and of an environment's id.
IDS = frozenset({int, str, type(None)})
LAST_STEP = 2**63 - 1  # what every tracker takes

# What mostly comes is named first: to find out whether a class is one of the last takes longer.
_NUMBERS = (float, int, Real)
_MAPPINGS = (dict, Mapping)


def checked_amount(name: str, value: Any, *, kind: type[int] | type[float]) -> None:
    """Check a number over 0.

    Raises:
        InvalidArgumentError: It is none.
    """
    kinds = (int, float) if kind is float else int
    if isinstance(value, bool) or not isinstance(value, kinds) or not 0 < value < math.inf:
        whole = "" if kind is float else "whole "
        raise InvalidArgumentError(f"{name} is {told(value)}; it takes a {whole}number over 0")


def checked_step(step: Any) -> int:
    """Check a step, and give it as an int; numpy's are taken too.

    Raises:
        InvalidArgumentError: It is none.
    """
    number = _whole(step)
    if number is None or not 0 <= number <= LAST_STEP:
        raise InvalidArgumentError(
            f"step is {told(step)}; it takes a whole number from 0 to 2**63 - 1"
        )
    return number


def checked_id(name: str, value: Any) -> int | str | None:
    """Check an episode or an environment's id.

    Raises:
        InvalidArgumentError: It is neither a text, nor a whole number, nor None.
    """
    if isinstance(value, str):
        return str(value)
    if value is None:
        return None
    number = _whole(value)
    if number is None:
        raise InvalidArgumentError(
            f"{name} is {told(value)}; it takes a text, a whole number, or None"
        )
    return number


def checked_scores(
    reward: Any, components: Any, invalid: Any, reward_error: str | None
) -> dict[str, Any]:
    """The reward and its parts as a record's fields: numbers, and why others are none.

    Raises:
        InvalidArgumentError: Something is neither a number nor None, or a name is no text.
    """
    invalid = {} if invalid is None else invalid
    for name, given in (("components", components), ("invalid", invalid)):
        if not isinstance(given, _MAPPINGS):
            raise InvalidArgumentError(f"{name} is {told(given)}; it takes a mapping from names")
    why = {_named("invalid", name): str(said) for name, said in invalid.items()}
    parts: dict[str, float] = {}
    for name, value in components.items():
        number, wrong = _number(value, "components", name)
        name = _named("components", name)
        if number is None:
            why.setdefault(name, wrong)
        elif name not in why:  # what is told to have failed has no number
            parts[name] = number
    number, wrong = _number(reward, "reward")
    scores: dict[str, Any] = {"reward": number, "components": parts}
    if number is None:
        scores["reward_error"] = wrong if reward_error is None else str(reward_error)
    return scores | ({"invalid": why} if why else {})


def checked_weights(weights: Any) -> dict[str, float]:
    """Check weights by name.

    Raises:
        InvalidArgumentError: One is no finite number, or a name is no text.
    """
    if not isinstance(weights, Mapping):
        raise InvalidArgumentError(f"weights is {told(weights)}; it takes a mapping from names")
    found: dict[str, float] = {}
    for name, weight in weights.items():
        number, wrong = _number(weight, "weights", name)
        if number is None:
            raise InvalidArgumentError(
                f"weights[{told(name)}] is {wrong}; it takes a finite number"
            )
        found[_named("weights", name)] = number
    return found


def _whole(value: Any) -> int | None:
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def _named(where: str, name: Any) -> str:
    if not isinstance(name, str):
        raise InvalidArgumentError(f"{where}: the name {told(name)} is no text")
    return name if type(name) is str else str(name)


def _number(value: Any, where: str, name: Any = None) -> tuple[float | None, str]:
    """A finite number; or None, and why there is none."""
    if value is None:
        return None, "failed"
    if isinstance(value, bool) or not isinstance(value, _NUMBERS):
        place = where if name is None else f"{where}[{told(name)}]"
        raise InvalidArgumentError(
            f"{place} is {told(value)}, of type {type(value).__name__}; it takes a number, or None "
            "for what failed"
        )
    try:
        number = float(value)
    except OverflowError:
        return None, "a number that no float holds"
    return (number, "") if math.isfinite(number) else (None, str(number))
