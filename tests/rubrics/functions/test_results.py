"""What a reward function may give, and what becomes of it."""

import math
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.errors import RewardFunctionError
from guerdon.rubrics.functions.function import failed, result_of, results_of
from guerdon.types import EvaluateResult, StepOutput

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def appended():
    """A result whose list was changed past its validation."""
    result = EvaluateResult(score=1.0, step_outputs=[])
    result.step_outputs.append({"step_index": 0, "base_reward": 1.0})
    return result


# One result


@given(FINITE | st.integers(-(2**60), 2**60))
def test_result_of_a_number_is_the_score(number):
    result = result_of(number, "f")
    assert result == EvaluateResult(score=float(number))
    assert type(result.score) is float
    assert result.is_score_valid


@pytest.mark.parametrize(
    "value",
    [np.float64(0.5), np.float32(0.5), np.float16(0.5), np.longdouble(0.5), Fraction(1, 2)],
    ids=lambda value: type(value).__name__,
)
def test_result_of_numbers_of_other_kinds_become_floats(value):
    result = result_of(value, "f")
    assert result.score == 0.5
    assert type(result.score) is float


def test_result_of_an_integer_of_numpy_becomes_a_float():
    assert result_of(np.int64(1), "f").score == 1.0
    assert type(result_of(np.int64(1), "f").score) is float


def test_result_of_a_dict_is_a_result():
    given = {
        "score": 1,
        "reason": "solved",
        "metrics": {"turns": 2},
        "step_outputs": [
            {"step_index": 0, "base_reward": 1},
            {"step_index": "s2", "base_reward": 0},
        ],
    }
    result = result_of(given, "f")
    assert (result.score, result.reason, result.metrics) == (1.0, "solved", {"turns": 2})
    assert [output.step_index for output in result.step_outputs] == [0, "s2"]
    assert result_of(MappingProxyType(given), "f") == result


def test_result_of_returns_a_result_unchanged():
    result = EvaluateResult(score=0.5, step_outputs=[StepOutput(step_index=0, base_reward=0.5)])
    assert result_of(result, "f") is result


def test_result_of_accepts_an_explicit_failure():
    result = result_of({"is_score_valid": False, "error": "the judge is down"}, "f")
    assert (result.score, result.is_score_valid) == (None, False)
    assert result.error == "the judge is down"
    result = EvaluateResult(score=0.5, is_score_valid=False, reason="off topic")
    assert result_of(result, "f") is result


@pytest.mark.parametrize(
    "value",
    [{}, {"score": None}, {"is_score_valid": False}, EvaluateResult(score=None)],
    ids=["empty", "None", "invalid", "result"],
)
def test_result_of_a_failure_without_a_reason_has_a_default_error(value):
    result = result_of(value, "f")
    assert (result.score, result.is_score_valid) == (None, False)
    assert result.error == "the evaluation gave no score"


def test_result_of_rejects_a_score_that_does_not_count_without_a_reason():
    with pytest.raises(RewardFunctionError, match="f returned no valid score and no error"):
        result_of(EvaluateResult(score=0.5, is_score_valid=False), "f")


@pytest.mark.parametrize("kind", [bool, np.bool_])
def test_result_of_counts_a_bool_as_zero_or_one(kind):
    for value in 0.0, 1.0:
        output = {"step_index": 0, "base_reward": kind(value)}
        found = [
            result_of(kind(value), "f").score,
            result_of({"score": kind(value)}, "f").score,
            result_of(EvaluateResult(score=kind(value)), "f").score,
            *(result.score for result in results_of([kind(value)] * 2, 2, "f")),
            *(result.score for result in results_of(np.array([value] * 2, dtype=bool), 2, "f")),
            result_of({"score": 1, "step_outputs": [output]}, "f").step_outputs[0].base_reward,
        ]
        assert [(type(each), each) for each in found] == [(float, value)] * len(found)


@pytest.mark.parametrize(
    "value",
    [
        None,
        "0.5",
        (0.5,),
        [0.5],
        np.array([0.5]),
        1j,
        Decimal("0.5"),
        object(),
        StepOutput(step_index=0, base_reward=1.0),
    ],
    ids=lambda value: type(value).__name__,
)
def test_result_of_rejects_other_values_with_their_type(value):
    kind = type(value).__name__
    with pytest.raises(RewardFunctionError, match=rf"f returned .* \({kind}\); a reward "):
        result_of(value, "f")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (math.nan, "score: a score is a finite float, not nan"),
        (math.inf, "score: a score is a finite float, not inf"),
        (np.float32("-inf"), "score: a score is a finite float"),
        (10**400, "score: a score is a finite float"),
        (10**5000, "score: "),
        ({"score": math.nan}, "score: a score is a finite float, not nan"),
        ({"score": "1"}, "score: a score is a finite float, not '1'"),
        ({"score": 1.0, "scores": 2.0}, "scores: Extra inputs are not permitted"),
        ({"score": 1.0, "metrics": None}, "metrics: "),
        ({"is_score_valid": True}, "a valid result requires a score"),
        ({1: 2.0}, "1: "),
        (
            {"score": 1.0, "step_outputs": [{"step_index": 0, "base_reward": math.inf}]},
            r"step_outputs\.0\.base_reward: a score is a finite float, not inf",
        ),
        (
            {"score": 1.0, "step_outputs": [{"step_index": 0.5, "base_reward": 1.0}]},
            r"step_outputs\.0\.step_index",
        ),
        (
            {"score": 1.0, "step_outputs": [{"base_reward": 1.0}]},
            r"step_outputs\.0\.step_index: Field required",
        ),
    ],
    ids=range(14),
)
def test_result_of_reports_the_invalid_field(value, message):
    with pytest.raises(RewardFunctionError, match=f"f returned an invalid result: {message}"):
        result_of(value, "f")


