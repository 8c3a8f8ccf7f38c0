import json
import math
import pickle

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, ValidationError

from guerdon.config.schedules import (
    ConstantSchedule,
    CosineSchedule,
    ExponentialSchedule,
    PiecewiseLinearSchedule,
    Schedule,
    StepSchedule,
    parse_schedule,
)
from guerdon.errors import InvalidArgumentError, RewardConfigError

THROUGH_POINTS = [PiecewiseLinearSchedule, CosineSchedule, ExponentialSchedule, StepSchedule]


@pytest.mark.parametrize(
    ("spec", "at", "factor"),
    [
        (0.5, 0, 0.5),
        ({"constant": -2}, 1e9, -2.0),
        ({"piecewise": [[0, 1.0], [1000, 1.0], [5000, 0.0]]}, 0, 1.0),
        ({"piecewise": [[0, 1.0], [1000, 1.0], [5000, 0.0]]}, 999, 1.0),
        ({"piecewise": [[0, 1.0], [1000, 1.0], [5000, 0.0]]}, 2000, 0.75),
        ({"piecewise": [[0, 1.0], [1000, 1.0], [5000, 0.0]]}, 5000, 0.0),
        ({"piecewise": [[0, 1.0], [1000, 1.0], [5000, 0.0]]}, 10**12, 0.0),
        ([[10, 4], [20, 8]], 0, 4.0),
        ([[10, 4], [20, 8]], 15, 6.0),
        ({"cosine": [[0, 1.0], [100, 0.0]]}, 25, (2 + math.sqrt(2)) / 4),
        ({"cosine": [[0, 1.0], [100, 0.0]]}, 50, 0.5),
        ({"cosine": [[0, 1.0], [100, 0.0], [200, 1.0]]}, 175, (2 + math.sqrt(2)) / 4),
        ({"exponential": [[0, 16], [4, 1]]}, 1, 8.0),
        ({"exponential": [[0, -16], [4, -1]]}, 3, -2.0),
        ({"step": [[0, 1.0], [10, 0.5], [20, 0.0]]}, 9.5, 1.0),
        ({"step": [[0, 1.0], [10, 0.5], [20, 0.0]]}, 10, 0.5),
        ({"step": [[0, 1.0], [10, 0.5], [20, 0.0]]}, 25, 0.0),
    ],
)
def test_schedule_factors_match_values_computed_by_hand(spec, at, factor):
    assert parse_schedule(spec)(at) == pytest.approx(factor, abs=1e-12)


@st.composite
def points(draw, factors):
    positions = draw(st.lists(st.integers(0, 2**53), min_size=2, max_size=9, unique=True))
    return [(at, draw(factors)) for at in sorted(positions)]


POSITIVE = points(st.floats(1e-300, 1e300))


@pytest.mark.parametrize("kind", THROUGH_POINTS)
@given(points=POSITIVE, at=st.integers(0, 2**54))
def test_schedule_passes_its_points_and_stays_between_neighbours(kind, points, at):
    schedule = kind(points)
    for position, factor in points:
        assert schedule(position) == factor
    before = [factor for position, factor in points if position <= at][-1:] or [points[0][1]]
    after = [factor for position, factor in points if position >= at][:1] or [points[-1][1]]
    assert min(before + after) <= schedule(at) <= max(before + after)


@pytest.mark.parametrize("kind", THROUGH_POINTS)
def test_schedule_is_exact_between_equal_factors(kind):
    schedule = kind([(0, 0.1), (1000, 0.1)])
    assert {schedule(at) for at in range(1001)} == {0.1}


@pytest.mark.parametrize("kind", THROUGH_POINTS)
@given(points=POSITIVE, by=st.sampled_from(["episode", "training_step"]))
def test_parse_schedule_reverses_to_spec(kind, points, by):
    schedule = kind(points, by=by)
    assert parse_schedule(json.loads(json.dumps(schedule.to_spec()))) == schedule
    assert pickle.loads(pickle.dumps(schedule)) == schedule


@given(points(st.floats(allow_nan=False, allow_infinity=False)), st.floats(0, 1e17))
def test_schedule_factors_are_finite(points, at):
    for kind in (PiecewiseLinearSchedule, CosineSchedule, StepSchedule):
        assert math.isfinite(kind(points)(at))


