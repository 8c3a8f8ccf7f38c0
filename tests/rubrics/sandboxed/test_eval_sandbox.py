"""EvalSandbox: what reward functions give, at every level."""

import asyncio
import pickle

import numpy as np
import pytest

from guerdon.errors import AsyncRubricError, InvalidArgumentError, LoadError, SandboxError
from guerdon.rollouts import score_rollouts
from guerdon.rubrics import as_rubric
from guerdon.rubrics.functions import RewardFunction, load_reward
from guerdon.rubrics.sandboxed.eval_sandbox import EvalSandbox
from guerdon.rubrics.sandboxed.source import RewardSource
from guerdon.types import Message, Rollout

CHAT = [{"role": "user", "content": "6 × 7?"}, {"role": "assistant", "content": "42"}]
OTHER = [{"role": "user", "content": "6 × 7?"}, {"role": "assistant", "content": "41"}]

LEVELS = ["none", "process", "strict"]
LOCKED = LEVELS[1:]


# What a function gives is the same everywhere


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("reuse", [False, True], ids=["fork", "reuse"])
def test_evaluate_scores_a_conversation(open_reward, level, reuse):
    sandbox = open_reward("answered", level=level, reuse=reuse)
    assert sandbox.evaluate(CHAT, "42").score == 1.0
    assert sandbox.evaluate([Message(**each) for each in OTHER], "42").score == 0.0
    assert sandbox.evaluate(CHAT, "42", bonus=0.5, unknown=object()).score == 1.5


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("reuse", [False, True], ids=["fork", "reuse"])
def test_evaluate_runs_an_async_function(open_reward, level, reuse):
    sandbox = open_reward("waited", level=level, reuse=reuse)
    assert [sandbox.evaluate(CHAT, "42").score for _ in range(3)] == [1.0] * 3
    assert not sandbox.function.is_async or level == "none"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ["equal", "all_equal", "Equal"])
def test_evaluate_counts_a_bool_as_zero_or_one(open_reward, level, name):
    sandbox = open_reward(name, level=level)
    other = [{"role": "assistant", "content": "41"}]
    chat = [{"role": "assistant", "content": "42"}]
    scores = [result.score for result in sandbox.evaluate_batch([chat, other], ["42", "42"])]
    assert [(type(score), score) for score in scores] == [(float, 1.0), (float, 0.0)]


@pytest.mark.parametrize("level", LEVELS)
def test_evaluate_returns_a_whole_result(open_reward, level):
    result = open_reward("detailed", level=level).evaluate(CHAT, more=(1, "\ud800"))
    assert (result.score, result.reason, result.log) == (1.0, "matches", None)
    assert result.metrics["inf"] == float("inf")
    assert list(result.metrics["more"]) == [1, "\ud800"]
    [step] = result.step_outputs
    assert (step.base_reward, step.reason, step.metrics) == (0.5, "fair", {"a": [1]})


@pytest.mark.parametrize("level", LEVELS)
def test_evaluate_batch_calls_a_batch_function_once(open_reward, level):
    sandbox = open_reward("shortest", level=level)
    assert sandbox.mode == "batch"
    results = sandbox.evaluate_batch([CHAT, CHAT[:1]])
    assert [result.score for result in results] == [0.0, 1.0]
    assert [result.log for result in results] == [None if level == "none" else "of 2\n", None]


@pytest.mark.parametrize("level", LEVELS)
def test_evaluate_batch_accepts_one_and_no_conversation(open_reward, level):
    sandbox = open_reward("echoed", level=level)
    assert sandbox.evaluate(CHAT, "42").metrics == {"truth": "42"}
    assert sandbox.evaluate_batch([]) == []


@pytest.mark.parametrize("level", LEVELS)
def test_evaluate_batch_calls_a_pointwise_function_in_order(open_reward, level):
    sandbox = open_reward("answered", level=level, workers=2)
    results = sandbox.evaluate_batch([CHAT, OTHER] * 4, ["42"] * 8, bonus=1.0)
    assert [result.score for result in results] == [2.0, 1.0] * 4
    assert sandbox.evaluate_batch([]) == []


@pytest.mark.parametrize("level", LEVELS)
def test_evaluate_batch_accepts_an_array_of_ground_truths(open_reward, level):
    results = open_reward("echoed", level=level).evaluate_batch([CHAT, OTHER], np.array([1, 2]))
    assert [result.metrics["truth"] for result in results] == [1, 2]


