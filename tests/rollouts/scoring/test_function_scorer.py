"""FunctionScorer: reward functions of both modes on recorded rollouts."""

import asyncio
import json

import numpy as np
import pytest

from guerdon import EvaluateResult, StepOutput, reward_function
from guerdon.errors import InvalidArgumentError, RolloutError
from guerdon.rollouts import FunctionScorer
from guerdon.types import Rollout

KEYS = [
    "id", "group", "score", "is_score_valid", "components", "step_rewards", "error", "fingerprint",
    "reason", "notes",
]  # fmt: skip


def rollout(*turns, names=(), **columns):
    """A rollout in which the user asks before each turn."""
    messages = []
    for place, turn in enumerate(turns):
        named = {"step_id": names[place]} if place < len(names) else {}
        messages.append({"role": "user", "content": "?"})
        messages.append({"role": "assistant", "content": turn, **named})
    return Rollout.from_row({"messages": messages, **columns})


def score(function, *turns, parameters=None, **columns):
    with FunctionScorer(reward_function(function), parameters) as scorer:
        return scorer.score(rollout(*turns, **columns))


def score_group(function, *rollouts, parameters=None):
    with FunctionScorer(reward_function(function), parameters) as scorer:
        return scorer.score_group(list(rollouts))


def length(messages):
    return float(len(messages[-1].text))


def best(rollouts_messages):
    lengths = [len(messages[-1].text) for messages in rollouts_messages]
    return [float(each == max(lengths)) for each in lengths]


# Pointwise


def test_function_scorer_makes_a_row_of_a_number():
    row = score(length, "42", id="q7", group="g")
    assert list(row) == KEYS
    assert row == {
        "id": "q7", "group": "g", "score": 2.0, "is_score_valid": True, "components": {},
        "step_rewards": None, "error": None, "fingerprint": row["fingerprint"], "reason": None,
        "notes": [],
    }  # fmt: skip


def test_function_scorer_passes_the_ground_truth_and_requested_columns():
    def found(messages, ground_truth, kind, level=3):
        return {"score": float(ground_truth), "reason": f"{kind} {level}"}

    row = score(found, "x", ground_truth="0.5", kind="k", unwanted=1)
    assert (row["score"], row["reason"]) == (0.5, "k 3")
    assert score(found, "x", ground_truth="0.5", kind="k", level=4)["reason"] == "k 4"


def test_function_scorer_passes_all_columns_to_kwargs():
    def takes(messages, **kwargs):
        return {"score": 1.0, "reason": json.dumps(kwargs, sort_keys=True)}

    row = score(takes, "x", id=7, kind="k", parameters={"mode": [1]})
    assert json.loads(row["reason"]) == {
        "ground_truth": None, "id": 7, "kind": "k", "mode": [1],
    }  # fmt: skip


def test_function_scorer_parameters_override_columns():
    def level(messages, level=0.0):
        return level

    assert score(level, "x", level=0.25)["score"] == 0.25
    assert score(level, "x", level=0.25, parameters={"level": 0.5})["score"] == 0.5


def test_function_scorer_fills_a_row_from_an_evaluate_result():
    def full(messages):
        return EvaluateResult(
            score=0.5,
            reason="why",
            metrics={"n": 3, "half": 0.5, "big": 10**400, "nan": float("nan"), "text": "x"},
            step_outputs=[
                StepOutput(step_index=1, base_reward=0.25, reason="good", metrics={"a": 1}),
                StepOutput(step_index=0, base_reward=0.0),
            ],
        )

    row = score(full, "a", "b", "c")
    assert row["components"] == {"n": 3.0, "half": 0.5}
    assert row["step_rewards"] == [0.0, 0.25, None]
    assert row["steps"] == [
        {"step_index": 0, "base_reward": 0.0},
        {"step_index": 1, "base_reward": 0.25, "reason": "good", "metrics": {"a": 1}},
    ]
    assert (row["reason"], row["notes"]) == ("why", [])


