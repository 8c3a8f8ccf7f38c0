"""Schedules: a factor that moves as training goes on.

A schedule multiplies the weight of a component. It counts episodes or the training steps that the
trainer reports. Every kind but the constant goes through points ``[position, factor]``; the kind
says how it gets from one to the next. Before the first point and after the last, it holds theirs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

from guerdon.config.documents import Document, Place, Problem
from guerdon.config.schedules.values import is_finite, told
from guerdon.errors import InvalidArgumentError

__all__ = [
    "ConstantSchedule", "CosineSchedule", "ExponentialSchedule", "PiecewiseLinearSchedule",
    "Schedule", "StepSchedule",
]  # fmt: skip

By = Literal["episode", "training_step"]
BY: tuple[str, ...] = get_args(By)

Point = tuple[float, float]

MAX_POINTS = 10_000
MAX_POSITION = 2**53  # whole numbers up to here are floats without loss


def problems_of_by(by: object) -> list[Problem]:
    """What is wrong with what a schedule counts by."""
    if isinstance(by, str) and by in BY:
        return []
    return [Problem(("by",), f"{told(by)} can't be counted by; it must be {' or '.join(BY)}")]


def problems_of_factor(factor: object, place: Place) -> list[Problem]:
    """What is wrong with a factor."""
    if is_finite(factor):
        return []
    return [Problem(place, f"the factor is {told(factor)}; a finite number is needed")]


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise InvalidArgumentError("; ".join(map(Document(None).told, problems)))


@dataclass(frozen=True, slots=True)
class Schedule(ABC):
    """A factor by the number of episodes or training steps so far.

    Schedules are values: they can't be changed, compare by what they hold, and can be pickled.

    Example:
        >>> from guerdon.config import PiecewiseLinearSchedule
        >>> schedule = PiecewiseLinearSchedule([(1000, 1.0), (5000, 0.0)])
        >>> [schedule(0), schedule(1000), schedule(3000), schedule(9000)]
        [1.0, 1.0, 0.5, 0.0]

    Attributes:
        by: What it counts: ``episode``, which needs nobody to report anything, or
            ``training_step``, as the trainer reports it.
        kind: Its name in files.
    """

    by: By = field(default="episode", kw_only=True)

    kind: ClassVar[str] = ""

    def __post_init__(self) -> None:
        _refuse(problems_of_by(self.by))

    def __call__(self, at: float) -> float:
        """The factor.

        Args:
            at: How many episodes or training steps there were: a finite number from 0.

        Raises:
            InvalidArgumentError: It is none.
        """
        if not is_finite(at) or at < 0:
            raise InvalidArgumentError(
                f"a schedule was asked for its factor at {told(at)}; a number from 0 is needed"
            )
        return self._factor(float(at))

    @abstractmethod
    def _factor(self, at: float) -> float: ...

    @abstractmethod
    def value(self) -> Any:
        """What stands behind its kind in a file."""


@dataclass(frozen=True, slots=True)
class ConstantSchedule(Schedule):
    """The same factor from start to end.

    In files: ``{constant: 0.5}``, or just ``0.5``.

    Example:
        >>> from guerdon.config import ConstantSchedule
        >>> ConstantSchedule(0.5)(123_456)
        0.5

    Args:
        factor: A finite number.
        by: Of no consequence here.

    Raises:
        InvalidArgumentError: The factor is no finite number.
    """

    factor: float = 1.0

    kind: ClassVar[str] = "constant"

    def __post_init__(self) -> None:
        _refuse(problems_of_factor(self.factor, ("constant",)) + problems_of_by(self.by))
        object.__setattr__(self, "factor", float(self.factor))

    def _factor(self, at: float) -> float:
        return self.factor

    def value(self) -> Any:
        """Its factor."""
        return self.factor


@dataclass(frozen=True, slots=True)
class _ThroughPoints(Schedule):
    points: tuple[Point, ...]

    def __init__(self, points: Sequence[Sequence[float]], *, by: By = "episode") -> None:
        _refuse(self.problems_of_points(points) + problems_of_by(by))
        object.__setattr__(self, "points", tuple((float(at), float(to)) for at, to in points))
        object.__setattr__(self, "by", by)

    def _factor(self, at: float) -> float:
        after = bisect_right(self.points, at, key=lambda point: point[0])
        if after == 0:
            return self.points[0][1]
        (start, first), (end, last) = self.points[after - 1], self.points[after % len(self.points)]
        if after == len(self.points) or at == start:
            return first
        found = self._between(first, last, (at - start) / (end - start))
        return min(max(found, min(first, last)), max(first, last))  # rounding leads outside

    @staticmethod
    @abstractmethod
    def _between(first: float, last: float, part: float) -> float:
        """The factor where a part, in (0, 1), of the way from one point to the next is done."""

    def value(self) -> Any:
        """Its points, as lists."""
        return [[int(at) if at.is_integer() else at, factor] for at, factor in self.points]

    @classmethod
    def problems_of_points(cls, points: Any) -> list[Problem]:
        """What is wrong with points, each with its place in a spec."""
        where: Place = (cls.kind,)
        if not isinstance(points, Sequence) or isinstance(points, str | bytes):
            said = f"{told(points)} is no list of points; points are like [[0, 1.0], [1000, 0.0]]"
            return [Problem(where, said)]
        if not 2 <= len(points) <= MAX_POINTS:
            said = f"{len(points)} points were given; it takes from 2 to {MAX_POINTS:,}"
            said += ", and {constant: …} one factor" if len(points) == 1 else ""
            return [Problem(where, said)]
        problems: list[Problem] = []
        before: float | None = None
        for number, point in enumerate(points):
            here = (*where, number)
            if not isinstance(point, Sequence) or isinstance(point, str) or len(point) != 2:
                said = f"{told(point)} is no point; a point is [position, factor]"
                problems.append(Problem(here, said))
                continue
            at, factor = point
            problems += problems_of_factor(factor, (*here, 1))
            if not is_finite(at) or not 0 <= at <= MAX_POSITION:
                said = f"the position is {told(at)}; a number of {'/'.join(BY)}s from 0 to 2^53 is "
                said += "needed"
                problems.append(Problem((*here, 0), said))
                continue
            if before is not None and at <= before:
                said = f"the position {told(at)} comes after {told(before)}; they must rise"
                problems.append(Problem((*here, 0), said))
            before = at
        return problems


class PiecewiseLinearSchedule(_ThroughPoints):
    """Straight lines from point to point.

    With t from 0 to 1 on the way from one point to the next: f = (1 − t) a + t b. In files:
    ``{piecewise: [[0, 1.0], [1000, 1.0], [5000, 0.0]]}``, or just the list of points.

    Example:
        >>> from guerdon.config import PiecewiseLinearSchedule
        >>> warm_up = PiecewiseLinearSchedule([(0, 0.0), (100, 1.0)], by="training_step")
        >>> warm_up(25)
        0.25

    Args:
        points: From 2 to 10,000 pairs (position, factor): positions rise, from 0; factors are
            finite.
        by: ``episode`` or ``training_step``.

    Raises:
        InvalidArgumentError: A point can't be one, or a position doesn't rise.
    """

    __slots__ = ()
    kind: ClassVar[str] = "piecewise"

    @staticmethod
    def _between(first: float, last: float, part: float) -> float:
        return (1 - part) * first + part * last


class CosineSchedule(_ThroughPoints):
    """Half a cosine from point to point: it leaves each slowly and comes to the next slowly.

    With t from 0 to 1 on the way: f = a + (b − a)(1 − cos πt) / 2, the annealing of SGDR
    (arXiv 1608.03983, equation 5). In files: ``{cosine: [[0, 1.0], [5000, 0.1]]}``.

    Example:
        >>> from guerdon.config import CosineSchedule
        >>> schedule = CosineSchedule([(0, 1.0), (1000, 0.0)])
        >>> [round(schedule(at), 3) for at in (0, 250, 500, 1000)]
        [1.0, 0.854, 0.5, 0.0]

    Args:
        points: As those of `PiecewiseLinearSchedule`.
        by: ``episode`` or ``training_step``.

    Raises:
        InvalidArgumentError: A point can't be one, or a position doesn't rise.
    """

    __slots__ = ()
    kind: ClassVar[str] = "cosine"

    @staticmethod
    def _between(first: float, last: float, part: float) -> float:
        share = (1 - math.cos(math.pi * part)) / 2
        return (1 - share) * first + share * last


class ExponentialSchedule(_ThroughPoints):
    """The same ratio for every step on the way from point to point.

    With t from 0 to 1 on the way: f = a (b / a)^t. In files:
    ``{exponential: [[0, 1.0], [3000, 0.125]]}``, which is a half-life of 1,000.

    Example:
        >>> from guerdon.config import ExponentialSchedule
        >>> schedule = ExponentialSchedule([(0, 1.0), (3000, 0.125)])
        >>> [round(schedule(at), 6) for at in (0, 1000, 2000, 3000)]
        [1.0, 0.5, 0.25, 0.125]

    Args:
        points: As those of `PiecewiseLinearSchedule`; no factor is 0, and all are of one sign.
        by: ``episode`` or ``training_step``.

    Raises:
        InvalidArgumentError: A point can't be one, or a position doesn't rise.
    """

    __slots__ = ()
    kind: ClassVar[str] = "exponential"

    @staticmethod
    def _between(first: float, last: float, part: float) -> float:
        logarithm = (1 - part) * math.log(abs(first)) + part * math.log(abs(last))
        return math.copysign(math.exp(min(logarithm, 709.78)), first)

    @classmethod
    def problems_of_points(cls, points: Any) -> list[Problem]:
        """What is wrong with points; factors that have no common ratio are, too."""
        problems = super().problems_of_points(points)
        if problems:
            return problems
        first = points[0][1]
        said = "an exponential takes factors other than 0, all of one sign, such as 0.001"
        return [
            Problem((cls.kind, number, 1), f"the factor is {factor:g}; {said}")
            for number, (_, factor) in enumerate(points)
            if factor == 0 or (factor > 0) != (first > 0 or first == 0)
        ]


class StepSchedule(_ThroughPoints):
    """A stair: the factor of a point holds until the next.

    In files: ``{step: [[0, 1.0], [1000, 0.5], [5000, 0.0]]}``.

    Example:
        >>> from guerdon.config import StepSchedule
        >>> schedule = StepSchedule([(0, 1.0), (1000, 0.5)])
        >>> [schedule(999), schedule(1000)]
        [1.0, 0.5]

    Args:
        points: As those of `PiecewiseLinearSchedule`.
        by: ``episode`` or ``training_step``.

    Raises:
        InvalidArgumentError: A point can't be one, or a position doesn't rise.
    """

    __slots__ = ()
    kind: ClassVar[str] = "step"

    @staticmethod
    def _between(first: float, last: float, part: float) -> float:
        return first
