"""Which values are numbers, and how a message tells one that isn't."""

from __future__ import annotations

import math
from numbers import Real

__all__ = ["is_finite", "told"]

MAX_TOLD = 60


def is_finite(value: object) -> bool:
    """Whether it is a finite number that a float can hold; a bool is none.

    Example:
        >>> [is_finite(value) for value in (1, 0.5, True, float("nan"), 10**400, "1")]
        [True, True, False, False, False, False]
    """
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def told(value: object) -> str:
    """A value, as a message tells it.

    Example:
        >>> told("high"), told(10**5000)
        ("'high'", "int that can't be told")
    """
    try:
        said = repr(value)
    except Exception:  # a number of thousands of digits, lists in lists in lists, an object's own
        return f"{type(value).__name__} that can't be told"
    return said if len(said) <= MAX_TOLD else said[: MAX_TOLD - 1] + "…"
