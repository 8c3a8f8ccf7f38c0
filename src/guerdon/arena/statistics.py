"""Medians with bootstrap intervals, and paired comparisons of seeds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from guerdon.arena.model import Floats

__all__ = ["Estimate", "Paired", "compare", "median"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95 % interval.

    Attributes:
        value: The number.
        low: The lower end.
        high: The upper end.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Paired:
    """A method beside another on the same seeds.

    Attributes:
        ratio: The ratio of the medians, with its interval.
        p: The probability of a difference of means at least as large, if the sign of the difference
            of each seed were that of a fair coin.
    """

    ratio: Estimate
    p: float


def _resampled(count: int, samples: int) -> np.ndarray:
    """Return the indices of bootstrap samples, (samples, count), the same in every call."""
    return np.random.default_rng(count).integers(0, count, (samples, count))


def median(values: Floats, samples: int) -> Estimate:
    """Return the median with its percentile bootstrap interval (Efron, 1979).

    Example:
        >>> import numpy as np
        >>> from guerdon.arena.statistics import median
        >>> median(np.array([1.0, 2.0, 3.0, 4.0, 100.0]), 1000)
        Estimate(value=3.0, low=1.0, high=100.0)

    Args:
        values: One for each seed, (N,); infinity is allowed.
        samples: The number of bootstrap samples.
    """
    medians = _medians(values[_resampled(len(values), samples)])
    return _estimate(float(_medians(values)), medians)


def _medians(values: Floats) -> Floats:
    """Return the lower medians of the last axis, which exist for infinity too."""
    middle: Floats = np.sort(values, -1)[..., (values.shape[-1] - 1) // 2]
    return middle


def _estimate(value: float, samples: Floats) -> Estimate:
    ordered = np.sort(samples)
    ends = np.clip(np.array([0.025, 0.975]) * len(ordered), 0, len(ordered) - 1).astype(int)
    return Estimate(value, *(float(each) for each in ordered[ends]))


def compare(ours: Floats, theirs: Floats, samples: int) -> Paired:
    """Compare two methods on the same seeds.

    Args:
        ours: One positive number for each seed, (N,).
        theirs: The same of the other method.
        samples: The number of bootstrap samples, and of random signs.
    """
    chosen = _resampled(len(ours), samples)
    ratios = _medians(ours[chosen]) / _medians(theirs[chosen])
    ratio = _estimate(float(_medians(ours) / _medians(theirs)), ratios)
    differences = ours - theirs
    signs = np.random.default_rng(len(ours)).choice([-1.0, 1.0], (samples, len(ours)))
    extreme = np.abs((signs * differences).mean(-1)) >= abs(differences.mean()) - 1e-12
    return Paired(ratio, float((extreme.sum() + 1) / (samples + 1)))