def test_schedules_of_different_kinds_differ():
    made = [kind([(0, 1.0), (9, 2.0)]) for kind in THROUGH_POINTS]
    assert len({*made, ConstantSchedule(1.0)}) == 5
    assert parse_schedule({"constant": 1, "by": "training_step"}).by == "training_step"
    assert parse_schedule(1).by == "episode"
    assert parse_schedule(1) != parse_schedule({"constant": 1, "by": "training_step"})


def test_schedule_is_immutable():
    with pytest.raises(AttributeError):
        ConstantSchedule(1.0).factor = 2.0
    with pytest.raises(AttributeError):
        StepSchedule([(0, 1.0), (1, 2.0)]).by = "training_step"


def test_parse_schedule_returns_a_schedule_unchanged():
    schedule = CosineSchedule([(0, 1.0), (1, 2.0)])
    assert parse_schedule(schedule) is schedule


def test_to_spec_writes_whole_positions_as_integers():
    assert json.dumps(parse_schedule([[0, 1], [1e3, 0]]).to_spec()) == (
        '{"piecewise": [[0, 1.0], [1000, 0.0]], "by": "episode"}'
    )


@pytest.mark.parametrize("at", [-1, math.nan, math.inf, "3", None, True, 10**400])
def test_schedule_refuses_an_invalid_position(at):
    with pytest.raises(InvalidArgumentError, match="`at` must be a finite number >= 0"):
        parse_schedule(1.0)(at)


def test_parse_schedule_accepts_numpy_numbers():
    assert parse_schedule([[np.int64(0), np.float32(1)], [10, 0]])(np.int64(5)) == 0.5


REFUSED = {
    "backwards": ([[0, 1], [9, 1], [5, 0]], r"^\[2\]\[0\]: positions .* got 5 after 9"),
    "repeated": ([[0, 1], [9, 1], [9, 0]], r"^\[2\]\[0\]: positions must increase"),
    "negative": ([[-1, 1], [9, 1]], r"^\[0\]\[0\]: .* greater than or equal to 0, got -1"),
    "nan": ({"step": [[0, 1], [9, math.nan]]}, r"step\[1\]\[1\]: .* finite number, got nan"),
    "nan position": ([[math.nan, 1], [9, 1]], r"^\[0\]\[0\]: must be a finite number, got nan"),
    "infinite": ([[0, 1], [9, math.inf]], r"^\[1\]\[1\]: must be a finite number"),
    "too large a number": ([[0, 1], [9, 10**400]], r"^\[1\]\[1\]: must be a finite number"),
    "constant nan": ({"constant": math.nan}, "constant: .* a finite number, got nan"),
    "bool": ({"constant": True}, "constant: must be a finite number, got True"),
    "text": ({"constant": "1"}, "must be a finite number, got '1'"),
    "empty": ({"piecewise": []}, "must have at least 2 items, got 0"),
    "one point": ([[0, 1.0]], "must have at least 2 items, got 1"),
    "too many": ([[n, 1] for n in range(10_001)], "must have at most 10000 items, got 10001"),
    "no points": ({"cosine": 3}, "cosine: must be a list, got 3"),
    "no pair": ([0, 1.0], r"^\[0\]: must be a list, got 0"),
    "three numbers": ([[0, 1, 2], [1, 2, 3]], r"^\[0\]: must have at most 2 items, got 3"),
    "mapping for points": ({"piecewise": {0: 1.0}}, "must be a list, got a mapping"),
    "unknown kind": ({"picewise": [[0, 1], [1, 0]]}, "did you mean 'piecewise'"),
    "foreign kind": ({"zzz": 1}, "known: 'by', 'constant', 'cosine'"),
    "unknown by": ({"constant": 1, "by": "steps"}, 'got "steps"'),
    "by that can't be hashed": ({"constant": 1, "by": []}, "by: must be .*, got a list"),
    "no kind": ({}, "must have one kind, got none of constant"),
    "by alone": ({"by": "episode"}, "must have one kind, got none of constant"),
    "two kinds": ({"constant": 1, "step": [[0, 1], [1, 0]]}, "got several: constant, step"),
    "none": (None, "a schedule must be a mapping such as"),
    "word": ("cosine", "got 'cosine'"),
    "bare bool": (False, "got False"),
    "zero of an exponential": ({"exponential": [[0, 1], [9, 0]]}, r"other than 0 .* got 0"),
    "signs of an exponential": ({"exponential": [[0, 1], [9, -1]]}, r"of one sign, got -1"),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "message"), REFUSED.values(), ids=REFUSED)
