"""What a check is given."""

from collections import OrderedDict
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pytest

from guerdon._validation import check_number
from guerdon.errors import InvalidArgumentError, MissingInputError
from guerdon.rubrics import NumericAnswer
from guerdon.rubrics.checks.inputs import ground_truth_of, text_of
from guerdon.rubrics.state import Checked


@pytest.mark.parametrize(
    "action",
    [
        "hello",
        SimpleNamespace(content="hello"),
        SimpleNamespace(message="hello"),
        SimpleNamespace(content=None, message="hello"),
        {"content": "hello"},
        {"message": "hello"},
        MappingProxyType({"content": "hello"}),
    ],
)
def test_text_of_text_is_found_in_every_usual_shape(action):
    assert text_of(action) == "hello"


def test_text_of_a_list_of_text_parts_is_their_text():
    parts = [{"type": "text", "text": "3 * 6"}, {"type": "text", "text": "A: 18"}]
    assert text_of({"content": parts}) == "3 * 6\nA: 18"
    assert text_of(SimpleNamespace(message=parts)) == "3 * 6\nA: 18"
    reward = NumericAnswer(expected="18")
    assert reward({"role": "assistant", "content": parts}, None) == 1.0


def test_text_of_a_list_of_parts_is_that_of_its_text_parts():
    image = {"type": "image_url", "image_url": {"url": ""}}
    thinking = {"type": "thinking", "thinking": "3 * 7"}
    assert text_of({"content": [thinking, {"type": "text", "text": "See:"}, image]}) == "See:"
    assert text_of({"content": [thinking]}) == ""
    with pytest.raises(MissingInputError, match=r"'content' has no text part: \[{'type': 'image_"):
        text_of({"content": [image]})


def test_text_of_an_empty_content_is_a_text():
    assert text_of(SimpleNamespace(content="", message="other")) == ""


def test_text_of_another_field_is_read_from_attributes_and_keys():
    assert text_of(SimpleNamespace(code="x = 1", content="no"), "code") == "x = 1"
    assert text_of({"items": "a key, not the method"}, "items") == "a key, not the method"


def test_text_of_a_string_of_a_subclass_is_its_own_text():
    class Text(str):
        content = "not this"

    assert text_of(Text("hello")) == "hello"


@pytest.mark.parametrize(
    ("action", "field", "expected"),
    [
        (SimpleNamespace(content=3), "content", "'content' is int"),
        (SimpleNamespace(message="no"), "code", "'code' is missing"),
        ({"content": []}, "content", "'content' is list"),
        ({"content": ["parts"]}, "content", r"'content' has no text part: \['parts"),
        ({"content": [{"type": "text", "text": 3}]}, "content", "'content' has no text part"),
        (None, "content", "NoneType"),
    ],
)
def test_text_of_an_action_without_text_is_rejected(action, field, expected):
    with pytest.raises(MissingInputError, match=expected):
        text_of(action, field)


@pytest.mark.parametrize(
    "observation",
    [
        SimpleNamespace(metadata={"ground_truth": 0}),
        SimpleNamespace(metadata=OrderedDict(ground_truth=0)),
        SimpleNamespace(metadata={}, ground_truth=0),
        SimpleNamespace(ground_truth=0),
        {"metadata": {"ground_truth": 0}},
        {"ground_truth": 0},
    ],
)
def test_text_of_ground_truth_is_found_in_every_usual_shape(observation):
    assert ground_truth_of(observation) == 0


def test_text_of_ground_truth_in_metadata_comes_first():
    assert ground_truth_of(SimpleNamespace(metadata={"ground_truth": 1}, ground_truth=2)) == 1


@pytest.mark.parametrize(
    "observation", [None, {}, SimpleNamespace(metadata={"ground_truth": None}), "72"]
)
def test_text_of_an_observation_without_ground_truth_is_rejected(observation):
    with pytest.raises(MissingInputError, match="no ground truth"):
        ground_truth_of(observation)


class Share:
    maximum = Checked(lambda name, value: check_number(name, value, low=0, high=1))


def test_checked_validates_whenever_the_attribute_is_set():
    share = Share()
    share.maximum = 1
    assert (share.maximum, type(share.maximum)) == (1.0, float)
    for value in (True, "1", None, float("nan"), float("inf"), -0.1, 1.1, 10**400):
        with pytest.raises(InvalidArgumentError, match=r"^`maximum` must be in \[0, 1\], got"):
            share.maximum = value
    assert share.maximum == 1.0


def test_ground_truth_of_numpy_is_a_value_of_python():
    for value, plain in [(np.float32(0.1), 0.1), (np.int64(18), 18), (np.array(18), 18)]:
        ground_truth = ground_truth_of({"ground_truth": value})
        assert (ground_truth, type(ground_truth)) == (plain, type(plain))
    assert ground_truth_of({"ground_truth": np.bool_(True)}) is True
    assert list(ground_truth_of({"ground_truth": np.array([1, 2])})) == [1, 2]
