"""Checking amounts: how long somebody wants to wait, how much to take."""

from __future__ import annotations

import sys

from guerdon.errors import InvalidArgumentError

__all__ = ["check_amount", "check_seconds"]


def check_seconds(name: str, seconds: object) -> float:
    """Check a number of seconds, and give it as a float.

    Example:
        >>> check_seconds("timeout_s", 5)
        5.0

    Raises:
        InvalidArgumentError: It is no finite number over 0.
    """
    return check_amount(name, seconds, "seconds")


def check_amount(name: str, amount: object, unit: str) -> float:
    """Check an amount of something, and give it as a float.

    Raises:
        InvalidArgumentError: It is no finite number over 0.
    """
    is_number = isinstance(amount, (int, float)) and not isinstance(amount, bool)
    if not is_number or not 0 < amount <= sys.float_info.max:  # type: ignore[operator]
        raise InvalidArgumentError(f"{name} is {amount!r}; it takes a number of {unit} over 0")
    return float(amount)  # type: ignore[arg-type]