def test_function_scorer_accepts_numpy_metrics_as_components():
    metrics = {"i": np.int64(3), "f": np.float32(0.5), "d": np.float64(0.25), "a": np.ones(2)}
    row = score(lambda messages: {"score": np.float64(1.0), "metrics": metrics}, "x")
    assert row["components"] == {"i": 3.0, "f": 0.5, "d": 0.25}
    assert {type(value) for value in (row["score"], *row["components"].values())} == {float}


@pytest.mark.parametrize(
    ("outputs", "rewards"), [(None, None), ([], [None, None])], ids=["none", "empty"]
)
def test_function_scorer_distinguishes_no_steps_from_an_empty_list(outputs, rewards):
    row = score(lambda messages: EvaluateResult(score=1.0, step_outputs=outputs), "a", "b")
    assert row["step_rewards"] == rewards


def test_function_scorer_notes_outputs_for_missing_steps():
    def steps(messages):
        outputs = [(0, 0.5), (7, 1.0), ("0", 1.0), (1, 0.25), (1, 0.125), ("go", 1.0)]
        return {"score": 1.0, "step_outputs": [
            {"step_index": index, "base_reward": reward} for index, reward in outputs]}  # fmt: skip

    row = score(steps, "a", "b", "c", names=("look", "wait", "go"))
    assert row["step_rewards"] == [0.5, None, 1.0]
    assert row["is_score_valid"] is True
    assert row["notes"] == [
        "step 7: there is no such step; the assistant turns are 0 to 2",
        "step '0' is text, and no step has this id; for turn 0, write an int",
        "step 1: it has 2 outputs (0.25 and 0.125); none was used",
    ]


def test_function_scorer_ignores_ambiguous_step_ids():
    def steps(messages):
        return {"score": 1.0, "step_outputs": [{"step_index": "go", "base_reward": 1.0}]}

    row = score(steps, "a", "b", names=("go", "go"))
    assert row["step_rewards"] == [None, None]
    assert len(row["notes"]) == 1


@pytest.mark.parametrize("index", ["--1", "9" * 5000], ids=["minuses", "long"])
def test_function_scorer_notes_invalid_step_indexes(index):
    def steps(messages):
        return {"score": 1.0, "step_outputs": [{"step_index": index, "base_reward": 1.0}]}

    row = score(steps, "a")
    assert (row["score"], len(row["notes"])) == (1.0, 1)


def test_function_scorer_notes_irregular_conversations():
    call = {"id": "c", "function": {"name": "book", "arguments": "{broken"}}
    odd = Rollout.from_row(
        {"messages": [{"role": "assistant", "content": "Hello!", "tool_calls": [call]}]}
    )
    [row] = score_group(length, odd)
    assert row["score"] == 6.0
    first, broken, unanswered = row["notes"]
    assert first == "it begins with the assistant"
    assert broken.startswith("messages[0]: the arguments of book are not a JSON object")
    assert unanswered == "1 of its tool calls have no result: book (messages[0])"


# Failures


class Stop(BaseException):
    """No exception that anyone expects."""


@pytest.mark.parametrize(
    "error",
    [ValueError("no luck"), KeyError("gold"), SystemExit(3), Stop("enough"),
     asyncio.CancelledError()],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_function_scorer_makes_an_exception_a_failed_row_and_not_zero(error, is_async):
    def raises(messages):
        raise error

    async def raises_later(messages):
        raise error

    row = score(raises_later if is_async else raises, "x", id="q7", group="g")
    assert (row["id"], row["group"]) == ("q7", "g")
    assert (row["score"], row["is_score_valid"], row["step_rewards"]) == (None, False, None)
    assert row["error"].startswith(type(error).__name__)
    assert list(row) == KEYS


def test_function_scorer_raises_keyboard_interrupt():
    def interrupted(messages):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score(interrupted, "x")


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), None, "1", {"scor": 1.0}, {"score": "1"}, [1.0]],
    ids=repr,
)  # fmt: skip
def test_function_scorer_makes_an_invalid_result_a_failed_row(value):
    row = score(lambda messages: value, "x")
    assert (row["score"], row["is_score_valid"]) == (None, False)
    assert row["error"].startswith("RewardFunctionError: ")