def test_result_of_closes_and_reports_a_coroutine():
    async def awaited():
        return 0.5

    with pytest.raises(RewardFunctionError, match="isn't declared async; write `async def f`"):
        result_of(awaited(), "f")  # left unawaited it would warn, which is an error here


@pytest.mark.parametrize(
    "result",
    [
        EvaluateResult.model_construct(score=math.nan, is_score_valid=True),
        EvaluateResult.model_construct(score=1, is_score_valid=True),
        EvaluateResult.model_construct(score=True, is_score_valid=True),
        EvaluateResult.model_construct(score="1", is_score_valid=False, error="x"),
        EvaluateResult.model_construct(
            score=1.0,
            step_outputs=[StepOutput.model_construct(step_index=0, base_reward=math.inf)],
        ),
    ],
    ids=["nan", "int", "bool", "str", "base_reward"],
)
def test_result_of_rejects_results_made_without_validation(result):
    with pytest.raises(RewardFunctionError, match="f returned "):
        result_of(result, "f")


def test_result_of_a_constructed_result_without_a_score_is_rejected():
    result = EvaluateResult.model_construct(score=None, is_score_valid=True)
    with pytest.raises(RewardFunctionError, match="f returned a valid result without a score"):
        result_of(result, "f")


def test_result_of_rejects_invalid_step_outputs():
    with pytest.raises(RewardFunctionError, match="f returned "):
        result_of(appended(), "f")


# Results of a batch


@pytest.mark.parametrize(
    "values",
    [[0.25, 0.5], (0.25, 0.5), np.array([0.25, 0.5]), np.array([0.25, 0.5], np.float32)],
    ids=["list", "tuple", "array", "array of float32"],
)
def test_result_of_each_rollout_has_its_result(values):
    assert [result.score for result in results_of(values, 2, "f")] == [0.25, 0.5]


def test_results_of_a_batch_may_be_of_every_kind():
    results = results_of([1, {"score": 0.5}, EvaluateResult(score=0.25)], 3, "f")
    assert [result.score for result in results] == [1.0, 0.5, 0.25]


@pytest.mark.parametrize("count", [2, 4, 0])
def test_result_of_another_number_of_results_is_an_error(count):
    with pytest.raises(RewardFunctionError, match=f"each of {count} rollouts, got 3"):
        results_of([1.0, 1.0, 1.0], count, "f")


@pytest.mark.parametrize(
    "values",
    [None, 1.0, np.array(1.0), {"score": 1.0}, "ab", iter([1.0, 1.0]), EvaluateResult(score=1.0)],
    ids=["None", "float", "scalar", "dict", "str", "iterator", "result"],
)
def test_result_of_rejects_a_batch_result_that_is_not_a_list(values):
    with pytest.raises(RewardFunctionError, match="a batch reward function returns a list"):
        results_of(values, 2, "f")


@pytest.mark.parametrize(
    "bad",
    [
        math.nan,
        None,
        "1",
        {"scores": 1.0},
        [1.0],
        EvaluateResult.model_construct(score=math.inf),
        appended(),
    ],
    ids=["nan", "None", "str", "dict", "list", "constructed", "appended"],
)
def test_result_of_one_bad_result_makes_its_own_rollout_invalid_and_no_other(bad):
    results = results_of([0.25, bad, 0.5], 3, "f")
    assert [result.score for result in results] == [0.25, None, 0.5]
    assert [result.is_score_valid for result in results] == [True, False, True]
    assert results[1].error.startswith("RewardFunctionError: f[1] returned ")


@given(st.lists(FINITE | st.just(math.nan) | st.none(), max_size=6))
def test_result_of_a_batch_is_as_its_members_alone(values):
    def alone(value):
        try:
            return result_of(value, "f").score
        except RewardFunctionError:
            return None

    results = results_of(values, len(values), "f")
    assert [result.score for result in results] == [alone(value) for value in values]


# Failures


def test_failed_is_not_zero():
    result = failed(ValueError("no answer"))
    assert (result.score, result.is_score_valid) == (None, False)
    assert result.error == "ValueError: no answer"


def test_result_of_a_failure_names_the_deepest_line_in_the_functions_file():
    def inner():
        raise ValueError("by design")

    with pytest.raises(ValueError, match="by design") as caught:
        inner()
    line = caught.traceback[-1].lineno + 1
    result = failed(caught.value, __file__)
    assert result.error == f"ValueError: by design (line {line} of test_results.py)"


def test_result_of_a_failure_elsewhere_names_no_line():
    with pytest.raises(ValueError, match="by design") as caught:
        raise ValueError("by design")
    assert failed(caught.value, "/elsewhere.py").error == "ValueError: by design"
    assert failed(caught.value).error == "ValueError: by design"


def test_failed_reports_an_error_without_text():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError

    assert failed(Mute()).error.startswith("Mute: ")
