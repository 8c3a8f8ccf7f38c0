"""Comparing scores with thresholds. Rounding must not decide: 0.01 + 0.29 + 0.7 is below 1."""

from __future__ import annotations

# How far below its threshold a score still reaches it.
TOLERANCE = 1e-9


def reaches(score: float, threshold: float) -> bool:
    """Whether a score is at least a threshold, within `TOLERANCE`.

    Example:
        >>> reaches(0.9999999999999999, 1.0), reaches(0.99, 1.0)
        (True, False)
    """
    return score >= threshold - TOLERANCE


def is_zero(score: float) -> bool:
    """Whether a score is 0, within `TOLERANCE`, as is 0.1 + 0.2 - 0.3.

    Example:
        >>> is_zero(5.5e-17), is_zero(1e-6)
        (True, False)
    """
    return -TOLERANCE <= score <= TOLERANCE
