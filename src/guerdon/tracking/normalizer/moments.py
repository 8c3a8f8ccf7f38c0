"""Mean and standard deviation, kept up to date."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from guerdon.credit.columns import Floats, Integers
from guerdon.errors import StateError
from guerdon.tracking.normalizer.statistics import LARGEST, Scale, Statistics, number_of

__all__ = ["Moments"]

# Rows that are worked on at once: what is made of them on the way stays in the cache.
BLOCK = 16_384


class Moments(Statistics):
    """The number of rewards, their mean, and the sum M of their squared distances from it.

    One reward (Welford 1962, Technometrics 4): with d = x − μ, μ += d / n and M += d (x − μ).
    Two parts (Chan, Golub and LeVeque 1979, STAN-CS-79-773): with d = μ_b − μ_a,
    μ = μ_a + d n_b / n and M = M_a + M_b + d² n_a n_b / n. The spread is σ = √(M / n).

    No difference of large sums is ever taken. The mean is kept as its offset from the first reward,
    the origin: rewards of 10⁹ that differ by 1 have a mean of which a float would round off 10⁻⁷.
    """

    __slots__ = ("offset", "origin", "squares")

    names: Sequence[str] = ("count", "origin", "offset", "squares")

    def __init__(
        self, count: int = 0, origin: float = 0.0, offset: float = 0.0, squares: float = 0.0
    ) -> None:
        self.count, self.origin, self.offset, self.squares = count, origin, offset, squares

    @classmethod
    def of_rows(cls, rewards: Floats, codes: Integers, size: int) -> list[Self]:
        """See `Statistics.of_rows`."""
        origin = np.zeros(size)
        origin[codes] = rewards  # one of each, whichever
        counts, offsets, squares = np.zeros(size, np.int64), np.zeros(size), np.zeros(size)
        for start in range(0, len(rewards), BLOCK):
            rows = slice(start, start + BLOCK)
            away = rewards[rows] - origin[codes[rows]]
            added, their_offsets, their_squares = _moments(away, codes[rows], size)
            distance = their_offsets - offsets
            share = added / np.maximum(counts + added, 1)
            offsets += distance * share
            squares += their_squares + distance**2 * (counts * share)
            counts += added
        columns = (counts, origin, offsets, squares)
        return [cls(*each) for each in zip(*map(np.ndarray.tolist, columns), strict=True)]

    def add(self, reward: float) -> None:
        """See `Statistics.add`."""
        if not self.count:
            self.origin = reward
        self.count += 1
        away = reward - self.origin
        distance = away - self.offset
        self.offset += distance / self.count
        self.squares += distance * (away - self.offset)

    def merge(self, other: Self) -> None:
        """See `Statistics.merge`."""
        if not self.count:
            self.origin, self.offset = other.origin, other.offset
        count = self.count + other.count
        distance = other.mean_from(self.origin) - self.offset
        share = other.count / count
        self.offset += distance * share
        self.squares += other.squares + distance**2 * (self.count * share)
        self.count = count

    def mean_from(self, origin: float) -> float:
        """How far the mean is from an origin."""
        return (self.origin - origin) + self.offset

    def scale(self) -> Scale:
        """See `Statistics.scale`."""
        return Scale(self.count, self.origin + self.offset, math.sqrt(self.squares / self.count))

    def load(self, state: Mapping[str, Any]) -> None:
        """See `Statistics.load`."""
        super().load(state)
        self.origin = number_of(state, "origin")
        self.offset = number_of(state, "offset", largest=LARGEST * 2)
        self.squares = number_of(state, "squares", largest=LARGEST**2 * 4 * self.count)
        if self.squares < 0:
            raise StateError(f"squares is {self.squares!r}; a number from 0 is needed")


def _moments(values: Floats, codes: Integers, size: int) -> tuple[Integers, Floats, Floats]:
    """The count, mean and sum of squared distances of each code."""
    counts: Integers = np.bincount(codes, minlength=size)
    mean: Floats = np.bincount(codes, values, size) / np.maximum(counts, 1)
    distance = values - mean[codes]
    squares = np.bincount(codes, np.square(distance), size).astype(np.float64, copy=False)
    return counts, mean, squares


def population_scale(members: Sequence[Moments]) -> Scale:
    """The scale of a population of environments, each of which counts the same.

    The moments of a mixture with equal weights: with E environments of mean μ_e and variance σ_e²,
    M = Σ μ_e / E and S² = Σ (σ_e² + (μ_e − M)²) / E.

    Args:
        members: Of each environment, at least one.
    """
    size, origin = len(members), members[0].origin
    means = [each.mean_from(origin) for each in members]
    centre = math.fsum(means) / size
    within = math.fsum(each.squares / each.count for each in members)
    between = math.fsum((mean - centre) ** 2 for mean in means)
    count = sum(each.count for each in members)
    return Scale(count, origin + centre, math.sqrt((within + between) / size))