def test_parse_schedule_refuses_invalid_specs(spec, message):
    with pytest.raises(RewardConfigError, match=message):
        parse_schedule(spec)


def test_parse_schedule_reports_every_mistake_with_its_place():
    spec = {"piecewise": [[0, 1], [-3, math.nan], 7], "by": "step", "kosine": 1}
    with pytest.raises(RewardConfigError) as caught:
        parse_schedule(spec)
    assert [problem.split(": ")[0] for problem in caught.value.problems] == [
        "kosine", "piecewise[1][0]", "piecewise[1][1]", "piecewise[2]", "by",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", THROUGH_POINTS)
def test_schedule_raises_invalid_argument_error_in_code(kind):
    with pytest.raises(InvalidArgumentError, match=rf"{kind.kind}\[1\]\[0\]: positions must"):
        kind([(1, 1.0), (0, 1.0)])
    with pytest.raises(InvalidArgumentError, match=r'by: must be .*, got "day"'):
        kind([(0, 1.0), (1, 1.0)], by="day")


def test_constant_schedule_raises_invalid_argument_error_in_code():
    with pytest.raises(InvalidArgumentError, match="must be a finite number, got nan"):
        ConstantSchedule(math.nan)


class Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    schedule: Schedule | None = None


def test_schedule_is_a_field_of_a_pydantic_model():
    entry = Entry(schedule=[[0, 1.0], [10, 0.0]])
    assert entry.schedule == PiecewiseLinearSchedule([(0, 1.0), (10, 0.0)])
    assert Entry.model_validate_json(entry.model_dump_json()) == entry
    assert entry.model_dump()["schedule"] == {
        "piecewise": [[0, 1.0], [10, 0.0]],
        "by": "episode",
    }


def test_schedule_field_reports_the_place_of_each_mistake():
    with pytest.raises(ValidationError) as caught:
        Entry(schedule={"step": [[0, 1.0], [0, "{curly}"]]})
    assert [error["loc"] for error in caught.value.errors()] == [
        ("schedule", "step", 1, 1),
    ]
    assert "'{curly}'" in caught.value.errors()[0]["msg"]


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (
            [[1_000_001, 1.0], [1_000_000, 0.0]],
            "got 1000000 after 1000001",
        ),
        (
            [[0, 1.0], [2**53 + 2, 0.0]],
            "must be less than or equal to 9007199254740992, got 9007199254740994",
        ),
    ],
    ids=["large", "too large"],
)
def test_parse_schedule_shows_large_positions_in_full(points, message):
    with pytest.raises(RewardConfigError, match=message):
        parse_schedule(points)


def test_schedule_refuses_a_position_of_thousands_of_digits():
    with pytest.raises(InvalidArgumentError, match="got <int>"):
        parse_schedule([[0, 1.0], [1, 0.0]])(10**5000)


VALIDATOR = jsonschema.Draft202012Validator(Entry.model_json_schema())


def follows_the_json_schema(spec):
    return VALIDATOR.is_valid({"schedule": spec})


@given(POSITIVE)
def test_schedule_json_schema_accepts_valid_specs(points):
    for kind in THROUGH_POINTS:
        assert follows_the_json_schema(json.loads(json.dumps(kind(points).to_spec())))
    assert follows_the_json_schema([list(point) for point in points])
    assert follows_the_json_schema(0.5)
    assert follows_the_json_schema({"constant": 0.5})


@pytest.mark.parametrize(
    "spec",
    ["1", {}, {"by": "episode"}, {"zzz": 1}, {"constant": 1, "by": "day"}, [[0, 1]], [0, 1]],
    ids=str,
)
def test_schedule_json_schema_refuses_invalid_specs(spec):
    assert not follows_the_json_schema(spec)
    with pytest.raises(ValidationError):
        Entry(schedule=spec)
