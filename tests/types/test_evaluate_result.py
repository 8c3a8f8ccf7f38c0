"""EvaluateResult and StepOutput: the result of a reward function."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from guerdon.types import EvaluateResult, StepOutput

FINITE = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | FINITE | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)
TEXT = st.none() | st.text(max_size=9)
OUTPUTS = st.builds(
    StepOutput,
    step_index=st.integers(0, 99) | st.text(max_size=5),
    base_reward=FINITE,
    metrics=st.dictionaries(st.text(max_size=5), JSON, max_size=2),
    reason=TEXT,
)
REST = {
    "reason": TEXT,
    "metrics": st.dictionaries(st.text(max_size=5), JSON, max_size=2),
    "step_outputs": st.none() | st.lists(OUTPUTS, max_size=3),
    "error": TEXT,
    "log": TEXT,
}
RESULTS = st.one_of(
    st.builds(EvaluateResult, score=FINITE, **REST),
    st.builds(EvaluateResult, score=FINITE, is_score_valid=st.booleans(), **REST),
    st.builds(EvaluateResult, score=st.none(), **REST),
    st.builds(EvaluateResult, score=st.none(), is_score_valid=st.just(False), **REST),
)


# The score


def test_evaluate_result_with_a_score_is_valid():
    result = EvaluateResult(score=1)
    assert (result.score, type(result.score), result.is_score_valid) == (1.0, float, True)
    assert (result.reason, result.metrics, result.step_outputs, result.error, result.log) == (
        None, {}, None, None, None,
    )  # fmt: skip


@pytest.mark.parametrize("score", [0, 0.0, -1.5, 3.5, np.float32(0.5), np.int64(2)])
def test_evaluate_result_score_is_any_finite_number(score):
    result = EvaluateResult(score=score)
    assert type(result.score) is float
    assert result.score == score
    assert result.is_score_valid


def test_evaluate_result_without_a_score_is_invalid():
    for result in (EvaluateResult(), EvaluateResult(score=None), EvaluateResult(error="down")):
        assert (result.score, result.is_score_valid) == (None, False)


@pytest.mark.parametrize("given", [{}, {"score": None}, {"is_score_valid": False}], ids=repr)
def test_evaluate_result_without_a_score_and_a_reason_has_a_default_error(given):
    result = EvaluateResult(**given)
    assert result.error == "the evaluation gave no score"
    assert EvaluateResult.model_validate(result.model_dump()).error == result.error
    result.score = 0.5
    assert (result.is_score_valid or "is_score_valid" in given, result.error) == (True, None)


def test_evaluate_result_without_a_score_keeps_its_own_error_or_reason():
    assert EvaluateResult(error="down").error == "down"
    doubted = EvaluateResult(score=None, reason="off topic")
    assert (doubted.error, doubted.reason) == (None, "off topic")


def test_evaluate_result_valid_without_a_score_is_rejected():
    with pytest.raises(ValidationError, match="a valid result requires a score"):
        EvaluateResult(is_score_valid=True)
    with pytest.raises(ValidationError, match="a valid result requires a score"):
        EvaluateResult(score=None, is_score_valid=True, error="down")


def test_evaluate_result_an_invalid_result_may_have_a_score():
    result = EvaluateResult(score=0.5, is_score_valid=False, reason="off topic")
    assert (result.score, result.is_score_valid) == (0.5, False)


@pytest.mark.parametrize(
    "fields",
    [
        {"score": math.nan},
        {"score": math.inf, "is_score_valid": False},
        {"score": b"1"},
        {"score": "1"},
        {"score": 1.0, "scores": 1.0},
        {"score": 1.0, "metrics": None},
        {"score": 1.0, "metrics": [1.0]},
        {"score": 1.0, "step_outputs": {}},
        {"score": 1.0, "step_outputs": [1.0]},
        {"score": 1.0, "step_outputs": [{"step_index": 0}]},
        {"score": 1.0, "reason": 3},
        {"score": 1.0, "error": ValueError("x")},
        {"score": 1.0, "is_score_valid": None},
    ],
    ids=range(13),
)
def test_evaluate_result_rejects_invalid_fields(fields):
    with pytest.raises(ValidationError):
        EvaluateResult(**fields)


def test_evaluate_result_metrics_are_not_shared():
    one, other = EvaluateResult(score=1.0), EvaluateResult(score=1.0)
    one.metrics["seen"] = 1
    assert other.metrics == {}


# Assignment


@pytest.mark.parametrize("result", [{"score": 1.0}, {"score": 1.0, "is_score_valid": True}])
@pytest.mark.parametrize(
    ("name", "value"),
    [("score", math.nan), ("score", "1"), ("metrics", None), ("step_outputs", [1.0]), ("x", 1)],
    ids=range(5),
)
def test_evaluate_result_rejects_an_invalid_assignment_and_stays_unchanged(result, name, value):
    made = EvaluateResult(**result)
    with pytest.raises(ValidationError):
        setattr(made, name, value)
    assert made == EvaluateResult(**result)
    assert made.model_dump() == EvaluateResult(**result).model_dump()


def test_evaluate_result_a_valid_result_does_not_lose_its_score():
    result = EvaluateResult(score=1.0, is_score_valid=True)
    with pytest.raises(ValidationError, match="a valid result requires a score"):
        result.score = None
    assert (result.score, result.is_score_valid) == (1.0, True)
    result.is_score_valid = False
    result.score = None
    with pytest.raises(ValidationError, match="a valid result requires a score"):
        result.is_score_valid = True
    assert (result.score, result.is_score_valid) == (None, False)


def test_evaluate_result_validity_follows_the_score_by_default():
    result = EvaluateResult(score=1.0)
    result.score = None
    assert not result.is_score_valid
    result.score = 0.5
    assert result.is_score_valid


def test_evaluate_result_validity_follows_the_score_after_a_rejected_assignment():
    result = EvaluateResult(error="down")
    with pytest.raises(ValidationError, match="a valid result requires a score"):
        result.is_score_valid = True
    result.score = 0.5
    assert result.is_score_valid


def test_evaluate_result_can_be_written_after_a_rejected_assignment():
    made = EvaluateResult(score=1.0)
    with pytest.raises(ValidationError):
        made.unknown = 1
    assert EvaluateResult.model_validate_json(made.model_dump_json()) == made
    assert not hasattr(made, "unknown")


def test_evaluate_result_assigned_numbers_become_floats():
    result = EvaluateResult(score=1.0)
    result.score = np.float32(0.5)
    assert type(result.score) is float
    output = StepOutput(step_index=0, base_reward=1)
    output.base_reward = 2
    assert type(output.base_reward) is float


# Steps


@pytest.mark.parametrize("index", [0, 7, "0", "think", ""])
def test_step_output_step_index_is_an_integer_or_a_string_and_is_not_converted(
    index,
):
    output = StepOutput(step_index=index, base_reward=0.5)
    assert output.step_index == index
    assert type(output.step_index) is type(index)
    again = StepOutput.model_validate_json(output.model_dump_json())
    assert type(again.step_index) is type(index)


@pytest.mark.parametrize("index", [True, 0.0, 1.5, None, b"0", [0]], ids=repr)
def test_step_output_rejects_other_step_indices(index):
    with pytest.raises(ValidationError, match="step_index"):
        StepOutput(step_index=index, base_reward=0.5)


@pytest.mark.parametrize("reward", [math.nan, math.inf, None, "1"], ids=repr)
def test_step_output_base_reward_is_a_finite_float(reward):
    with pytest.raises(ValidationError, match="base_reward"):
        StepOutput(step_index=0, base_reward=reward)
    output = StepOutput(step_index=0, base_reward=0.5)
    with pytest.raises(ValidationError, match="base_reward"):
        output.base_reward = reward
    assert output.base_reward == 0.5


def test_step_output_requires_both_fields_and_rejects_others():
    for fields in ({"step_index": 0}, {"base_reward": 1.0}):
        with pytest.raises(ValidationError, match="Field required"):
            StepOutput(**fields)
    with pytest.raises(ValidationError, match="Extra inputs"):
        StepOutput(step_index=0, base_reward=1.0, reward=1.0)


# JSON


@given(RESULTS)
def test_evaluate_result_round_trips_through_json(result):
    again = EvaluateResult.model_validate_json(result.model_dump_json())
    assert again == result
    assert EvaluateResult.model_validate(result.model_dump()) == result
    least = EvaluateResult.model_validate_json(result.model_dump_json(exclude_unset=True))
    assert least == result


def test_evaluate_result_json_keeps_metrics_that_are_not_finite():
    result = EvaluateResult(score=1.0, metrics={"nan": math.nan, "inf": math.inf})
    again = EvaluateResult.model_validate_json(result.model_dump_json())
    assert math.isnan(again.metrics["nan"])
    assert again.metrics["inf"] == math.inf


def test_evaluate_result_metrics_of_numpy_fit_json():
    output = StepOutput(step_index=0, base_reward=1.0, metrics={"a": np.float32(0.5)})
    result = EvaluateResult(score=1.0, metrics={"n": np.int64(3)}, step_outputs=[output])
    again = EvaluateResult.model_validate_json(result.model_dump_json())
    assert again.metrics == {"n": 3}
    assert again.step_outputs[0].metrics == {"a": 0.5}


def test_evaluate_result_has_a_json_schema():
    schema = EvaluateResult.model_json_schema()
    assert schema["additionalProperties"] is False
    assert "step_outputs" in schema["properties"]
