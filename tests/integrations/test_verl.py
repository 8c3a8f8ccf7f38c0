"""`guerdon.integrations.verl`, without verl; `make trainers` tests both together."""

import asyncio
import logging
import math
import sys

import pytest

from guerdon import reward_function
from guerdon.errors import MissingExtraError, RewardFunctionError
from guerdon.integrations.verl import agent_loop, compute_score, register
from trainers.locks import AsyncJudge, Judge, Lock, tree


def scored(function, answer, **row):
    row = {"data_source": "sums", "ground_truth": "42", "extra_info": {"index": 3}} | row
    result = function(solution_str=answer, **row)
    return asyncio.run(result) if asyncio.iscoroutinefunction(function) else result


@pytest.mark.parametrize("judge", [Judge, AsyncJudge])
def test_compute_score_returns_the_dict_of_verl_and_is_async_as_the_reward_is(judge):
    function = compute_score(tree(judge))
    assert asyncio.iscoroutinefunction(function) == (judge is AsyncJudge)
    expected = {"rubric_0": 1.0, "rubric_1": 1.0, "reward_failed": 0.0, "score": 1.0}
    assert scored(function, "A: 42") == expected
    assert scored(function, "A: 42", extra_info=None, reward_router_address="") == expected


@pytest.mark.parametrize("judge", [Judge, AsyncJudge])
def test_compute_score_raises_and_logs_an_error_if_the_reward_fails(judge, caplog):
    with pytest.raises(RewardFunctionError, match=r"the reward failed: .*the judge is down"):
        scored(compute_score(tree(judge)), "down")
    assert [each.levelname for each in caplog.records] == ["ERROR"]
    assert "the judge is down" in caplog.text


@pytest.mark.parametrize("judge", [Judge, AsyncJudge])
def test_compute_score_returns_the_number_of_on_invalid_and_the_same_keys(judge):
    function = compute_score(tree(judge), on_invalid=-2)
    result = scored(function, "down")
    assert (result["score"], result["reward_failed"]) == (-2.0, 1.0)
    assert math.isnan(result["rubric_1"])
    assert list(result) == list(scored(function, "A: 42"))


def test_compute_score_gives_a_reward_function_the_response_and_the_columns():
    @reward_function
    def shown(messages, messages_seen, data_source, index, ground_truth=None):
        assert [(each.role, each.text) for each in messages] == [("assistant", "hi")]
        score = float(f"{index}{ground_truth}")
        return {"score": score, "metrics": {data_source: 3, messages_seen: 1}}

    row = {"extra_info": {"index": 3, "messages": ["another"], "messages_seen": "x"}}
    expected = {"reward_failed": 0.0, "score": 342.0}
    assert scored(compute_score(shown), "hi", **row) == expected


def test_compute_score_raises_no_timeout_of_a_reward_which_verl_would_count_as_0():
    @reward_function
    def slow(messages):
        raise TimeoutError("the judge is slow")

    with pytest.raises(RewardFunctionError, match="the judge is slow"):
        scored(compute_score(slow), "hi")


def test_compute_score_refuses_rewards_of_batches():
    @reward_function
    def ranked(rollouts_messages):
        return [0.0] * len(rollouts_messages)

    with pytest.raises(RewardFunctionError, match="ranked scores batches"):
        compute_score(ranked)


def test_compute_score_logs_the_fingerprint(caplog):
    with caplog.at_level(logging.INFO):
        compute_score(tree())
    assert tree().fingerprint() in caplog.text


def test_register_and_agent_loop_state_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "verl.trainer.ppo.core_algos", None)
    monkeypatch.setitem(sys.modules, "verl.experimental.agent_loop.agent_loop", None)
    with pytest.raises(MissingExtraError, match="pip install 'verl"):
        register()
    with pytest.raises(MissingExtraError, match="pip install 'verl"):
        agent_loop(Lock, name="lock")
