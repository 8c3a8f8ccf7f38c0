"""What an observation says of its reward, on its way to a tracker."""

import json

import pytest

from guerdon import RewardLogger, RubricComposer, StepResult
from guerdon.errors import InvalidArgumentError
from guerdon.tracking import reward_fields
from tests.envs.worlds import Down, Half, Move, World


def seen(rubric):
    world = World(rubric)
    world.reset()
    return world.step(Move())


def test_a_reward_is_logged_with_its_components(tmp_path):
    observation = seen(RubricComposer({"half": Half()}, {"half": 2.0}, normalize=False))
    with RewardLogger("jsonl", path=tmp_path, run_name="run") as logger:
        logger.log_step(1, 0, **reward_fields(observation))
    record = json.loads((tmp_path / "run" / "rewards.jsonl").read_text())
    assert (record["metrics"]["reward/total"], record["metrics"]["reward/half"]) == (1.0, 0.5)


def test_a_reward_that_failed_names_what_failed(tmp_path):
    observation = seen(RubricComposer({"half": Half(), "judge": Down()}, [1.0, 1.0]))
    with RewardLogger("jsonl", path=tmp_path, run_name="run") as logger:
        logger.log_step(1, 0, **reward_fields(observation))
    record = json.loads((tmp_path / "run" / "rewards.jsonl").read_text())
    assert record["metrics"] == {
        "reward/half": 0.5,
        "reward/invalid/judge": 1.0,
        "reward/invalid/total": 1.0,
    }


def test_a_clients_result_is_taken_as_well():
    result = StepResult({"text": "hi"}, 0.5, False, {"reward_components": {"a": 0.5}})
    assert reward_fields(result)["components"] == {"a": 0.5}
    assert reward_fields(StepResult({}, None, False, None))["components"] == {}


@pytest.mark.parametrize("thing", [None, 0.5, {"reward": 1.0}])
def test_what_is_no_observation_is_refused(thing):
    with pytest.raises(InvalidArgumentError, match="no observation"):
        reward_fields(thing)