@pytest.mark.anyio
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ["answered", "waited"])
async def test_evaluate_async_returns_the_same(open_reward, level, name):
    sandbox = open_reward(name, level=level, workers=2)
    assert (await sandbox.evaluate_async(CHAT, "42")).score == 1.0
    results = await sandbox.evaluate_batch_async([CHAT, OTHER, CHAT], ["42"] * 3)
    assert [result.score for result in results] == [1.0, 0.0, 1.0]


@pytest.mark.anyio
async def test_evaluate_batch_async_returns_the_same(rewards):
    async with EvalSandbox(f"{rewards}:shortest", level="process") as sandbox:
        results = await sandbox.evaluate_batch_async([CHAT, CHAT[:1]])
    assert [result.score for result in results] == [0.0, 1.0]


def test_evaluate_raises_for_an_async_function_in_a_running_loop(open_reward):
    async def call():
        open_reward("waited", level="none").evaluate(CHAT, "42")

    with pytest.raises(AsyncRubricError, match="await evaluate_async"):
        asyncio.run(call())


@pytest.mark.parametrize("level", LEVELS)
def test_eval_sandbox_mode_is_that_of_reward_function(open_reward, level):
    sandbox = open_reward("by_place", "batch", level=level)
    assert [each.score for each in sandbox.evaluate_batch([CHAT, OTHER])] == [0.25, 0.25]
    assert open_reward("answered", "pointwise", level=level).mode == "pointwise"
    assert open_reward("solved", "pointwise", level=level).is_rubric


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ["answered", "solved"])
def test_eval_sandbox_refuses_another_mode(open_reward, level, name):
    with pytest.raises(LoadError, match="takes 'messages', but its mode is 'batch'"):
        open_reward(name, "batch", level=level)


# What is known of it


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ["answered", "detailed", "shortest", "waited", "solved"])
def test_eval_sandbox_attributes_equal_those_of_load_reward(open_reward, rewards, level, name):
    sandbox = open_reward(name, level=level)
    reward = load_reward(f"{rewards}:{name}")
    if isinstance(reward, RewardFunction):
        assert (sandbox.name, sandbox.mode) == (name, reward.mode)
        assert sandbox.parameters == reward.parameters
        assert sandbox.fingerprint == reward.fingerprint
    else:
        assert (sandbox.name, sandbox.is_rubric) == ("NumericAnswer", True)
        assert sandbox.fingerprint == reward.fingerprint()
    assert (sandbox.level, bool(sandbox.promise)) == (level, True)
    assert sandbox.name in repr(sandbox)


def test_eval_sandbox_fingerprint_follows_the_text():
    def fingerprint(text):
        with EvalSandbox(RewardSource(text, "r"), level="process") as sandbox:
            return sandbox.fingerprint

    text = "LIMIT = {}\ndef r(messages): return float(LIMIT)"
    assert fingerprint(text.format(1)) == fingerprint(text.format(1)) != fingerprint(text.format(2))


# A rubric in a sandbox


@pytest.mark.parametrize("level", LOCKED)
def test_evaluate_replays_a_rubric(open_reward, level):
    result = open_reward("both", level=level).evaluate(CHAT, "42")
    assert (result.score, result.metrics) == (0.75, {"rubric_0": 1.0, "rubric_1": 0.5})
    result = open_reward("solved", level=level).evaluate([*CHAT, *OTHER], "42")
    assert result.score == 1.0
    assert [(each.step_index, each.base_reward) for each in result.step_outputs] == [
        (0, 1.0), (1, 0.0),
    ]  # fmt: skip


@pytest.mark.parametrize("level", LOCKED)
def test_evaluate_names_the_step_at_which_a_rubric_failed(open_reward, level):
    result = open_reward("both", level=level).evaluate([*CHAT, *CHAT], "42")
    assert result.error == "step 1: rubric 'rubric_1': ValueError: no luck"
    assert not result.is_score_valid
    assert result.metrics == {"rubric_0": 2.0, "rubric_1": 0.5}  # until it failed
    assert (
        open_reward("both", level=level).evaluate([]).error.startswith("RolloutError: `messages`")
    )


# Invalid arguments


