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
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, Union

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic_core import CoreSchema, core_schema

from guerdon._problems import Problem, problems_of, validation_error
from guerdon._validation import did_you_mean, is_finite, shown
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

MAX_POINTS = 10_000
MAX_POSITION = 2**53  # integers up to here are floats without loss


def _check_finite(value: Any) -> Any:
    if not is_finite(value):
        raise ValueError(f"must be a finite number, got {shown(value)}")
    return value


def _check_order(points: tuple[Point, ...]) -> tuple[Point, ...]:
    problems = [
        Problem((number, 0), f"positions must increase, got {at:.17g} after {before:.17g}")
        for number, ((before, _), (at, _)) in enumerate(pairwise(points), start=1)
        if at <= before
    ]
    if problems:
        raise validation_error("points", problems, points)
    return points


def _check_signs(points: tuple[Point, ...]) -> tuple[Point, ...]:
    sign = math.copysign(1.0, points[0][1])
    problems = [
        Problem((number, 1), f"factors must be other than 0 and of one sign, got {factor:g}")
        for number, (_, factor) in enumerate(points)
        if factor * sign <= 0
    ]
    if problems:
        raise validation_error("points", problems, points)
    return points


Factor = Annotated[float, BeforeValidator(_check_finite)]
Position = Annotated[float, Field(ge=0, le=MAX_POSITION), BeforeValidator(_check_finite)]
Point = tuple[Position, Factor]
Points = Annotated[
    tuple[Point, ...],
    Field(min_length=2, max_length=MAX_POINTS),
    AfterValidator(_check_order),
]


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
    def _checked(cls, value: Any, by: Any) -> Any:
        """The value of the key `kind`, validated."""
        spec = {cls.kind: value, "by": by}
        try:
            return getattr(_SPECS[cls.kind].model_validate(spec), cls.kind)
        except ValidationError as error:
            message = "; ".join(map(str, problems_of(error, spec)))
            raise InvalidArgumentError(message) from error

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            _validated,
            serialization=core_schema.plain_serializer_function_ser_schema(cls.to_spec),
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: Any) -> dict[str, Any]:
        found: dict[str, Any] = handler(TypeAdapter(_SPEC).core_schema)
        return found


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
        object.__setattr__(self, "factor", self._checked(self.factor, self.by))

    def _factor(self, at: float) -> float:
        return self.factor

    def _value(self) -> float:
        return self.factor


@dataclass(frozen=True, slots=True)
class _PointSchedule(Schedule):
    """A schedule that goes through points."""

    points: tuple[Point, ...]

    def __init__(self, points: Sequence[Sequence[float]], *, by: By = "episode") -> None:
        object.__setattr__(self, "points", self._checked(points, by))
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
        return min(max(found, min(first, last)), max(first, last))  # rounding may exceed them

    @staticmethod
    @abstractmethod
    def _between(first: float, last: float, part: float) -> float:
        """The factor after a part, in (0, 1), of the way from one point to the next."""

    def _value(self) -> list[list[float]]:
        return [[int(at) if at.is_integer() else at, factor] for at, factor in self.points]


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
_VALUES: dict[str, Any] = dict.fromkeys(_KINDS, Points) | {
    "constant": Factor,
    "exponential": Annotated[Points, AfterValidator(_check_signs)],
}
_FIELDS: dict[str, dict[str, Any]] = {
    kind: {kind: (value, ...), "by": (By, "episode")} for kind, value in _VALUES.items()
}
_SPECS: dict[str, type[BaseModel]] = {
    kind: create_model(
        _KINDS[kind].__name__,
        __config__=ConfigDict(extra="forbid"),
        __doc__=_KINDS[kind].__doc__,
        **fields,
    )
    for kind, fields in _FIELDS.items()
}
# A spec in a file: a mapping, or short for one.
_SPEC: Any = Union[*_SPECS.values(), Points, Factor]


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
        guerdon.errors.RewardConfigError: [2][0]: positions must increase, got 5 after 9

    Args:
        spec: The spec, or a `Schedule`, which is returned unchanged.

    Raises:
        RewardConfigError: The spec is invalid. ``problems`` has a line for each mistake, which
            begins with its place in the spec.
    """
    try:
        return _SCHEDULE.validate_python(spec)
    except ValidationError as error:
        lines = list(map(str, problems_of(error, spec)))
        raise RewardConfigError("\n".join(lines), problems=lines) from None


def _validated(spec: Any) -> Schedule:
    if isinstance(spec, Schedule):
        return spec
    if isinstance(spec, list | tuple):
        spec = {PiecewiseLinearSchedule.kind: spec}
    elif is_finite(spec):
        spec = {ConstantSchedule.kind: spec}
    elif not isinstance(spec, Mapping):
        example = "{piecewise: [[0, 1.0], [1000, 0.0]]}"
        expected = f"a mapping such as {example}, a list of points, or a finite number"
        raise ValueError(f"a schedule must be {expected}, got {shown(spec)}")
    keys, kinds = (*_KINDS, "by"), [key for key in spec if key in _KINDS]
    problems = [
        Problem((str(key),), f"unknown kind of schedule; {did_you_mean(key, keys)}")
        for key in spec
        if key not in keys
    ]
    by = spec.get("by", "episode")
    if len(kinds) == 1:
        try:
            _SPECS[kinds[0]].model_validate({kinds[0]: spec[kinds[0]], "by": by})
        except ValidationError as error:
            problems += problems_of(error, spec)
    elif kinds or not problems:
        found = f"several: {', '.join(kinds)}" if kinds else f"none of {', '.join(_KINDS)}"
        problems.append(Problem((), f"a schedule must have one kind, got {found}"))
    if problems:
        raise validation_error("schedule", problems, spec)
    made: Schedule = _KINDS[kinds[0]](spec[kinds[0]], by=by)
    return made


_SCHEDULE: TypeAdapter[Schedule] = TypeAdapter(Schedule)