def test_function_scorer_makes_a_nan_score_a_failed_row():
    bad = EvaluateResult.model_construct(
        score=float("nan"), is_score_valid=True, reason=None, metrics={}, step_outputs=None,
        error=None,
    )  # fmt: skip
    row = score(lambda messages: bad, "x")
    assert (row["score"], row["is_score_valid"]) == (None, False)


def test_function_scorer_reports_the_reason_of_an_invalid_result():
    def row_of(**fields):
        return score(lambda messages: EvaluateResult(**fields), "x")

    assert row_of(error="no answer")["error"] == "no answer"
    doubted = row_of(score=0.5, is_score_valid=False, reason="truncated", metrics={"n": 1})
    assert (doubted["score"], doubted["is_score_valid"]) == (None, False)
    assert (doubted["error"], doubted["reason"]) == ("truncated", "truncated")
    bare = row_of(score=0.5, is_score_valid=False)
    assert (bare["score"], bare["is_score_valid"]) == (None, False)
    assert "no error with the reason" in bare["error"]


def test_function_scorer_reports_an_error_beside_a_valid_score():
    row = score(lambda messages: EvaluateResult(score=0.5, error="a retry"), "x")
    assert (row["score"], row["is_score_valid"], row["error"]) == (0.5, True, "a retry")


def test_function_scorer_reports_the_line_that_can_not_be_read():
    with FunctionScorer(reward_function(length)) as scorer:
        row = scorer.failed(RolloutError("no good", line=3, row={"id": "a", "group": "g"}))
        assert row["fingerprint"] == scorer.fingerprint
    assert row["error"] == "line 3: RolloutError: no good"
    assert (row["id"], row["group"], row["score"]) == ("a", "g", None)


# Batches


def test_function_scorer_passes_a_group_at_once_to_a_batch_function():
    rows = score_group(best, rollout("a", id=1, group="g"), rollout("bb", id=2, group="g"))
    assert [(row["id"], row["score"]) for row in rows] == [(1, 0.0), (2, 1.0)]
    assert all(list(row) == KEYS for row in rows)


def test_function_scorer_scores_a_group_one_by_one_with_a_pointwise_function():
    rows = score_group(length, rollout("a"), rollout("bb"))
    assert [row["score"] for row in rows] == [1.0, 2.0]


def test_function_scorer_passes_columns_as_lists_and_parameters_unchanged():
    seen = {}

    def takes(rollouts_messages, ground_truths=None, **kwargs):
        seen.update(kwargs, ground_truths=ground_truths)
        return [1.0, 0.0]

    score_group(
        takes,
        rollout("a", id=1, ground_truth="x", kind="k"),
        rollout("b", id=2, level=3),
        parameters={"level": 5, "mode": "m"},
    )
    assert seen == {
        "ground_truths": ["x", None],
        "id": [1, 2],
        "kind": ["k", None],
        "level": 5,
        "mode": "m",
    }


def test_function_scorer_ignores_columns_named_like_its_own_arguments():
    def takes(rollouts_messages, **kwargs):
        return [1.0 for _ in rollouts_messages]

    [row] = score_group(takes, rollout("a", rollouts_messages=["x"], ground_truths=["y"]))
    assert (row["score"], row["error"]) == (1.0, None)


def test_function_scorer_scores_a_single_rollout_as_a_group_of_one():
    assert score(best, "a")["score"] == 1.0


@pytest.mark.parametrize("value", [[1.0], [1.0, 0.0, 0.5], 1.0, None], ids=repr)
def test_function_scorer_fails_all_rows_if_there_are_too_few_results(value):
    rows = score_group(lambda rollouts_messages: value, rollout("a", id=1), rollout("b", id=2))
    assert [row["id"] for row in rows] == [1, 2]
    assert {(row["score"], row["is_score_valid"]) for row in rows} == {(None, False)}
    assert all("RewardFunctionError" in row["error"] for row in rows)


