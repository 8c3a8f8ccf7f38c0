"""Statistics of the rewards of one environment, and the scale that follows from them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from guerdon._validation import is_finite, shown
from guerdon.credit.columns import Floats, Integers
from guerdon.errors import StateError

__all__ = ["Scale"]

# Larger rewards are rejected: their squares, and sums of many, would overflow.
LARGEST = 1e100

MAX_COUNT = 2**53

# A spread below this counts as 0: a quotient by it could overflow.
SMALLEST_SPREAD = 1e-150
# And so does a spread of at most this share of the center: 0.1 + 0.2 + 0.3 and 0.3 + 0.2 + 0.1
# differ by rounding, which would be scaled up to a whole unit.
ROUNDING = 2.0**-46

# Rows that are processed at once, so that intermediate arrays stay in the cache.
BLOCK = 16_384


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale of rewards: they are normalized to (reward − center) / spread; a spread of 0 is 1.

    Example:
        >>> from guerdon.tracking import RewardNormalizer
        >>> normalizer = RewardNormalizer("min_max")
        >>> normalizer([2.0, 4.0], env_id="chess").tolist()
        [0.0, 1.0]
        >>> normalizer.scale("chess")
        Scale(count=2, center=2.0, spread=2.0, rank_error=0.0)

    Attributes:
        count: The number of rewards it is computed from.
        center: The reward that becomes 0.
        spread: The distance from the center that becomes 1; 0 if all rewards are equal.
        rank_error: The bound on the error of the percentiles' ranks, as a share of all rewards; 0
            if they are exact, and for methods without percentiles.
    """

    count: int
    center: float
    spread: float
    rank_error: float = 0.0


class Statistics(ABC):
    """The statistics that one method keeps of the rewards of one environment."""

    __slots__ = ("count",)

    #: The keys of its state.
    names: Sequence[str] = ("count",)

    def __init__(self) -> None:
        self.count = 0

    @classmethod
    @abstractmethod
    def of_rows(cls, rewards: Floats, codes: Integers, size: int) -> list[Self]:
        """Return the statistics of the rewards of each code.

        Args:
            rewards: Of shape (N,), finite, at most `LARGEST`.
            codes: The code of each, (N,), from 0.
            size: The number of codes; each occurs.
        """

    @abstractmethod
    def add(self, reward: float) -> None:
        """Add one reward."""

    @abstractmethod
    def merge(self, other: Self) -> None:
        """Add the statistics of another, as if its rewards had been added here."""

    @abstractmethod
    def scale(self) -> Scale:
        """Return the scale; at least one reward was added."""

    def state(self) -> dict[str, Any]:
        """Return the state in a form that JSON represents without loss."""
        return {name: getattr(self, name) for name in self.names}

    def load(self, state: Mapping[str, Any]) -> None:
        """Replace the statistics by a state; raises StateError if it is invalid."""
        if not isinstance(state, Mapping) or set(state) != set(self.names):
            raise StateError(
                f"a state must have the keys {', '.join(self.names)}, got {shown(state)}"
            )
        count = state["count"]
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MAX_COUNT:
            raise StateError(f"`count` must be an integer in [1, 2^53], got {shown(count)}")
        self.count = count


def number_of(state: Mapping[str, Any], name: str, *, largest: float = LARGEST) -> float:
    """Return a number of a state."""
    value = state[name]
    if not is_finite(value) or abs(value) > largest:
        raise StateError(f"`{name}` must be a number up to {largest:g}, got {shown(value)}")
    return float(value)


class Moments(Statistics):
    """The number of rewards, their mean, and the sum M of their squared distances from it.

    One reward (Welford 1962, Technometrics 4): with d = x − μ, μ += d / n and M += d (x − μ).
    Two parts (Chan, Golub and LeVeque 1979, STAN-CS-79-773): with d = μ_b − μ_a,
    μ = μ_a + d n_b / n and M = M_a + M_b + d² n_a n_b / n. The spread is σ = √(M / n).

    Large sums are never subtracted from each other. The mean is stored as an offset from the first
    reward, the origin: a float would round the mean of rewards of 10⁹ that differ by 1 by 10⁻⁷.
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
        origin[codes] = rewards  # any reward of each code
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
        """Return the distance of the mean from an origin."""
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
            raise StateError(f"`squares` must be at least 0, got {self.squares!r}")


def _moments(values: Floats, codes: Integers, size: int) -> tuple[Integers, Floats, Floats]:
    """Return the count, the mean and the sum of squared distances of each code."""
    counts: Integers = np.bincount(codes, minlength=size)
    mean: Floats = np.bincount(codes, values, size) / np.maximum(counts, 1)
    distance = values - mean[codes]
    squares = np.bincount(codes, np.square(distance), size).astype(np.float64, copy=False)
    return counts, mean, squares


def population_scale(members: Sequence[Moments]) -> Scale:
    """Return the scale of a population of environments with equal weights.

    The moments of a mixture with equal weights: with E environments of mean μ_e and variance σ_e²,
    M = Σ μ_e / E and S² = Σ (σ_e² + (μ_e − M)²) / E.

    Args:
        members: The statistics of each environment, at least one.
    """
    size, origin = len(members), members[0].origin
    means = [each.mean_from(origin) for each in members]
    center = math.fsum(means) / size
    within = math.fsum(each.squares / each.count for each in members)
    between = math.fsum((mean - center) ** 2 for mean in means)
    count = sum(each.count for each in members)
    return Scale(count, origin + center, math.sqrt((within + between) / size))


class Extremes(Statistics):
    """The lowest and the highest reward so far; the spread is their difference."""

    __slots__ = ("highest", "lowest")

    names: Sequence[str] = ("count", "lowest", "highest")

    def __init__(
        self, count: int = 0, lowest: float = math.inf, highest: float = -math.inf
    ) -> None:
        self.count, self.lowest, self.highest = count, lowest, highest

    @classmethod
    def of_rows(cls, rewards: Floats, codes: Integers, size: int) -> list[Self]:
        """See `Statistics.of_rows`."""
        lowest, highest = np.full(size, math.inf), np.full(size, -math.inf)
        np.minimum.at(lowest, codes, rewards)
        np.maximum.at(highest, codes, rewards)
        counts = np.bincount(codes, minlength=size).tolist()
        return [cls(*each) for each in zip(counts, lowest.tolist(), highest.tolist(), strict=True)]

    def add(self, reward: float) -> None:
        """See `Statistics.add`."""
        self.count += 1
        self.lowest = min(self.lowest, reward)
        self.highest = max(self.highest, reward)

    def merge(self, other: Self) -> None:
        """See `Statistics.merge`."""
        self.count += other.count
        self.lowest = min(self.lowest, other.lowest)
        self.highest = max(self.highest, other.highest)

    def scale(self) -> Scale:
        """See `Statistics.scale`."""
        return Scale(self.count, self.lowest, self.highest - self.lowest)

    def load(self, state: Mapping[str, Any]) -> None:
        """See `Statistics.load`."""
        super().load(state)
        self.lowest, self.highest = number_of(state, "lowest"), number_of(state, "highest")
        if self.lowest > self.highest:
            raise StateError(
                f"`lowest` must be at most `highest`, {self.highest!r}, got {self.lowest!r}"
            )
