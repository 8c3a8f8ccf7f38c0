"""Means and deviations of values within groups."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from guerdon._validation import check_choice
from guerdon.credit.columns import Floats, Integers
from guerdon.errors import CreditError

__all__ = ["relative_to_group"]

Normalize = Literal["mean_std", "mean"]

# Added to a standard deviation before dividing by it.
EPSILON = 1e-6


def relative_to_group(
    values: Floats, group: Integers, *, normalize: Normalize = "mean_std"
) -> Floats:
    """Return how far each value is from the mean of its group.

    (x − mean) / (σ + 1e-6) with the unbiased σ, or x − mean. A group of one and a group of equal
    values give exactly 0.

    Example:
        >>> import numpy as np
        >>> from guerdon.credit import relative_to_group
        >>> values, group = np.array([1.0, 0.0, 5.0]), np.array([0, 0, 1])
        >>> relative_to_group(values, group, normalize="mean").tolist()
        [0.5, -0.5, 0.0]

    Args:
        values: Of shape (M,).
        group: The index of the group of each value, (M,), from 0.
        normalize: ``mean_std`` divides by σ + 1e-6, ``mean`` doesn't.

    Raises:
        CreditError: ``normalize`` is invalid, or values are too large to be squared.
    """
    check_choice("normalize", normalize, get_args(Normalize), error=CreditError)
    if not len(values):
        return values.copy()
    amount = np.maximum(np.bincount(group), 1)
    one_of = np.empty(len(amount))
    one_of[group] = values
    with np.errstate(over="ignore", invalid="ignore"):
        # Relative to a member of the group: a large common offset costs no digits, equal values
        # give 0.
        offset = values - one_of[group]
        deviation = offset - (np.bincount(group, offset) / amount)[group]
        if normalize == "mean":
            return deviation
        variance = np.bincount(group, deviation**2) / np.maximum(amount - 1, 1)
    if not np.isfinite(variance).all():
        raise CreditError("rewards or scores are too large to compute their standard deviation")
    result: Floats = deviation / (np.sqrt(variance) + EPSILON)[group]
    return result


def varies(values: Floats, group: Integers) -> NDArray[np.bool_]:
    """Return whether a group has two values that differ, for each group."""
    total = int(group.max(initial=-1)) + 1
    one_of = np.empty(total)
    one_of[group] = values
    different: NDArray[np.bool_] = np.bincount(group, values != one_of[group], total) > 0
    return different
