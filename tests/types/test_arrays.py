"""Fields of models that are arrays."""

from typing import Annotated

import numpy as np
import pytest
from pydantic import ValidationError

from guerdon import Observation
from guerdon.types import ArrayField, GenericObservation


class Screen(Observation):
    frame: Annotated[np.ndarray, ArrayField("uint8", (2, None))]


class Anything(Observation):
    data: Annotated[np.ndarray, ArrayField()]


def test_array_field_accepts_an_array_as_it_is():
    frame = np.zeros((2, 3), "uint8")
    assert Screen(frame=frame).frame is frame


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("uint8", [[0, 255]]),
        ("int64", [[1.0, 2.0]]),
        ("float32", [[0.1, 2]]),
        ("bool", [[0, True]]),
        ("float16", [[float("inf"), float("nan")]]),
        ("uint8", np.array([[1, 2]], ">i4")),
    ],
)
def test_array_field_converts_numbers_to_its_dtype(dtype, value):
    array = ArrayField(dtype, (1, 2)).validate(value)
    assert (array.dtype, array.shape) == (np.dtype(dtype), (1, 2))
    assert np.array_equal(array, np.array(value, dtype), equal_nan=True)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([[1.5], [2.5]], "can't be represented in uint8"),
        ([[256], [-1]], "can't be represented in uint8"),
        ([[float("nan")], [0]], "can't be represented in uint8"),
        ([[1, 2], [3]], "not an array"),
        ("text", "an array of numbers is required"),
        (None, "an array of numbers is required"),
        ([[10**30], [1]], "an array of numbers is required"),
        (np.zeros((2, 1), object), "an array of numbers is required"),
        ([1, 2], r"the shape must be \(2, None\), got \(2,\)"),
        ([[1], [2], [3]], r"the shape must be \(2, None\), got \(3, 1\)"),
    ],
)
def test_array_field_refuses_what_is_no_such_array(value, problem):
    with pytest.raises(ValidationError, match=problem):
        Screen(frame=value)


def test_array_field_refuses_a_float_that_would_become_infinite():
    with pytest.raises(ValueError, match="float32"):
        ArrayField("float32").validate([1e300])


def test_array_field_is_nested_lists_in_json():
    screen = Screen(frame=[[1], [2]])
    assert screen.model_dump(mode="json")["frame"] == [[1], [2]]
    assert screen.model_dump()["frame"] is screen.frame
    assert Screen.model_validate_json(screen.model_dump_json()).frame.tolist() == [[1], [2]]


def test_array_field_has_a_json_schema():
    rows = Screen.model_json_schema()["properties"]["frame"]
    assert (rows["minItems"], rows["maxItems"]) == (2, 2)
    assert rows["items"] == {"type": "array", "items": {"type": "integer"}}
    assert Anything.model_json_schema()["properties"]["data"]["type"] == "array"


def test_generic_observation_with_an_array_is_nested_lists_in_json():
    seen = GenericObservation(frame=np.eye(2), score=3)
    assert seen.model_dump(mode="json")["frame"] == [[1.0, 0.0], [0.0, 1.0]]
    assert seen.model_dump()["frame"] is seen.frame
    assert seen.model_dump(mode="json")["score"] == 3
