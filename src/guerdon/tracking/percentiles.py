"""Percentiles of a stream in bounded memory, with a bound of their error."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise, zip_longest
from typing import Any, Self

import numpy as np

from guerdon._validation import is_finite, shown
from guerdon.credit.columns import Floats, Integers
from guerdon.errors import StateError
from guerdon.tracking.statistics import LARGEST, Scale, Statistics

__all__ = ["Percentiles"]

# The number of values at which a level is compacted; even.
CAPACITY = 2_048
MAX_LEVELS = 64


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

    __slots__ = ("_ranks", "_values", "compactions", "high", "levels", "low")

    names: Sequence[str] = ("count", "levels", "compactions")

    def __init__(self, low: float = 5.0, high: float = 95.0) -> None:
        super().__init__()
        self.low, self.high = low, high
        self.levels: list[list[float]] = [[]]
        self.compactions = [0]
        self._values: list[float] | None = None  # of the upper levels, sorted
        self._ranks: list[int] = []  # the number of rewards that the values up to each represent

    @classmethod
    def of_rows(cls, rewards: Floats, codes: Integers, size: int) -> list[Self]:
        """See `Statistics.of_rows`."""
        return [cls._of_values(each) for each in _by_code(rewards, codes, size)]

    @classmethod
    def _of_values(cls, rewards: Floats) -> Self:
        found = cls()
        found.count = len(rewards)
        found.levels[0] = np.sort(rewards).tolist()
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

    def scale(self) -> Scale:
        """See `Statistics.scale`."""
        low = self.percentile(self.low)
        moved = sum(number << level for level, number in enumerate(self.compactions))
        return Scale(self.count, low, self.percentile(self.high) - low, moved / self.count)

    def state(self) -> dict[str, Any]:
        """See `Statistics.state`."""
        return {
            "count": self.count,
            "levels": [list(level) for level in self.levels],
            "compactions": list(self.compactions),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """See `Statistics.load`."""
        super().load(state)
        levels, compactions = state["levels"], state["compactions"]
        if not isinstance(levels, list) or not 1 <= len(levels) <= MAX_LEVELS:
            raise StateError(f"`levels` must be 1 to {MAX_LEVELS} lists, got {shown(levels)}")
        for number, level in enumerate(levels):
            if not _is_level(level):
                raise StateError(
                    f"`levels[{number}]` must be fewer than {CAPACITY:,} sorted numbers up to "
                    f"{LARGEST:g}, got {shown(level)}"
                )
        if sum(len(level) << number for number, level in enumerate(levels)) != self.count:
            raise StateError(f"`levels` must represent `count`, {self.count}, rewards")
        if not isinstance(compactions, list) or len(compactions) != len(levels):
            raise StateError(
                f"`compactions` must have one entry per level, got {shown(compactions)}"
            )
        for level, number in enumerate(compactions):
            if not isinstance(number, int) or isinstance(number, bool) or number < 0:
                raise StateError(f"`compactions` must be integers >= 0, got {shown(compactions)}")
            if number * CAPACITY << level > self.count:
                raise StateError(
                    f"`compactions` must be possible with `count` rewards, got {shown(compactions)}"
                )
        self.levels = [list(map(float, level)) for level in levels]
        self.compactions = list(compactions)
        self._values = None


def _is_level(level: Any) -> bool:
    return (
        isinstance(level, list)
        and len(level) < CAPACITY
        and all(is_finite(value) and abs(value) <= LARGEST for value in level)
        and all(before <= after for before, after in pairwise(level))
    )


def _by_code(rewards: Floats, codes: Integers, size: int) -> Iterable[Floats]:
    """Return the rewards of each code."""
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=size))
    return np.split(rewards[order], ends[:-1])
