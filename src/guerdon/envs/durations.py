"""Checking how long somebody wants to wait."""

from __future__ import annotations

import math

from guerdon.errors import InvalidArgumentError

__all__ = ["check_seconds"]


def check_seconds(name: str, seconds: object) -> float:
    """Check a number of seconds, and give it as a float.

    Example:
        >>> check_seconds("timeout_s", 5)
        5.0

    Raises:
        InvalidArgumentError: It is no finite number over 0.
    """
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not is_number or not 0 < seconds < math.inf:  # type: ignore[operator]
        raise InvalidArgumentError(f"{name} is {seconds!r}; it takes a number of seconds over 0")
    return float(seconds)  # type: ignore[arg-type]
