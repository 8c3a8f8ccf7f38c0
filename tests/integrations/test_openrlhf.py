"""`guerdon.integrations.openrlhf`, without OpenRLHF; `make trainers` tests both together."""

import asyncio
import logging
import math
import sys
from types import SimpleNamespace

import pytest

from guerdon import reward_function
from guerdon.errors import (
    EnvError,
    InvalidArgumentError,
    MissingExtraError,
    RewardFunctionError,
)
from guerdon.integrations.openrlhf import agent, reward_func
from trainers.locks import AsyncJudge, Judge, Lock, tree

PROMPT = "<|im_start|>user\n6 × 7?<|im_end|>\n<|im_start|>assistant\n"


def scored(function, answer, label="42"):
    return function([f"{PROMPT}{answer}"], [PROMPT], [label])


@pytest.mark.parametrize("judge", [Judge, AsyncJudge])
def test_reward_func_returns_the_dict_of_openrlhf(judge):
    logs = {"rubric_0": 1.0, "rubric_1": 1.0, "reward_failed": 0.0}
    assert scored(reward_func(tree(judge)), "A: 42<|im_end|>\n") == {
        "rewards": 1.0,
        "scores": 1.0,
        "extra_logs": logs,
    }


@pytest.mark.parametrize("judge", [Judge, AsyncJudge])
def test_reward_func_raises_and_logs_an_error_if_the_reward_fails(judge, caplog):
    with pytest.raises(RewardFunctionError, match=r"the reward failed: .*the judge is down"):
        scored(reward_func(tree(judge)), "down")
    assert [each.levelname for each in caplog.records] == ["ERROR"]
    assert "the judge is down" in caplog.text


def test_reward_func_returns_the_number_of_on_invalid_and_all_components_if_the_reward_fails():
    function = reward_func(tree(), on_invalid=-2)
    result = scored(function, "down")
    logs = result.pop("extra_logs")
    assert result == {"rewards": -2.0, "scores": -2.0}
    assert logs.keys() == scored(function, "A: 42")["extra_logs"].keys()
    assert logs["reward_failed"] == 1.0
    assert math.isnan(logs["rubric_1"])


def test_reward_func_scores_the_response_without_the_prompt_and_end_tokens():
    @reward_function
    def shown(messages, topic, ground_truth=None):
        assert [each.text for each in messages] == [PROMPT, "hi "]
        return {"score": len(topic), "metrics": {"length": 3, "note": "no number"}}

    function = reward_func(shown, read_label=lambda label: {"topic": label})
    result = scored(function, "hi <|im_end|></s>\n", "abc")
    assert result["rewards"] == 3.0
    assert result["extra_logs"] == {"length": 3.0, "reward_failed": 0.0}


def test_reward_func_refuses_a_query_without_its_prompt():
    function = reward_func(tree())
    with pytest.raises(InvalidArgumentError, match="does not begin with its prompt"):
        function(["assistant\nA: 42"], [PROMPT], ["42"])


def test_reward_func_refuses_rewards_of_batches():
    @reward_function
    def ranked(rollouts_messages):
        return [0.0] * len(rollouts_messages)

    with pytest.raises(RewardFunctionError, match="ranked scores batches"):
        reward_func(ranked)


def test_reward_func_logs_the_fingerprint(caplog):
    with caplog.at_level(logging.INFO):
        reward_func(tree())
    assert tree().fingerprint() in caplog.text


class Unplayed:
    """An executor whose prompt leaves no token for the model."""

    def __init__(self, agent_instance_cls):
        self.agent_instance_cls = agent_instance_cls

    async def execute(self, prompt, label):
        await self.agent_instance_cls().reset({"observation": prompt, "label": label})
        return {"reward": 0, "scores": 0, "extra_logs": {}}


def test_agent_takes_no_episode_without_a_step_for_a_reward_of_0(monkeypatch):
    names = {"AgentInstanceBase": object, "AgentExecutorBase": object}
    stub = SimpleNamespace(MultiTurnAgentExecutor=Unplayed, **names)
    monkeypatch.setitem(sys.modules, "openrlhf.utils.agent", stub)

    def played(**options):
        executor = agent(Lock, turn="{observation}", **options)()
        return asyncio.run(executor.execute(PROMPT, '{"seed": 37}'))

    with pytest.raises(EnvError, match="ended before its first step"):
        played()
    output = played(on_invalid=-2)
    assert (output["reward"], output["scores"]) == (-2.0, -2.0)
    assert output["extra_logs"]["reward_failed"] == 1.0


def test_agent_states_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "openrlhf.utils.agent", None)
    with pytest.raises(InvalidArgumentError, match=r"must contain \{observation\}"):
        agent(Lock, turn="<|im_start|>user")
    with pytest.raises(MissingExtraError, match="pip install openrlhf"):
        agent(Lock, turn="{observation}")
