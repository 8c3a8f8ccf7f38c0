import json
import math
import pickle

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, ValidationError

from guerdon.config.schedules.schedule_spec import ScheduleSpec, schedule_of, spec_of
from guerdon.config.schedules.schedules import (
    ConstantSchedule,
    CosineSchedule,
    ExponentialSchedule,
    PiecewiseLinearSchedule,
    StepSchedule,
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
def test_the_factor_worked_by_hand(spec, at, factor):
    assert schedule_of(spec)(at) == pytest.approx(factor, abs=1e-12)


@st.composite
def points(draw, factors):
    positions = draw(st.lists(st.integers(0, 2**53), min_size=2, max_size=9, unique=True))
    return [(at, draw(factors)) for at in sorted(positions)]


POSITIVE = points(st.floats(1e-300, 1e300))


@pytest.mark.parametrize("kind", THROUGH_POINTS)
@given(points=POSITIVE, at=st.integers(0, 2**54))
def test_it_goes_through_its_points_and_stays_between_neighbours(kind, points, at):
    schedule = kind(points)
    for position, factor in points:
        assert schedule(position) == factor
    before = [factor for position, factor in points if position <= at][-1:] or [points[0][1]]
    after = [factor for position, factor in points if position >= at][:1] or [points[-1][1]]
    assert min(before + after) <= schedule(at) <= max(before + after)


@pytest.mark.parametrize("kind", THROUGH_POINTS)
def test_between_equal_factors_nothing_is_rounded(kind):
    schedule = kind([(0, 0.1), (1000, 0.1)])
    assert {schedule(at) for at in range(1001)} == {0.1}


@pytest.mark.parametrize("kind", THROUGH_POINTS)
@given(points=POSITIVE, by=st.sampled_from(["episode", "training_step"]))
def test_a_spec_makes_an_equal_schedule_again_through_json(kind, points, by):
    schedule = kind(points, by=by)
    assert schedule_of(json.loads(json.dumps(spec_of(schedule)))) == schedule
    assert pickle.loads(pickle.dumps(schedule)) == schedule


@given(points(st.floats(allow_nan=False, allow_infinity=False)), st.floats(0, 1e17))
def test_whatever_the_points_the_factor_is_finite(points, at):
    for kind in (PiecewiseLinearSchedule, CosineSchedule, StepSchedule):
        assert math.isfinite(kind(points)(at))


def test_kinds_are_different_and_so_are_counts():
    made = [kind([(0, 1.0), (9, 2.0)]) for kind in THROUGH_POINTS]
    assert len({*made, ConstantSchedule(1.0)}) == 5
    assert schedule_of({"constant": 1, "by": "training_step"}).by == "training_step"
    assert schedule_of(1).by == "episode"
    assert schedule_of(1) != schedule_of({"constant": 1, "by": "training_step"})


def test_a_schedule_cannot_be_changed():
    with pytest.raises(AttributeError):
        ConstantSchedule(1.0).factor = 2.0
    with pytest.raises(AttributeError):
        StepSchedule([(0, 1.0), (1, 2.0)]).by = "training_step"


def test_a_schedule_is_given_back_as_it_is():
    schedule = CosineSchedule([(0, 1.0), (1, 2.0)])
    assert schedule_of(schedule) is schedule


def test_a_whole_position_is_written_as_one():
    assert json.dumps(spec_of(schedule_of([[0, 1], [1e3, 0]]))) == (
        '{"piecewise": [[0, 1.0], [1000, 0.0]], "by": "episode"}'
    )


@pytest.mark.parametrize("at", [-1, math.nan, math.inf, "3", None, True, 10**400])
def test_a_factor_at_no_number_is_refused(at):
    with pytest.raises(InvalidArgumentError, match="a number from 0 is needed"):
        schedule_of(1.0)(at)


def test_numbers_of_numpy_are_numbers():
    assert schedule_of([[np.int64(0), np.float32(1)], [10, 0]])(np.int64(5)) == 0.5


REFUSED = {
    "backwards": ([[0, 1], [9, 1], [5, 0]], r"piecewise\[2\]\[0\]: the position 5 comes after 9"),
    "repeated": ([[0, 1], [9, 1], [9, 0]], r"piecewise\[2\]\[0\]: .* they must rise"),
    "negative": ([[-1, 1], [9, 1]], r"piecewise\[0\]\[0\]: .* from 0 to 2.53 is needed"),
    "nan": ({"step": [[0, 1], [9, math.nan]]}, r"step\[1\]\[1\]: the factor is nan; a finite"),
    "nan position": ([[math.nan, 1], [9, 1]], r"piecewise\[0\]\[0\]: the position is nan"),
    "infinite": ([[0, 1], [9, math.inf]], "a finite number is needed"),
    "too large a number": ([[0, 1], [9, 10**400]], "a finite number is needed"),
    "constant nan": ({"constant": math.nan}, "constant: the factor is nan"),
    "bool": ({"constant": True}, "constant: the factor is True"),
    "text": ({"constant": "1"}, "the factor is '1'"),
    "empty": ({"piecewise": []}, r"0 points were given; it takes from 2 to 10,000"),
    "one point": ([[0, 1.0]], r"and \{constant: …\} one factor"),
    "too many": ([[n, 1] for n in range(10_001)], "10001 points were given"),
    "no points": ({"cosine": 3}, "cosine: 3 is no list of points"),
    "no pair": ([0, 1.0], r"piecewise\[0\]: 0 is no point; a point is \[position, factor\]"),
    "three numbers": ([[0, 1, 2], [1, 2, 3]], r"\[0, 1, 2\] is no point"),
    "mapping for points": ({"piecewise": {0: 1.0}}, "is no list of points"),
    "unknown kind": ({"picewise": [[0, 1], [1, 0]]}, "did you mean 'piecewise'"),
    "foreign kind": ({"zzz": 1}, "there are 'constant', 'piecewise', 'cosine'"),
    "unknown by": ({"constant": 1, "by": "steps"}, "by: 'steps' .* episode or training_step"),
    "by that can't be hashed": ({"constant": 1, "by": []}, r"by: \[\] can't be counted by"),
    "no kind": ({}, "it has no kind"),
    "by alone": ({"by": "episode"}, "it has no kind"),
    "two kinds": ({"constant": 1, "step": [[0, 1], [1, 0]]}, "several kinds, 'constant', 'step'"),
    "none": (None, "None is no schedule; it takes a mapping such as"),
    "word": ("cosine", "'cosine' is no schedule"),
    "bare bool": (False, "False is no schedule"),
    "zero of an exponential": ({"exponential": [[0, 1], [9, 0]]}, r"\[1\]\[1\]: .* 0.001"),
    "signs of an exponential": ({"exponential": [[0, 1], [9, -1]]}, r"all of one sign"),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "said"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_schedule_is_refused(spec, said):
    with pytest.raises(RewardConfigError, match=said):
        schedule_of(spec)


def test_every_mistake_is_told_with_its_place():
    spec = {"piecewise": [[0, 1], [-3, math.nan], 7], "by": "step", "kosine": 1}
    with pytest.raises(RewardConfigError) as caught:
        schedule_of(spec)
    assert [problem.split(": ")[0] for problem in caught.value.problems] == [
        "kosine", "by", "piecewise[1][1]", "piecewise[1][0]", "piecewise[2]",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", THROUGH_POINTS)
def test_in_code_it_is_an_invalid_argument(kind):
    with pytest.raises(InvalidArgumentError, match=rf"{kind.kind}\[1\]\[0\]: the position 0"):
        kind([(1, 1.0), (0, 1.0)])
    with pytest.raises(InvalidArgumentError, match="by: 'day'"):
        kind([(0, 1.0), (1, 1.0)], by="day")


def test_in_code_a_constant_that_is_no_number_is_an_invalid_argument():
    with pytest.raises(InvalidArgumentError, match="the factor is nan"):
        ConstantSchedule(math.nan)


class Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    schedule: ScheduleSpec | None = None


def test_a_field_of_a_model_holds_a_schedule_and_is_written_as_in_files():
    entry = Entry(schedule=[[0, 1.0], [10, 0.0]])
    assert entry.schedule == PiecewiseLinearSchedule([(0, 1.0), (10, 0.0)])
    assert Entry.model_validate_json(entry.model_dump_json()) == entry
    assert entry.model_dump()["schedule"] == {
        "piecewise": [[0, 1.0], [10, 0.0]],
        "by": "episode",
    }


def test_a_model_tells_the_place_of_each_mistake():
    with pytest.raises(ValidationError) as caught:
        Entry(schedule={"step": [[0, 1.0], [0, "{curly}"]]})
    assert [error["loc"] for error in caught.value.errors()] == [
        ("schedule", "step", 1, 1),
        ("schedule", "step", 1, 0),
    ]
    assert "'{curly}'" in caught.value.errors()[0]["msg"]


@pytest.mark.parametrize(
    ("points", "said"),
    [
        ([[1_000_001, 1.0], [1_000_000, 0.0]], "position 1000000 comes after 1000001"),
        ([[0, 1.0], [2**53 + 2, 0.0]], r"from 0 to 2\^53 is needed"),
    ],
    ids=["large", "too large"],
)
def test_large_positions_are_told_in_full(points, said):
    with pytest.raises(RewardConfigError, match=said):
        schedule_of(points)


def test_a_position_of_thousands_of_digits_is_refused_in_words():
    with pytest.raises(InvalidArgumentError, match="at int that can't be told"):
        schedule_of([[0, 1.0], [1, 0.0]])(10**5000)


VALIDATOR = jsonschema.Draft202012Validator(Entry.model_json_schema())


def follows_the_json_schema(spec):
    return VALIDATOR.is_valid({"schedule": spec})


@given(POSITIVE)
def test_the_json_schema_takes_what_is_taken(points):
    for kind in THROUGH_POINTS:
        assert follows_the_json_schema(json.loads(json.dumps(spec_of(kind(points)))))
    assert follows_the_json_schema([list(point) for point in points])
    assert follows_the_json_schema(0.5)
    assert follows_the_json_schema({"constant": 0.5})


@pytest.mark.parametrize(
    "spec",
    ["1", {}, {"by": "episode"}, {"zzz": 1}, {"constant": 1, "by": "day"}, [[0, 1]], [0, 1]],
    ids=str,
)
def test_the_json_schema_refuses_what_is_refused(spec):
    assert not follows_the_json_schema(spec)
    with pytest.raises(ValidationError):
        Entry(schedule=spec)
