"""What counts as a number in a model."""

import json
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from guerdon.types.evaluate_result import StepOutput
from guerdon.types.numbers import FiniteFloat, Index, Metrics

NUMBER = TypeAdapter(FiniteFloat)
METRICS = TypeAdapter(Metrics)
INDEX = TypeAdapter(Index)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_a_finite_float_is_itself(number):
    assert NUMBER.validate_python(number) == number
    assert NUMBER.validate_json(NUMBER.dump_json(number)) == number


@given(st.integers(-(10**300), 10**300))
def test_numbers_an_integer_is_the_nearest_float(number):
    found = NUMBER.validate_python(number)
    assert type(found) is float
    assert found == float(number)


@pytest.mark.parametrize(
    "number",
    [
        np.float16(0.5),
        np.float32(0.5),
        np.float64(0.5),
        np.longdouble(0.5),
        Fraction(1, 2),
        type("Half", (float,), {})(0.5),
    ],
    ids=lambda number: type(number).__name__,
)
def test_numbers_other_numbers_become_floats(number):
    found = NUMBER.validate_python(number)
    assert type(found) is float
    assert found == 0.5


@pytest.mark.parametrize("kind", [np.int8, np.int64, np.uint16])
def test_numbers_integers_of_numpy_become_floats(kind):
    found = NUMBER.validate_python(kind(3))
    assert type(found) is float
    assert found == 3.0


@pytest.mark.parametrize("kind", [bool, np.bool_])
def test_numbers_a_bool_counts_as_zero_or_one(kind):
    found = [NUMBER.validate_python(kind(value)) for value in (0, 1)]
    assert (found, list(map(type, found))) == ([0.0, 1.0], [float, float])
    assert NUMBER.validate_json("true") == 1.0


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        -math.inf,
        np.float32("nan"),
        np.longdouble("1e4000"),
        10**400,
        -(10**400),
        10**5000,
        Fraction(10**400),
        None,
        "0.5",
        b"1",
        Decimal("0.5"),
        1j,
        np.array(0.5),
        [0.5],
        {"score": 0.5},
    ],
    ids=range(17),
)
def test_numbers_anything_else_is_refused(value):
    with pytest.raises(ValidationError):
        NUMBER.validate_python(value)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", '"1"', "null", "1e999"])
def test_finite_float_rejects_json_without_a_finite_number(text):
    with pytest.raises(ValidationError):
        NUMBER.validate_json(text)


def test_finite_float_error_states_what_is_accepted():
    with pytest.raises(ValidationError, match="a score is a finite float, not None"):
        NUMBER.validate_python(None)


def test_finite_float_error_shortens_long_values():
    with pytest.raises(ValidationError) as caught:
        NUMBER.validate_python("x" * 10_000)
    assert len(caught.value.errors()[0]["msg"]) < 200


def test_numbers_it_is_a_number_in_a_json_schema():
    assert NUMBER.json_schema()["type"] == "number"


# Metrics


def test_metrics_convert_numbers_of_numpy_for_json():
    given = {"a": np.float32(0.5), "b": np.int64(3), "c": 1, "d": "text", "e": None, "f": [1]}
    given |= {"g": np.True_, "h": False}
    found = METRICS.validate_python(given)
    assert json.loads(METRICS.dump_json(found)) == {
        "a": 0.5, "b": 3, "c": 1, "d": "text", "e": None, "f": [1], "g": True, "h": False,
    }  # fmt: skip
    assert [type(found[name]) for name in "abc"] == [float, int, int]
    assert type(given["a"]) is np.float32


@pytest.mark.parametrize("value", [None, [], 3, "a", {1: 2}])
def test_metrics_reject_what_is_not_a_dict(value):
    with pytest.raises(ValidationError):
        METRICS.validate_python(value)


# Indices


@pytest.mark.parametrize(
    "number", [3, np.int64(3), np.uint8(3), np.argmax([0, 1, 2, 5])], ids=lambda n: type(n).__name__
)
def test_numbers_a_whole_number_of_any_kind_is_an_index(number):
    index = INDEX.validate_python(number)
    assert (index, type(index)) == (3, int)


@pytest.mark.parametrize(
    "value", [True, np.True_, 3.0, np.float64(3), "3", None, Fraction(3), [3]], ids=repr
)
def test_index_rejects_anything_else(value):
    with pytest.raises(ValidationError):
        INDEX.validate_python(value)


def test_numbers_a_step_may_be_named_by_a_number_of_numpy():
    named = StepOutput(step_index=np.int32(2), base_reward=0.5).step_index
    assert (named, type(named)) == (2, int)
