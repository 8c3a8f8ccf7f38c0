"""Schedules as files write them: ``{piecewise: [[0, 1.0], [1000, 1.0], [5000, 0.0]]}``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from guerdon.config.documents import Document, Problem, near
from guerdon.config.schedules.schedules import (
    BY,
    MAX_POINTS,
    MAX_POSITION,
    ConstantSchedule,
    CosineSchedule,
    ExponentialSchedule,
    PiecewiseLinearSchedule,
    Schedule,
    StepSchedule,
    problems_of_by,
    problems_of_factor,
)
from guerdon.config.schedules.validation import validation_error
from guerdon.config.schedules.values import is_finite, told

__all__ = ["ScheduleSpec", "schedule_of", "spec_of"]

_THROUGH_POINTS = {
    kind.kind: kind
    for kind in (PiecewiseLinearSchedule, CosineSchedule, ExponentialSchedule, StepSchedule)
}
_KINDS = (ConstantSchedule.kind, *_THROUGH_POINTS)


def schedule_of(spec: Any) -> Schedule:
    """The schedule that a spec says.

    A spec is a mapping with one kind, ``constant``, ``piecewise``, ``cosine``, ``exponential`` or
    ``step``, and perhaps ``by``: ``episode`` (where it isn't said) or ``training_step``. In short,
    a number is a constant and a list of points is piecewise.

    Example:
        >>> from guerdon.config import schedule_of
        >>> schedule_of({"piecewise": [[0, 1.0], [1000, 0.0]], "by": "training_step"})(250)
        0.75

    Args:
        spec: The spec; a `Schedule` is given back as it is.

    Raises:
        RewardConfigError: The spec is invalid; `problems` lists each problem with its location.
    """
    found = read_schedule(spec)
    if isinstance(found, Schedule):
        return found
    raise Document(spec).error(found)


def spec_of(schedule: Schedule) -> dict[str, Any]:
    """The spec of a schedule, in full: `schedule_of` makes it an equal one again.

    Example:
        >>> from guerdon.config import schedule_of, spec_of
        >>> spec_of(schedule_of(0.5))
        {'constant': 0.5, 'by': 'episode'}

    Args:
        schedule: Any of this library's kinds.
    """
    return {schedule.kind: schedule.value(), "by": schedule.by}


def read_schedule(spec: Any) -> Schedule | list[Problem]:
    """The schedule that a spec says, or what is wrong with it."""
    if isinstance(spec, Schedule):
        return spec
    if isinstance(spec, list | tuple):
        spec = {PiecewiseLinearSchedule.kind: spec}
    elif is_finite(spec):
        spec = {ConstantSchedule.kind: spec}
    elif not isinstance(spec, Mapping):
        example = "{piecewise: [[0, 1.0], [1000, 0.0]]}"
        said = f"it takes a mapping such as {example}, a list of points, or a finite number"
        return [Problem((), f"{told(spec)} is no schedule; {said}")]
    kinds = [key for key in spec if key in _KINDS]
    problems = [_unknown(key) for key in spec if key not in (*_KINDS, "by")]
    if len(kinds) > 1:
        problems.append(Problem((), f"it has several kinds, {_among(kinds)}; a schedule has one"))
    elif not kinds and not problems:
        problems.append(Problem((), f"it has no kind; a schedule has one of {_among(_KINDS)}"))
    by = spec.get("by", BY[0])
    problems += problems_of_by(by)
    for kind in kinds:
        if kind == ConstantSchedule.kind:
            problems += problems_of_factor(spec[kind], (kind,))
        else:
            problems += _THROUGH_POINTS[kind].problems_of_points(spec[kind])
    return problems or _made(kinds[0], spec[kinds[0]], by=by)


def _made(kind: str, value: Any, *, by: Any) -> Schedule:
    if kind == ConstantSchedule.kind:
        return ConstantSchedule(value, by=by)
    return _THROUGH_POINTS[kind](value, by=by)


def _unknown(key: object) -> Problem:
    name = key if isinstance(key, str) else told(key)
    said = f"there is no kind of schedule {told(key)}; {near(name, (*_KINDS, 'by'))}"
    return Problem((name,), said)


def _among(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


class _AsInFiles:
    """What pydantic does with a field that is a schedule: mistakes keep their places."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            _validated, serialization=core_schema.plain_serializer_function_ser_schema(spec_of)
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return _json_schema()


#: A field of a pydantic model that holds a `Schedule` and is read and written as in files.
ScheduleSpec = Annotated[Schedule, _AsInFiles]


def _validated(spec: Any) -> Schedule:
    found = read_schedule(spec)
    if isinstance(found, Schedule):
        return found
    raise validation_error("schedule", found, given=spec)


def _json_schema() -> JsonSchemaValue:
    points = {
        "description": "Points [position, factor]; positions rise.",
        "type": "array",
        "minItems": 2,
        "maxItems": MAX_POINTS,
        "items": {
            "type": "array",
            "prefixItems": [
                {"type": "number", "minimum": 0, "maximum": MAX_POSITION},
                {"type": "number"},
            ],
            "minItems": 2,
            "maxItems": 2,
        },
    }
    by = {"enum": list(BY), "default": BY[0], "description": "What the positions count."}
    written = [
        {
            "type": "object",
            "properties": {
                kind: points if kind in _THROUGH_POINTS else {"type": "number"},
                "by": by,
            },
            "required": [kind],
            "additionalProperties": False,
        }
        for kind in _KINDS
    ]
    return {
        "title": "Schedule",
        "description": "A factor that multiplies the weight as training goes on.",
        "anyOf": [*written, points, {"type": "number"}],
    }
