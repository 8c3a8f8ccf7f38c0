"""`Movement`: how scores moved, over the rollouts that are valid before and after."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from guerdon.rollouts.scoring.summary import Mean

__all__ = ["Movement", "MovementTally", "quantile"]

# Which quantiles of the differences are told.
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(frozen=True, slots=True)
class Movement:
    """How scores moved, over the rollouts that are valid before and after.

    A difference is the score after less the score before. What is beyond every float is None.

    Attributes:
        rows: How many rollouts there are, valid or not.
        both: How many are valid in both; all that follows is of them.
        mean_before: The mean of their scores before; None where there are none.
        mean_after: The mean of their scores after.
        mean: The mean of the differences.
        rose: How many have a higher score after.
        fell: How many have a lower one.
        quantiles: Quantiles of the differences, by their share in [0, 1]; empty where they aren't
            told.
    """

    rows: int
    both: int
    mean_before: float | None
    mean_after: float | None
    mean: float | None
    rose: int
    fell: int
    quantiles: dict[float, float | None]

    @property
    def unmoved(self) -> int:
        """How many have the same score."""
        return self.both - self.rose - self.fell

    def to_dict(self) -> dict[str, Any]:
        """The movement as JSON can hold it."""
        told: dict[str, Any] = {
            "rows": self.rows,
            "valid_in_both": self.both,
            "mean_before": self.mean_before,
            "mean_after": self.mean_after,
            "mean_difference": self.mean,
            "rose": self.rose,
            "fell": self.fell,
            "unmoved": self.unmoved,
        }
        if self.quantiles:
            told["quantiles"] = {f"{share:g}": value for share, value in self.quantiles.items()}
        return told


@dataclass(slots=True)
class MovementTally:
    """Collects scores of the same rollouts, before and after.

    Attributes:
        keeps: Whether the differences are kept, 8 bytes each, for their quantiles.
    """

    keeps: bool = False
    _rows: int = 0
    _before: Mean = field(default_factory=Mean)
    _after: Mean = field(default_factory=Mean)
    _difference: Mean = field(default_factory=Mean)
    _rose: int = 0
    _fell: int = 0
    _kept: array[float] = field(default_factory=lambda: array("d"))

    def add(self, scores: tuple[float, float] | None) -> None:
        """Count a rollout: its scores before and after; None where it isn't valid in both."""
        self._rows += 1
        if scores is None:
            return
        before, after = scores
        difference = after - before
        both = (self._before, before), (self._after, after), (self._difference, difference)
        for mean, value in both:
            mean.total += value
            mean.count += 1
        self._rose += difference > 0.0
        self._fell += difference < 0.0
        if self.keeps:
            self._kept.append(difference)

    def result(self) -> Movement:
        """The movement so far."""
        ordered = sorted(self._kept)
        return Movement(
            self._rows,
            self._difference.count,
            self._before.value,
            self._after.value,
            self._difference.value,
            self._rose,
            self._fell,
            {share: quantile(ordered, share) for share in QUANTILES} if ordered else {},
        )


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """A quantile of sorted values, between two of them on the line that joins them.

    Type 7 of R. J. Hyndman and Y. Fan, "Sample Quantiles in Statistical Packages", The American
    Statistician 50 (1996).

    Example:
        >>> quantile([0.0, 1.0, 5.0], 0.5), quantile([0.0, 1.0, 5.0], 0.75)
        (1.0, 3.0)

    Args:
        ordered: At least one value, from the lowest to the highest.
        share: In [0, 1].

    Returns:
        The quantile; None where it is beyond every float.
    """
    place = share * (len(ordered) - 1)
    low = ordered[math.floor(place)]
    part = place - math.floor(place)
    found = low if part == 0.0 else low + part * (ordered[math.ceil(place)] - low)
    return found if math.isfinite(found) else None