@pytest.mark.parametrize("level", LEVELS)
def test_evaluate_refuses_invalid_messages(open_reward, level):
    sandbox = open_reward("answered", level=level)
    with pytest.raises(InvalidArgumentError, match=r"messages\[0\]"):
        sandbox.evaluate([{"role": "unknown", "content": "x"}])
    with pytest.raises(InvalidArgumentError, match=r"rollouts_messages\[1\]` must be .* got 'x'"):
        sandbox.evaluate_batch([CHAT, "x"])
    with pytest.raises(InvalidArgumentError, match=r"`rollouts_messages` must be .* got 'xy'"):
        sandbox.evaluate_batch("xy")
    with pytest.raises(InvalidArgumentError, match=r"with one for each of 2 rollouts"):
        sandbox.evaluate_batch([CHAT, CHAT], ["42"])


def test_evaluate_names_a_value_that_json_cannot_represent(open_reward):
    sandbox = open_reward("answered")
    with pytest.raises(InvalidArgumentError, match=r"^ground_truth is \{1\} \(set\)"):
        sandbox.evaluate(CHAT, {1})
    with pytest.raises(InvalidArgumentError, match=r"^bonus\['x'\] is 1j \(complex\)"):
        sandbox.evaluate(CHAT, "42", bonus={"x": 1j})
    with pytest.raises(InvalidArgumentError, match=r"^ground_truths\[1\]\[0\] is b'1' \(bytes\)"):
        sandbox.evaluate_batch([CHAT, CHAT], ["42", [b"1"]])
    with pytest.raises(InvalidArgumentError, match=r"^rollouts_messages\[1\]\[0\]\['at'\] is"):
        sandbox.evaluate_batch([CHAT, [{"role": "user", "content": "", "at": {1}}]])


def test_evaluate_does_not_send_unknown_arguments(open_reward):
    assert open_reward("odd").evaluate(CHAT, {1}, how="well", more={1}).score == 1.0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"workers": 0}, "`workers` must be .* got 0"),
        ({"workers": True}, "`workers` must be .* got True"),
        ({"mode": "both"}, "`mode` must be 'pointwise' or 'batch', got 'both'"),
        ({"allow_read": "/tmp"}, "`allow_read` must be a list, got '/tmp'"),
        ({"level": "no such"}, "`level` must be .* got 'no such'"),
        ({"spec": 3}, "`spec` must be file.py:name, .* got 3"),
    ],
    ids=["workers", "bool", "mode", "read", "level", "spec"],
)
def test_eval_sandbox_refuses_an_invalid_argument(arguments, expected):
    arguments = {"spec": "guerdon:NumericAnswer", "level": "process", **arguments}
    with pytest.raises(InvalidArgumentError, match=expected):
        EvalSandbox(**arguments)


@pytest.mark.parametrize("level", LEVELS)
def test_evaluate_raises_after_close(rewards, level):
    sandbox = EvalSandbox(f"{rewards}:answered", level=level)
    sandbox.close()
    sandbox.close()
    with pytest.raises(SandboxError, match="the sandbox of answered is closed"):
        sandbox.evaluate(CHAT, "42")


# As a reward function


@pytest.mark.parametrize("level", LEVELS)
def test_eval_sandbox_function_is_a_reward_function(open_reward, level):
    function = open_reward("answered", level=level).function
    rollout = Rollout.from_row({"messages": CHAT, "ground_truth": "42", "bonus": 0.5})
    [row] = score_rollouts(function, [rollout])
    assert (row["score"], row["error"]) == (1.5, None)
    [row] = score_rollouts(as_rubric(function), [rollout])
    assert row["score"] == 1.5
    assert function(CHAT, "42").score == 1.0


def test_score_rollouts_keeps_the_log_of_a_sandbox(open_reward):
    function = open_reward("shortest").function
    rollouts = [
        Rollout.from_row({"messages": messages, "group": 1})
        for messages in ([*CHAT, *CHAT], CHAT, CHAT)
    ]
    rows = list(score_rollouts(function, rollouts))
    assert [row["score"] for row in rows] == [0.0, 1.0, 1.0]
    assert [row.get("log") for row in rows] == ["of 3\n", None, None]


def test_score_rollouts_marks_a_row_invalid_that_cannot_be_sent(open_reward):
    function = open_reward("detailed").function
    rollout = Rollout.from_row({"messages": CHAT, "when": {1}})
    [row] = score_rollouts(function, [rollout])
    assert row["error"].startswith("InvalidArgumentError: when is {1} (set)")


def test_eval_sandbox_function_cannot_be_pickled(open_reward):
    with pytest.raises(InvalidArgumentError, match="answered runs in a sandbox of this process"):
        pickle.dumps(open_reward("answered").function)
