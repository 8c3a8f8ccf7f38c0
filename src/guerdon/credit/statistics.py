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
    deviation = _from_mean(values, group)
    if normalize == "mean":
        return deviation
    result: Floats = deviation / (_root_mean_square(deviation, group) + EPSILON)[group]
    return result


def deviations(values: Floats, group: Integers) -> Floats:
    """Return the unbiased σ of the values of each group; 0 in a group of one."""
    return _root_mean_square(_from_mean(values, group), group)


def _from_mean(values: Floats, group: Integers) -> Floats:
    one_of = np.empty(int(group.max()) + 1)
    one_of[group] = values
    with np.errstate(over="ignore", invalid="ignore"):
        # Relative to a member of the group: a large common offset costs no digits, equal values
        # give 0.
        offset = values - one_of[group]
        means = np.bincount(group, offset) / np.maximum(np.bincount(group), 1)
        from_mean: Floats = offset - means[group]
    return from_mean


def _root_mean_square(deviation: Floats, group: Integers) -> Floats:
    with np.errstate(over="ignore", invalid="ignore"):
        variance = np.bincount(group, deviation**2) / np.maximum(np.bincount(group) - 1, 1)
    if not np.isfinite(variance).all():
        raise CreditError("rewards or scores are too large to compute their standard deviation")
    return np.sqrt(variance)


def varies(values: Floats, group: Integers) -> NDArray[np.bool_]:
    """Return whether a group has two values that differ, for each group."""
    total = int(group.max(initial=-1)) + 1
    one_of = np.empty(total)
    one_of[group] = values
    different: NDArray[np.bool_] = np.bincount(group, values != one_of[group], total) > 0
    return different
