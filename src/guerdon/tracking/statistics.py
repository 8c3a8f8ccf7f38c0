"""Statistics of the rewards of one environment, and the scale that they define."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from itertools import accumulate, pairwise, zip_longest
from typing import Annotated, Any, Self, TypeAlias

import numpy as np
from pydantic import AfterValidator, ConfigDict, Field
from pydantic_core import to_jsonable_python

from guerdon.credit.columns import Floats, Integers

__all__ = ["Scale"]

# Larger rewards are rejected: their squares, and sums of many, would overflow.
LARGEST = 1e100

MAX_COUNT = 2**53

# A spread below this counts as 0: a quotient by it could overflow.
SMALLEST_SPREAD = 1e-150
# And so does a spread of at most this share of the center: 0.1 + 0.2 + 0.3 and 0.3 + 0.2 + 0.1
# differ by rounding, which would be scaled up to a whole unit.
ROUNDING = 2.0**-46


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


# The numbers of a state.
Count: TypeAlias = Annotated[int, Field(strict=True, ge=1, le=MAX_COUNT)]
Number: TypeAlias = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Reward: TypeAlias = Annotated[Number, Field(ge=-LARGEST, le=LARGEST)]


@dataclass(slots=True)
class Statistics(ABC):
    """The statistics that one method keeps of the rewards of one environment.

    The fields of a subclass are its state. `Moments`, `Extremes` and `Percentiles` are validated
    as fields of a pydantic model.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    count: Count

    @classmethod
    @abstractmethod
    def empty(cls) -> Self:
        """Return the statistics of no rewards."""

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
    def scale(self, low: float = 5.0, high: float = 95.0) -> Scale:
        """Return the scale; at least one reward was added.

        Args:
            low: The lower percentile of `Percentiles`.
            high: The higher percentile.
        """

    def state(self) -> dict[str, Any]:
        """Return the state in a form that JSON represents without loss."""
        names = [each.name for each in fields(self) if each.init]
        return {name: to_jsonable_python(getattr(self, name)) for name in names}

    def check(self) -> Self:
        """Raise ValueError if the fields are impossible together."""
        return self


@dataclass(slots=True)
class Moments(Statistics):
    """The number of rewards, their mean, and the sum M of their squared distances from it.

    One reward (Welford 1962, Technometrics 4): with d = x − μ, μ += d / n and M += d (x − μ).
    Two parts (Chan, Golub and LeVeque 1979, STAN-CS-79-773): with d = μ_b − μ_a,
    μ = μ_a + d n_b / n and M = M_a + M_b + d² n_a n_b / n. The spread is σ = √(M / n).

    Large sums are never subtracted from each other. The mean is stored as an offset from the first
    reward, the origin: a float would round the mean of rewards of 10⁹ that differ by 1 by 10⁻⁷.
    """

    origin: Reward
    offset: Annotated[Number, Field(ge=-2 * LARGEST, le=2 * LARGEST)]
    squares: Annotated[Number, Field(ge=0, le=4 * LARGEST**2 * MAX_COUNT)]

    @classmethod
    def empty(cls) -> Self:
        """See `Statistics.empty`."""
        return cls(0, 0.0, 0.0, 0.0)

    @classmethod
    def of_rows(cls, rewards: Floats, codes: Integers, size: int) -> list[Self]:
        """See `Statistics.of_rows`."""
        origin = np.zeros(size)
        origin[codes] = rewards  # any reward of each code
        offsets = rewards - origin[codes]
        counts = np.bincount(codes, minlength=size)
        mean = np.bincount(codes, offsets, size) / counts
        squares = np.bincount(codes, np.square(offsets - mean[codes]), size)
        columns = (counts, origin, mean, squares)
        return [cls(*each) for each in zip(*map(np.ndarray.tolist, columns), strict=True)]

    def add(self, reward: float) -> None:
        """See `Statistics.add`."""
        if not self.count:
            self.origin = reward
        self.count += 1
        offset = reward - self.origin
        distance = offset - self.offset
        self.offset += distance / self.count
        self.squares += distance * (offset - self.offset)

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

    def scale(self, low: float = 5.0, high: float = 95.0) -> Scale:
        """See `Statistics.scale`."""
        return Scale(self.count, self.origin + self.offset, math.sqrt(self.squares / self.count))


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


@dataclass(slots=True)
class Extremes(Statistics):
    """The lowest and the highest reward so far; the spread is their difference."""

    lowest: Reward
    highest: Reward

    @classmethod
    def empty(cls) -> Self:
        """See `Statistics.empty`."""
        return cls(0, math.inf, -math.inf)

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

    def scale(self, low: float = 5.0, high: float = 95.0) -> Scale:
        """See `Statistics.scale`."""
        return Scale(self.count, self.lowest, self.highest - self.lowest)

    def check(self) -> Self:
        """See `Statistics.check`."""
        if self.lowest > self.highest:
            raise ValueError(
                f"`lowest` must be at most `highest`, {self.highest!r}, got {self.lowest!r}"
            )
        return self


# The number of values at which a level of `Percentiles` is compacted; even.
CAPACITY = 2_048
MAX_LEVELS = 64


def _check_sorted(level: list[float]) -> list[float]:
    if any(before > after for before, after in pairwise(level)):
        raise ValueError("must be sorted")
    return level


