"""The lowest and the highest reward."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from guerdon.credit.columns import Floats, Integers
from guerdon.errors import StateError
from guerdon.tracking.normalizer.statistics import Scale, Statistics, number_of

__all__ = ["Extremes"]


class Extremes(Statistics):
    """The lowest and the highest reward so far; the spread is what lies between."""

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
            raise StateError(f"lowest is {self.lowest!r}, above highest, {self.highest!r}")
