"""Numbers as they are sent."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["is_finite"]


def is_finite(value: Any) -> bool:
    """Whether something is a number that a float can hold; a bool isn't.

    Example:
        >>> is_finite(2), is_finite(10**400), is_finite(float("nan")), is_finite(True)
        (True, False, False, False)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
