"""Means and deviations of values by the number of the group that each belongs to."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from guerdon.credit.arguments import Floats, Integers
from guerdon.errors import CreditError

__all__: list[str] = []

Normalize = Literal["mean_std", "mean"]
NORMALIZE: tuple[str, ...] = get_args(Normalize)

# Added to a standard deviation before dividing by it.
EPSILON = 1e-6


def relative(values: Floats, codes: Integers, *, normalize: str = "mean_std") -> Floats:
    """How far each value is from the mean of its group.

    ``mean_std``: (x − mean) / (σ + 1e-6) with the unbiased σ. ``mean``: x − mean. A group of one
    and a group of equal values give exactly 0.

    Args:
        values: Of shape (M,).
        codes: The number of the group of each, (M,), from 0.
        normalize: ``mean_std`` or ``mean``.

    Returns:
        Of shape (M,).

    Raises:
        CreditError: The values are too large to be squared.
    """
    if not len(values):
        return values.copy()
    amount = np.maximum(np.bincount(codes), 1)
    one_of = np.empty(len(amount))
    one_of[codes] = values
    with np.errstate(over="ignore", invalid="ignore"):
        # From a member of the group: a large common offset takes no digits, equal values give 0.
        offset = values - one_of[codes]
        deviation = offset - (np.bincount(codes, offset) / amount)[codes]
        if normalize == "mean":
            return deviation
        variance = np.bincount(codes, deviation**2) / np.maximum(amount - 1, 1)
    if not np.isfinite(variance).all():
        raise CreditError("rewards or scores are too large for their deviations to be computed")
    result: Floats = deviation / (np.sqrt(variance) + EPSILON)[codes]
    return result


def varies(values: Floats, codes: Integers) -> NDArray[np.bool_]:
    """Whether a group has two values that differ, for each group."""
    count = int(codes.max(initial=-1)) + 1
    one_of = np.empty(count)
    one_of[codes] = values
    different: NDArray[np.bool_] = np.bincount(codes, values != one_of[codes], count) > 0
    return different