Level: TypeAlias = Annotated[
    list[Reward], Field(max_length=CAPACITY - 1), AfterValidator(_check_sorted)
]


@dataclass(slots=True)
class Percentiles(Statistics):
    """A sketch of the rewards: compactors as in KLL (arXiv 1603.05346), all of one capacity.

    A value at level h represents 2^h rewards. A level with 2,048 values is compacted: every other
    of its sorted values moves one level up, starting with the first and the second in turn. So
    nothing is random, and a merge merges the levels.

    **Error.** A compaction at level h changes any rank by at most 2^h, and consumes at least 2,048
    values that represent 2^h rewards each, so there are at most n / (2048 · 2^h) of them. The rank
    of a percentile of n rewards is therefore off by at most the share

        ε = (1 + log₂(n / 2048)) / 2048,

    whatever the order of the rewards and of merges: 0.49 % of n = 10⁶, 0.65 % of n = 10⁷. Below
    2,048 rewards, percentiles are exact. `Scale.rank_error` is the sum over the compactions that
    took place, which is lower. Ranks don't depend on the size, the sign or an offset of values.

    The q-th percentile is the lowest value v with at least q/100 of the rewards at or below v; it
    is one of the rewards, and never lies between two.
    """

    levels: Annotated[list[Level], Field(min_length=1, max_length=MAX_LEVELS)]
    compactions: list[Annotated[int, Field(strict=True, ge=0, le=MAX_COUNT)]]
    # Of the upper levels: the values, sorted, and the number of rewards that the values up to each
    # represent.
    _values: list[float] | None = field(default=None, init=False)
    _ranks: list[int] = field(default_factory=list, init=False)

    @classmethod
    def empty(cls) -> Self:
        """See `Statistics.empty`."""
        return cls(0, [[]], [0])

    @classmethod
    def of_rows(cls, rewards: Floats, codes: Integers, size: int) -> list[Self]:
        """See `Statistics.of_rows`."""
        return [cls._of_values(each) for each in _by_code(rewards, codes, size)]

    @classmethod
    def _of_values(cls, rewards: Floats) -> Self:
        found = cls(len(rewards), [np.sort(rewards).tolist()], [0])
        found._compact()
        return found

    def add(self, reward: float) -> None:
        """See `Statistics.add`."""
        self.count += 1
        insort(self.levels[0], reward)
        if len(self.levels[0]) >= CAPACITY:
            self._compact()

    def merge(self, other: Self) -> None:
        """See `Statistics.merge`."""
        self.count += other.count
        none: list[float] = []
        self.levels = [
            sorted([*ours, *theirs])
            for ours, theirs in zip_longest(self.levels, other.levels, fillvalue=none)
        ]
        self.compactions = [
            ours + theirs
            for ours, theirs in zip_longest(self.compactions, other.compactions, fillvalue=0)
        ]
        self._compact()

    def _compact(self) -> None:
        """Compact each full level, the lowest first."""
        self._values = None
        for level, values in enumerate(self.levels):  # the list may grow in the loop
            if len(values) < CAPACITY:
                continue
            if level + 1 == len(self.levels):
                self.levels.append([])
                self.compactions.append(0)
            even = len(values) // 2 * 2
            kept = values[self.compactions[level] % 2 : even : 2]
            self.levels[level + 1] = sorted([*self.levels[level + 1], *kept])
            self.levels[level] = values[even:]
            self.compactions[level] += 1

    def percentile(self, percent: float) -> float:
        """Return a percentile of the rewards.

        Args:
            percent: From 0 to 100.
        """
        target = max(1, math.ceil(percent * self.count / 100))
        # Both are sorted; the lowest value with enough rewards up to it is in one of them.
        return min(
            values[place]
            for values in (self.levels[0], self._upper_levels())
            if (place := bisect_left(values, target, key=self._rank)) < len(values)
        )

    def _rank(self, value: float) -> int:
        """Return the number of rewards at or below a value."""
        upper = bisect_right(self._upper_levels(), value)
        return bisect_right(self.levels[0], value) + (self._ranks[upper - 1] if upper else 0)

    def _upper_levels(self) -> list[float]:
        if self._values is None:
            weighted = sorted(
                (value, 1 << level)
                for level, values in enumerate(self.levels)
                if level > 0
                for value in values
            )
            self._values = [value for value, _ in weighted]
            self._ranks = list(accumulate(weight for _, weight in weighted))
        return self._values

    def scale(self, low: float = 5.0, high: float = 95.0) -> Scale:
        """See `Statistics.scale`."""
        lowest = self.percentile(low)
        moved = sum(number << level for level, number in enumerate(self.compactions))
        return Scale(self.count, lowest, self.percentile(high) - lowest, moved / self.count)

    def check(self) -> Self:
        """See `Statistics.check`."""
        if sum(len(level) << number for number, level in enumerate(self.levels)) != self.count:
            raise ValueError(f"`levels` must represent `count`, {self.count}, rewards")
        if len(self.compactions) != len(self.levels):
            raise ValueError("`compactions` must have one entry per level")
        consumed = (number << level for level, number in enumerate(self.compactions))
        if max(consumed) * CAPACITY > self.count:
            raise ValueError("`compactions` must be possible with `count` rewards")
        return self


def _by_code(rewards: Floats, codes: Integers, size: int) -> Iterable[Floats]:
    """Return the rewards of each code."""
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=size))
    return np.split(rewards[order], ends[:-1])
