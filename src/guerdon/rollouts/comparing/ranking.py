"""How two scorings order the same rollouts: pairs kept, flipped and tied, and Kendall's tau."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from guerdon.errors import InvalidArgumentError

__all__ = ["PairCounts", "count_pairs"]


@dataclass(frozen=True, slots=True)
class PairCounts:
    """What became of the pairs of a group, each counted once.

    Example:
        >>> count_pairs([0.1, 0.2, 0.3], [0.1, 0.3, 0.2])
        PairCounts(kept=2, flipped=1, ties_broken=0, ties_made=0, tied=0)

    Attributes:
        kept: One was better before, and is still.
        flipped: One was better before, and the other is now.
        ties_broken: They were equal before, and aren't now.
        ties_made: One was better before, and they are equal now.
        tied: They were equal, and are still.
    """

    kept: int = 0
    flipped: int = 0
    ties_broken: int = 0
    ties_made: int = 0
    tied: int = 0

    @property
    def pairs(self) -> int:
        """How many there are."""
        return self.kept + self.flipped + self.ties_broken + self.ties_made + self.tied

    @property
    def tau(self) -> float | None:
        """Kendall's τ_b, in [-1, 1]: 1 where the order is the same, -1 where it is turned around.

        With P pairs kept, Q flipped, X whose tie was broken and Y whose tie was made::

            τ_b = (P − Q) / √((P + Q + Y) (P + Q + X))

        None where all scores are equal before or after, so that there is no order. M. G. Kendall,
        "The Treatment of Ties in Ranking Problems", Biometrika 33 (1945).
        """
        strict = self.kept + self.flipped
        before, after = strict + self.ties_made, strict + self.ties_broken
        if not before or not after:
            return None
        return (self.kept - self.flipped) / math.sqrt(before * after)

    def __add__(self, other: PairCounts) -> PairCounts:
        return PairCounts(
            self.kept + other.kept,
            self.flipped + other.flipped,
            self.ties_broken + other.ties_broken,
            self.ties_made + other.ties_made,
            self.tied + other.tied,
        )


def count_pairs(before: Sequence[float], after: Sequence[float]) -> PairCounts:
    """Count what became of every pair of rollouts, in O(n log n).

    The flipped ones are the inversions that are left when the rollouts are sorted by their score
    before: W. R. Knight, "A Computer Method for Calculating Kendall's Tau with Ungrouped Data",
    Journal of the American Statistical Association 61 (1966).

    Example:
        >>> count_pairs([1.0, 1.0, 0.0], [0.5, 0.0, 0.5])
        PairCounts(kept=0, flipped=1, ties_broken=1, ties_made=1, tied=0)

    Args:
        before: The scores before, (n,), finite.
        after: The scores after, of the same rollouts.

    Raises:
        InvalidArgumentError: There aren't as many after as before.
    """
    if len(before) != len(after):
        raise InvalidArgumentError(
            f"there are {len(before)} scores before and {len(after)} after; each rollout has both"
        )
    together = sorted(zip(before, after, strict=True))
    pairs = _pairs(len(together))
    tied_before, tied_after = _ties(before), _ties(after)
    tied = _ties(together)
    flipped, _ = _inversions([score for _, score in together])
    return PairCounts(
        kept=pairs - tied_before - tied_after + tied - flipped,
        flipped=flipped,
        ties_broken=tied_before - tied,
        ties_made=tied_after - tied,
        tied=tied,
    )


def _pairs(count: int) -> int:
    return count * (count - 1) // 2


def _ties(values: Iterable[object]) -> int:
    return sum(map(_pairs, Counter(values).values()))


def _inversions(values: list[float]) -> tuple[int, list[float]]:
    """How many pairs stand the wrong way round, and the values sorted."""
    if len(values) < 2:
        return 0, values
    half = len(values) // 2
    in_left, left = _inversions(values[:half])
    in_right, right = _inversions(values[half:])
    across = sum(len(left) - bisect_right(left, value) for value in right)
    return in_left + in_right + across, sorted(left + right)
