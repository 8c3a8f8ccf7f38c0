"""Rewards that are named by a file, in the adapters that pass one rollout at a time."""

import asyncio
import logging
from unittest.mock import patch

import pytest

from guerdon import Rubric, open_reward
from guerdon.errors import InvalidArgumentError
from guerdon.integrations import openrlhf, skyrl, trl, verl
from guerdon.integrations.conversation_reward import ConversationReward
from guerdon.rollouts.scoring.scorers import scorer_of
from tests.integrations.reward_files import write_reward
from trainers.skyrl_gym_stand_in import SKYRL_GYM

SCHEDULE = ", schedule: {by: training_step, piecewise: [[0, 1.0], [100, 0.0]]}"


def verl_score(reward):
    row = verl.compute_score(reward)(
        data_source="sums", solution_str="A: 42", ground_truth="42", extra_info={}
    )
    assert {"words", "correct"} <= row.keys()
    return row["score"]


def openrlhf_score(reward):
    return openrlhf.reward_func(reward)(["6 x 7?A: 42"], ["6 x 7?"], ["42"])["rewards"]


def skyrl_score(reward):
    with patch.object(skyrl, "import_framework", return_value=SKYRL_GYM):
        env = skyrl.reward_environment(reward)(extras={"ground_truth": "42"})
    env.init([{"role": "user", "content": "6 x 7?"}])
    return env.step("A: 42")["reward"]


@pytest.mark.parametrize("score", [verl_score, openrlhf_score, skyrl_score])
def test_compute_score_and_reward_func_take_the_file_of_a_pipeline(score, tmp_path):
    assert score(write_reward(tmp_path)) == 1.5
    assert score(str(tmp_path / "reward.yaml")) == 1.5


@pytest.mark.parametrize("make", [verl.compute_score, openrlhf.reward_func, skyrl_score])
def test_compute_score_and_reward_func_refuse_schedules(make, tmp_path):
    path = write_reward(tmp_path, SCHEDULE)
    with pytest.raises(InvalidArgumentError, match=r"reward\.yaml has schedules"):
        make(path)


def test_conversation_reward_logs_the_fingerprint_that_guerdon_score_computes(tmp_path, caplog):
    path = str(write_reward(tmp_path))
    with caplog.at_level(logging.INFO):
        reward = ConversationReward(path)
    with open_reward(path) as tree:
        assert reward.fingerprint == scorer_of(tree).fingerprint
    assert reward.fingerprint in caplog.text


class Judge(Rubric):
    """A rubric that can be called either way, and scores once two calls wait for it."""

    def __init__(self):
        super().__init__()
        self._waiting, self._together = 0, asyncio.Event()

    def forward(self, action, observation):
        return 0.5

    async def forward_async(self, action, observation):
        self._waiting += 1
        if self._waiting == 2:
            self._together.set()
        await asyncio.wait_for(self._together.wait(), 10)
        return 0.5


def test_trl_reward_func_waits_for_the_answers_of_a_judge_together():
    func = trl.reward_func(Judge(), name="judge")
    assert asyncio.run(func(["6 x 7?"] * 2, ["A: 42", "A: 41"])) == [0.5, 0.5]


def test_verl_compute_score_is_async_with_a_judge():
    function = verl.compute_score(Judge())

    async def both():
        row = {"data_source": "sums", "ground_truth": "42", "extra_info": {}}
        return await asyncio.gather(*(function(solution_str=text, **row) for text in ("42", "41")))

    assert [row["score"] for row in asyncio.run(both())] == [0.5, 0.5]
