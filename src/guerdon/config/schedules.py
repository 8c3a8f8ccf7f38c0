"""Schedules: factors that multiply weights as training goes on.

A schedule counts episodes, or the training steps that the trainer reports. Every kind but the
constant goes through points ``[position, factor]``; the kind determines how it gets from one to the
next. Before the first point and after the last, the factor is theirs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

from pydantic_core import CoreSchema, core_schema

from guerdon._validation import did_you_mean, is_finite, shown
from guerdon.config.problems import Place, Problem, validation_error
from guerdon.errors import InvalidArgumentError, RewardConfigError

__all__ = [
    "ConstantSchedule",
    "CosineSchedule",
    "ExponentialSchedule",
    "PiecewiseLinearSchedule",
    "Schedule",
    "StepSchedule",
    "parse_schedule",
]

By = Literal["episode", "training_step"]
BY: tuple[str, ...] = get_args(By)

Point = tuple[float, float]

MAX_POINTS = 10_000
MAX_POSITION = 2**53  # integers up to here are floats without loss


@dataclass(frozen=True, slots=True)
class Schedule(ABC):
    """A factor by the number of episodes or training steps so far.

    Schedules are immutable values, and compare by their content. As a field of a pydantic model, a
    schedule is read and written as in files.

    Example:
        >>> from guerdon.config import PiecewiseLinearSchedule
        >>> schedule = PiecewiseLinearSchedule([(1000, 1.0), (5000, 0.0)])
        >>> [schedule(0), schedule(1000), schedule(3000), schedule(9000)]
        [1.0, 1.0, 0.5, 0.0]

    Attributes:
        by: What it counts: ``episode``, or ``training_step``, which the trainer has to report.
        kind: Its key in files.
    """

    by: By = field(default="episode", kw_only=True)

    kind: ClassVar[str] = ""

    def __call__(self, at: float) -> float:
        """Return the factor.

        Args:
            at: The number of episodes or training steps so far, finite and at least 0.

        Raises:
            InvalidArgumentError: `at` is not such a number.
        """
        if not is_finite(at) or at < 0:
            raise InvalidArgumentError(f"`at` must be a finite number >= 0, got {shown(at)}")
        return self._factor(float(at))

    def to_spec(self) -> dict[str, Any]:
        """Return the schedule as files have it; `parse_schedule` makes an equal one again.

        Example:
            >>> ConstantSchedule(0.5).to_spec()
            {'constant': 0.5, 'by': 'episode'}
        """
        return {self.kind: self._value(), "by": self.by}

    @abstractmethod
    def _factor(self, at: float) -> float: ...

    @abstractmethod
    def _value(self) -> Any:
        """The value of the key `kind` in a file."""

    @classmethod
    def _problems(cls, value: Any, by: Any) -> list[Problem]:
        if isinstance(by, str) and by in BY:
            return []
        return [Problem(("by",), f"must be {' or '.join(map(repr, BY))}, got {shown(by)}")]

    @classmethod
    def _check(cls, value: Any, by: Any) -> None:
        problems = cls._problems(value, by)
        if problems:
            raise InvalidArgumentError("; ".join(map(str, problems)))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            _validated,
            serialization=core_schema.plain_serializer_function_ser_schema(cls.to_spec),
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: Any) -> dict[str, Any]:
        return _json_schema()


@dataclass(frozen=True, slots=True)
class ConstantSchedule(Schedule):
    """The same factor from start to end.

    In files: ``{constant: 0.5}``, or ``0.5``.

    Example:
        >>> from guerdon.config import ConstantSchedule
        >>> ConstantSchedule(0.5)(123_456)
        0.5

    Args:
        factor: A finite number.
        by: Without effect.

    Raises:
        InvalidArgumentError: The factor is not a finite number.
    """

    factor: float = 1.0

    kind: ClassVar[str] = "constant"

    def __post_init__(self) -> None:
        self._check(self.factor, self.by)
        object.__setattr__(self, "factor", float(self.factor))

    def _factor(self, at: float) -> float:
        return self.factor

    def _value(self) -> float:
        return self.factor

    @classmethod
    def _problems(cls, value: Any, by: Any) -> list[Problem]:
        return _factor_problems(value, (cls.kind,)) + Schedule._problems(value, by)


@dataclass(frozen=True, slots=True)
class _PointSchedule(Schedule):
    """A schedule that goes through points."""

    points: tuple[Point, ...]

    def __init__(self, points: Sequence[Sequence[float]], *, by: By = "episode") -> None:
        self._check(points, by)
        object.__setattr__(self, "points", tuple((float(at), float(to)) for at, to in points))
        object.__setattr__(self, "by", by)

    def _factor(self, at: float) -> float:
        after = bisect_right(self.points, at, key=lambda point: point[0])
        if after == 0:
            return self.points[0][1]
        start, first = self.points[after - 1]
        if after == len(self.points) or at == start:
            return first
        end, last = self.points[after]
        found = self._between(first, last, (at - start) / (end - start))
        return min(max(found, min(first, last)), max(first, last))  # rounding may lead outside

    @staticmethod
    @abstractmethod
    def _between(first: float, last: float, part: float) -> float:
        """The factor after a part, in (0, 1), of the way from one point to the next."""

    def _value(self) -> list[list[float]]:
        return [[int(at) if at.is_integer() else at, factor] for at, factor in self.points]

    @classmethod
    def _problems(cls, value: Any, by: Any) -> list[Problem]:
        return Schedule._problems(value, by) + cls._point_problems(value)

    @classmethod
    def _point_problems(cls, points: Any) -> list[Problem]:
        if not isinstance(points, Sequence) or isinstance(points, str | bytes):
            message = f"must be a list of points like [[0, 1.0], [1000, 0.0]], got {shown(points)}"
            return [Problem((cls.kind,), message)]
        if not 2 <= len(points) <= MAX_POINTS:
            message = f"must have from 2 to {MAX_POINTS:,} points, got {len(points)}"
            return [Problem((cls.kind,), message)]
        problems: list[Problem] = []
        before: float | None = None
        for number, point in enumerate(points):
            place = (cls.kind, number)
            if not isinstance(point, Sequence) or isinstance(point, str) or len(point) != 2:
                message = f"must be a point [position, factor], got {shown(point)}"
                problems.append(Problem(place, message))
                continue
            at, factor = point
            problems += _factor_problems(factor, (*place, 1))
            if not is_finite(at) or not 0 <= at <= MAX_POSITION:
                message = f"the position must be a number in [0, 2^53], got {shown(at)}"
                problems.append(Problem((*place, 0), message))
            else:
                if before is not None and at <= before:
                    message = f"positions must increase, got {shown(at)} after {shown(before)}"
                    problems.append(Problem((*place, 0), message))
                before = at
        return problems


class PiecewiseLinearSchedule(_PointSchedule):
    """Straight lines from point to point.

    With t from 0 to 1 on the way from one point to the next: f = (1 − t) a + t b. In files:
    ``{piecewise: [[0, 1.0], [1000, 1.0], [5000, 0.0]]}``, or just the list of points.

    Example:
        >>> from guerdon.config import PiecewiseLinearSchedule
        >>> warm_up = PiecewiseLinearSchedule([(0, 0.0), (100, 1.0)], by="training_step")
        >>> warm_up(25)
        0.25

    Args:
        points: From 2 to 10,000 pairs (position, factor): positions are at least 0 and increase;
            factors are finite.
        by: ``episode`` or ``training_step``.

    Raises:
        InvalidArgumentError: A point is invalid, or a position doesn't increase.
    """

    __slots__ = ()
    kind: ClassVar[str] = "piecewise"

    @staticmethod
    def _between(first: float, last: float, part: float) -> float:
        return (1 - part) * first + part * last


class CosineSchedule(_PointSchedule):
    """Half a cosine from point to point: it leaves each slowly, and arrives slowly.

    With t from 0 to 1 on the way: f = a + (b − a)(1 − cos πt) / 2, the annealing of SGDR
    (arXiv 1608.03983, equation 5). In files: ``{cosine: [[0, 1.0], [5000, 0.1]]}``.

    Example:
        >>> from guerdon.config import CosineSchedule
        >>> schedule = CosineSchedule([(0, 1.0), (1000, 0.0)])
        >>> [round(schedule(at), 3) for at in (0, 250, 500, 1000)]
        [1.0, 0.854, 0.5, 0.0]

    Args:
        points: See `PiecewiseLinearSchedule`.
        by: ``episode`` or ``training_step``.

    Raises:
        InvalidArgumentError: A point is invalid, or a position doesn't increase.
    """

    __slots__ = ()
    kind: ClassVar[str] = "cosine"

    @staticmethod
    def _between(first: float, last: float, part: float) -> float:
        share = (1 - math.cos(math.pi * part)) / 2
        return (1 - share) * first + share * last


class ExponentialSchedule(_PointSchedule):
    """The same ratio for every step on the way from point to point.

    With t from 0 to 1 on the way: f = a (b / a)^t. In files:
    ``{exponential: [[0, 1.0], [3000, 0.125]]}``, which has a half-life of 1,000.

    Example:
        >>> from guerdon.config import ExponentialSchedule
        >>> schedule = ExponentialSchedule([(0, 1.0), (3000, 0.125)])
        >>> [round(schedule(at), 6) for at in (0, 1000, 2000, 3000)]
        [1.0, 0.5, 0.25, 0.125]

    Args:
        points: See `PiecewiseLinearSchedule`; no factor is 0, and all have one sign.
        by: ``episode`` or ``training_step``.

    Raises:
        InvalidArgumentError: A point is invalid, or a position doesn't increase.
    """

    __slots__ = ()
    kind: ClassVar[str] = "exponential"

    @staticmethod
    def _between(first: float, last: float, part: float) -> float:
        logarithm = (1 - part) * math.log(abs(first)) + part * math.log(abs(last))
        return math.copysign(math.exp(min(logarithm, 709.78)), first)

    @classmethod
    def _point_problems(cls, points: Any) -> list[Problem]:
        problems = super()._point_problems(points)
        if problems:
            return problems
        is_positive = points[0][1] > 0
        return [
            Problem(
                (cls.kind, number, 1),
                f"the factors of an exponential schedule must be other than 0 and of one sign, got "
                f"{factor:g}",
            )
            for number, (_, factor) in enumerate(points)
            if factor == 0 or (factor > 0) != is_positive
        ]


class StepSchedule(_PointSchedule):
    """Steps: the factor of a point lasts until the next point.

    In files: ``{step: [[0, 1.0], [1000, 0.5], [5000, 0.0]]}``.

    Example:
        >>> from guerdon.config import StepSchedule
        >>> schedule = StepSchedule([(0, 1.0), (1000, 0.5)])
        >>> [schedule(999), schedule(1000)]
        [1.0, 0.5]

    Args:
        points: See `PiecewiseLinearSchedule`.
        by: ``episode`` or ``training_step``.

    Raises:
        InvalidArgumentError: A point is invalid, or a position doesn't increase.
    """

    __slots__ = ()
    kind: ClassVar[str] = "step"

    @staticmethod
    def _between(first: float, last: float, part: float) -> float:
        return first


def _factor_problems(factor: object, place: Place) -> list[Problem]:
    if is_finite(factor):
        return []
    return [Problem(place, f"the factor must be a finite number, got {shown(factor)}")]


# As files write them -------------------------------------------------------------------------

_KINDS: dict[str, Any] = {
    kind.kind: kind
    for kind in (
        ConstantSchedule,
        PiecewiseLinearSchedule,
        CosineSchedule,
        ExponentialSchedule,
        StepSchedule,
    )
}


def parse_schedule(spec: Any) -> Schedule:
    """Return the schedule of a spec.

    A spec is a mapping with one kind, ``constant``, ``piecewise``, ``cosine``, ``exponential`` or
    ``step``, and optionally ``by``: ``episode`` (the default) or ``training_step``. A number is
    short for a constant, and a list of points for a piecewise schedule.

    Example:
        >>> from guerdon.config import parse_schedule
        >>> parse_schedule({"piecewise": [[0, 1.0], [1000, 0.0]], "by": "training_step"})(250)
        0.75
        >>> parse_schedule([[0, 1], [9, 0.5], [5, 0]])
        Traceback (most recent call last):
        guerdon.errors.RewardConfigError: piecewise[2][0]: positions must increase, got 5 after 9

    Args:
        spec: The spec, or a `Schedule`, which is returned unchanged.

    Raises:
        RewardConfigError: The spec is invalid. ``problems`` has a line for each mistake, which
            begins with its place in the spec.
    """
    found = _parsed(spec)
    if isinstance(found, Schedule):
        return found
    lines = list(map(str, found))
    raise RewardConfigError("\n".join(lines), problems=lines)


def _parsed(spec: Any) -> Schedule | list[Problem]:
    if isinstance(spec, Schedule):
        return spec
    if isinstance(spec, list | tuple):
        spec = {PiecewiseLinearSchedule.kind: spec}
    elif is_finite(spec):
        spec = {ConstantSchedule.kind: spec}
    elif not isinstance(spec, Mapping):
        example = "{piecewise: [[0, 1.0], [1000, 0.0]]}"
        expected = f"a mapping such as {example}, a list of points, or a finite number"
        return [Problem((), f"a schedule must be {expected}, got {shown(spec)}")]
    keys = (*_KINDS, "by")
    kinds = [key for key in spec if key in _KINDS]
    problems = [
        Problem((str(key),), f"unknown kind of schedule; {did_you_mean(key, keys)}")
        for key in spec
        if key not in keys
    ]
    if len(kinds) != 1 and not (problems and not kinds):
        expected = ", ".join(map(repr, kinds or _KINDS))
        number = "has several" if kinds else "has none of"
        problems.append(Problem((), f"a schedule must have one kind, but it {number}: {expected}"))
    by = spec.get("by", BY[0])
    problems += dict.fromkeys(
        each for key in kinds for each in _KINDS[key]._problems(spec[key], by)
    )
    return problems or _KINDS[kinds[0]](spec[kinds[0]], by=by)


def _validated(spec: Any) -> Schedule:
    found = _parsed(spec)
    if isinstance(found, Schedule):
        return found
    raise validation_error("schedule", found, spec)


def _json_schema() -> dict[str, Any]:
    point = {
        "type": "array",
        "prefixItems": [
            {"type": "number", "minimum": 0, "maximum": MAX_POSITION},
            {"type": "number"},
        ],
        "minItems": 2,
        "maxItems": 2,
    }
    points = {
        "description": "Points [position, factor] of increasing positions.",
        "type": "array",
        "minItems": 2,
        "maxItems": MAX_POINTS,
        "items": point,
    }
    number = {"type": "number"}
    by = {"enum": list(BY), "default": BY[0], "description": "What the positions count."}
    mappings = [
        {
            "type": "object",
            "properties": {key: number if kind is ConstantSchedule else points, "by": by},
            "required": [key],
            "additionalProperties": False,
        }
        for key, kind in _KINDS.items()
    ]
    return {
        "title": "Schedule",
        "description": "A factor that multiplies the weight as training goes on.",
        "anyOf": [*mappings, points, number],
    }
