"""Records of episodes, and the rows that they become."""

import json

import numpy as np

from guerdon import Message, Rollout, StepData
from guerdon.rollouts.playing.record import RolloutRecord


def test_rollout_record_row_is_read_as_a_rollout():
    messages = [Message(role="user", content="?"), Message(role="assistant", content="42")]
    steps = [StepData(system_step_index=0, step_info={"env_reward": 0.5})]
    record = RolloutRecord(
        "q-0",
        "q",
        messages=messages,
        steps=steps,
        ground_truth=np.int64(42),
        ended="done",
        seed=3,
        columns={"level": {1}},
    )
    row = json.loads(json.dumps(record.to_row(), allow_nan=False))
    assert row == {
        "id": "q-0",
        "group": "q",
        "messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "42"}],
        "ground_truth": 42,
        "ended": "done",
        "error": None,
        "seed": 3,
        "env_rewards": [0.5],
        "first_turn": 0,
        "level": [1],
    }
    rollout = Rollout.from_row(row)
    assert (rollout.id, rollout.group, len(rollout.steps)) == ("q-0", "q", 1)


def test_rollout_record_row_without_a_ground_truth_has_no_such_column():
    assert "ground_truth" not in RolloutRecord("a").to_row()


def test_rollout_record_step_without_a_reward_has_none():
    steps = [StepData(system_step_index=0), StepData(system_step_index=1)]
    steps[1].step_info["env_reward"] = 0.0
    assert RolloutRecord("a", steps=steps).env_rewards == [None, 0.0]


def test_rollout_record_columns_of_the_task_do_not_override_its_own():
    row = RolloutRecord("a", columns={"id": "other", "ended": "never"}, ended="done").to_row()
    assert (row["id"], row["ended"]) == ("a", "done")