def test_function_scorer_fails_all_rows_if_a_batch_function_raises():
    def raises(rollouts_messages):
        raise ValueError("no luck")

    rows = score_group(raises, rollout("a"), rollout("b"))
    assert [row["error"].partition(" (")[0] for row in rows] == ["ValueError: no luck"] * 2


def test_function_scorer_fails_only_the_row_of_an_invalid_result():
    def some(rollouts_messages):
        return [1.0, "x", {"score": 0.5}, EvaluateResult(error="no answer")]

    rows = score_group(some, *(rollout("a") for _ in range(4)))
    assert [row["score"] for row in rows] == [1.0, None, 0.5, None]


def test_function_scorer_accepts_arrays_of_scores():
    rows = score_group(lambda rollouts_messages: np.array([0.5, 1.0]), rollout("a"), rollout("b"))
    assert [row["score"] for row in rows] == [0.5, 1.0]


# Async


def test_function_scorer_runs_async_functions_in_one_loop():
    loops = []

    async def one(messages):
        await asyncio.sleep(0)
        loops.append(id(asyncio.get_running_loop()))
        return length(messages)

    async def many(rollouts_messages):
        await asyncio.sleep(0)
        return best(rollouts_messages)

    rows = score_group(one, rollout("a"), rollout("bb"))
    assert [row["score"] for row in rows] == [1.0, 2.0]
    assert len(set(loops)) == 1
    assert [row["score"] for row in score_group(many, rollout("a"), rollout("bb"))] == [0.0, 1.0]


@pytest.mark.parametrize("mode", ["pointwise", "batch"])
def test_function_scorer_scores_with_an_async_function_inside_a_running_loop(mode):
    async def one(messages):
        return 1.0

    async def many(rollouts_messages):
        return [1.0]

    async def inside():
        return score(one if mode == "pointwise" else many, "x")

    assert asyncio.run(inside())["score"] == 1.0


def test_function_scorer_can_be_used_again_after_its_end():
    async def one(messages):
        return 1.0

    scorer = FunctionScorer(reward_function(one))
    for _ in range(2):
        with scorer:
            assert scorer.score(rollout("x"))["score"] == 1.0


# Parameters


@pytest.mark.parametrize("name", ["messages", "ground_truth", "levle", "self"])
def test_function_scorer_rejects_unknown_parameters(name):
    def takes(messages, ground_truth=None, *, level=1, mode="x"):
        return 1.0

    with pytest.raises(InvalidArgumentError, match=f"'{name}'; it accepts level, mode"):
        FunctionScorer(reward_function(takes), {name: 1})


@pytest.mark.parametrize("name", ["rollouts_messages", "ground_truths", "messages"])
def test_function_scorer_rejects_the_conversation_as_parameter(name):
    def takes(rollouts_messages, **kwargs):
        return [1.0 for _ in rollouts_messages]

    with pytest.raises(InvalidArgumentError, match="has no parameter"):
        FunctionScorer(reward_function(takes), {name: 1})


def test_function_scorer_names_a_function_without_parameters():
    with pytest.raises(InvalidArgumentError, match="it accepts no parameters"):
        FunctionScorer(reward_function(length), {"level": 1})


def test_function_scorer_fingerprint_covers_function_and_parameters():
    def takes(messages, level=1):
        return 1.0

    def fingerprint(function, **parameters):
        return FunctionScorer(reward_function(function), parameters).fingerprint

    one = fingerprint(takes, level=1)
    assert one == fingerprint(takes, level=1)
    assert len({one, fingerprint(takes), fingerprint(takes, level=2), fingerprint(length)}) == 4


def test_function_scorer_copies_its_parameters():
    def takes(messages, level=0.0):
        return level

    given = {"level": 0.5}
    scorer = FunctionScorer(reward_function(takes), given)
    given["level"] = 1.0
    assert scorer.score(rollout("x"))["score"] == 0.5
