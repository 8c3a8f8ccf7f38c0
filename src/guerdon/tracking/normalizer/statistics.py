"""What is known of the rewards of one environment, and the scale that follows from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from guerdon._validation import is_finite
from guerdon._validation import shown as told
from guerdon.credit.columns import Floats, Integers
from guerdon.errors import StateError

__all__ = ["Scale", "Statistics"]

# Larger rewards are refused: their squares, and sums of many, would be no floats.
LARGEST = 1e100

MAX_COUNT = 2**53

# A spread below this counts as none: what is divided by it could be no float.
SMALLEST_SPREAD = 1e-150
# And so does one that is at most this share of the centre: 0.1 + 0.2 + 0.3 and 0.3 + 0.2 + 0.1
# differ by a rounding, which would become a whole unit.
ROUNDING = 2.0**-46


@dataclass(frozen=True, slots=True)
class Scale:
    """How rewards are normalised: (reward − centre) / spread, or by 1 where that is no spread.

    Example:
        >>> from guerdon.tracking.normalizer import RewardNormalizer
        >>> normalizer = RewardNormalizer("min_max")
        >>> normalizer([2.0, 4.0], env_id="chess").tolist()
        [0.0, 1.0]
        >>> normalizer.scale("chess")
        Scale(count=2, centre=2.0, spread=2.0, rank_error=0.0)

    Attributes:
        count: How many rewards it is made of.
        centre: What becomes 0.
        spread: What becomes 1 above it; 0 where the rewards don't differ.
        rank_error: By how much at most the ranks of the percentiles are off, as a share of all
            rewards; 0 where they are exact, and for methods without percentiles.
    """

    count: int
    centre: float
    spread: float
    rank_error: float = 0.0


class Statistics(ABC):
    """What one method keeps of the rewards of one environment."""

    __slots__ = ("count",)

    #: What its state holds.
    names: Sequence[str] = ("count",)

    def __init__(self) -> None:
        self.count = 0

    @classmethod
    @abstractmethod
    def of_rows(cls, rewards: Floats, codes: Integers, size: int) -> list[Self]:
        """Those of the rewards with each code.

        Args:
            rewards: Of shape (N,), finite, at most `LARGEST`.
            codes: The code of each, (N,), from 0.
            size: How many codes there are; each occurs.
        """

    @abstractmethod
    def add(self, reward: float) -> None:
        """Take in one reward."""

    @abstractmethod
    def merge(self, other: Self) -> None:
        """Take in what another knows, as if its rewards had come here."""

    @abstractmethod
    def scale(self) -> Scale:
        """How rewards are normalised by them; at least one was taken in."""

    def state(self) -> dict[str, Any]:
        """What it holds, as JSON can hold it without loss."""
        return {name: getattr(self, name) for name in self.names}

    def load(self, state: Mapping[str, Any]) -> None:
        """Hold what another held; a state that can't be one is a StateError."""
        if not isinstance(state, Mapping) or set(state) != set(self.names):
            raise StateError(f"{told(state)} is no state; it holds {', '.join(self.names)}")
        count = state["count"]
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MAX_COUNT:
            raise StateError(f"count is {told(count)}; a whole number from 1 to 2^53 is needed")
        self.count = count


def number_of(state: Mapping[str, Any], name: str, *, largest: float = LARGEST) -> float:
    """A number of a state."""
    value = state[name]
    if not is_finite(value) or abs(value) > largest:
        raise StateError(f"{name} is {told(value)}; a number up to {largest:g} is needed")
    return float(value)


def rows_by_code(rewards: Floats, codes: Integers, size: int) -> Iterator[Floats]:
    """The rewards with each code, one code after the other."""
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=size))
    yield from np.split(rewards[order], ends[:-1])
