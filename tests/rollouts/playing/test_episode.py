"""Episodes, turn by turn: what is recorded, how they end, what goes wrong."""

import asyncio
import itertools
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.connect4.environment import Connect4Environment
from guerdon import (
    Message,
    NumericAnswer,
    Rollout,
    Rubric,
    _patterns,
    score_rollouts,
)
from guerdon.rollouts.playing.policies import PolicyOutput, ReplayPolicy, ScriptedPolicy
from guerdon.rollouts.playing.worker import RLRolloutWorker
from tests.rollouts.playing.guessing import AsyncGuessing, Guessing, guesses, play, texts

# An episode


@pytest.mark.parametrize("kind", [Guessing, AsyncGuessing])
def test_rollout_worker_records_an_episode_step_by_step(kind):
    record = play(kind, guesses(8, 7), rollout_id="e1")
    assert (record.id, record.ended, record.error) == ("e1", "done", None)
    assert texts(record) == [
        ("user", "Which number?"),
        ("assistant", '{"number": 8}'),
        ("user", "no"),
        ("assistant", '{"number": 7}'),
        ("user", "yes"),
    ]
    first, second = record.steps
    assert first.observation_data == {"text": "Which number?", "secret": 0}
    # The lock is nothing that JSON can hold.
    assert first.step_info["reset_metadata"] == {"episode": "e1"}
    assert "reset_metadata" not in second.step_info
    assert first.action_taken == {"number": 8}
    assert first.raw_policy_output == '{"number": 8}'
    assert (first.is_done, second.is_done) == (False, True)
    assert record.env_rewards == [0.5, 1.0]
    assert second.step_info["assistant_turn_index"] == 1
    assert second.step_info["env_metadata"]["reward_components"] == {}
    assert second.observation_data["text"] == "no"


def test_rollout_worker_messages_are_shared_between_steps():
    record = play(Guessing, guesses(8, 7))
    first, second = record.steps
    assert [len(step.resulting_messages_history) for step in record.steps] == [3, 5]
    for history in (first.resulting_messages_history, second.resulting_messages_history):
        for mine, whole in zip(history, record.messages, strict=False):
            assert mine is whole


def test_rollout_record_row_is_scored_like_any_rollout():
    policy = ScriptedPolicy([PolicyOutput({"number": 7}, "A: 7")])
    record = play(Guessing, policy, {"id": "q", "ground_truth": "7", "level": 2})
    row = json.loads(json.dumps(record.to_row(), allow_nan=False))
    assert (row["group"], row["level"], row["ground_truth"]) == ("q", 2, "7")
    [scored] = score_rollouts(NumericAnswer(), [Rollout.from_row(row)])
    assert scored["score"] == 1.0


def test_rollout_worker_replays_an_episode_from_its_record():
    record = play(Connect4Environment, ScriptedPolicy([{"column": 3}, {"column": 2}]), seed=5)
    assert record.ended == "error"  # the script ended
    again = play(Connect4Environment, ReplayPolicy(record), seed=5, max_steps=2)
    assert again.ended == "max_steps"
    assert again.messages == record.messages
    assert [step.observation_data for step in again.steps] == [
        step.observation_data for step in record.steps
    ]


def test_rollout_worker_records_logprobs_and_value_estimates():
    policy = ScriptedPolicy([PolicyOutput({"number": 7}, "seven!", [-0.5], 0.25)])
    [step] = play(Guessing, policy).steps
    assert step.policy_logprobs == [-0.5]
    assert step.policy_value_estimate == 0.25


def test_rollout_worker_records_the_info_of_a_policy():
    info = {"finish_reason": "length", "seen": {1}}
    policy = ScriptedPolicy([PolicyOutput({"number": 8}, info=info), {"number": 7}])
    first, second = play(Guessing, policy).steps
    assert first.step_info["policy_info"] == {"finish_reason": "length", "seen": [1]}
    assert "policy_info" not in second.step_info


def test_run_sync_returns_a_record():
    record = RLRolloutWorker(Guessing, guesses(7), max_steps=3).run_sync(seed=7)
    assert (record.ended, record.seed) == ("done", 7)


def test_run_group_sync_returns_records():
    worker = RLRolloutWorker(Guessing, guesses(7), max_steps=3)
    assert [record.ended for record in worker.run_group_sync(None, 2, seed=7)] == ["done"] * 2


@given(
    numbers=st.lists(st.integers(1, 9) | st.sampled_from([13, "x"]), max_size=6),
    max_steps=st.integers(1, 6),
    examples=st.integers(0, 2),
)
@settings(max_examples=50)
def test_rollout_worker_each_step_is_one_turn_of_the_conversation(numbers, max_steps, examples):
    policy = ScriptedPolicy([{"number": n} for n in numbers], first_turn=examples)
    messages = [{"role": "assistant", "content": "…"}] * examples
    task = {"messages": messages} if messages else None
    record = play(Guessing, policy, task, max_steps=max_steps)
    turns = [place for place, each in enumerate(record.messages) if each.role == "assistant"]
    assert len(record.steps) == len(turns) - examples <= max_steps
    for number, step in enumerate(record.steps):
        turn = step.step_info["assistant_turn_index"]
        history = step.resulting_messages_history
        assert (step.system_step_index, turn) == (number, number + examples)
        assert history == record.messages[: len(history)]
        assert history[turns[turn]].text == step.raw_policy_output
        assert step.is_done == (record.ended == "done" and step is record.steps[-1])
    assert (record.error is None) == (record.ended != "error")
    assert record.first_turn == examples
    if record.steps:
        read = Rollout.from_row(record.to_row()).steps
        assert [action.turn for action, _ in read] == [
            step.step_info["assistant_turn_index"] for step in record.steps
        ]


class Unseeded:
    """An environment whose reset takes no seed."""

    def reset(self):
        return {"text": "Which number?", "done": False}

    def step(self, action):
        return {"text": "yes", "done": True, "reward": 1.0}


def test_rollout_worker_logs_and_drops_a_seed_that_the_reset_rejects(caplog):
    record = play(Unseeded, guesses(7), seed=7, rollout_id="e1")
    assert (record.ended, record.seed, record.to_row()["seed"]) == ("done", None, None)
    assert "accepts no seed" in caplog.text
    assert "'e1'" in caplog.text


@pytest.mark.parametrize(("kind", "seed"), [(Unseeded, None), (Guessing, 7)], ids=["none", "taken"])
def test_rollout_worker_logs_nothing_about_an_accepted_seed(kind, seed, caplog):
    record = play(kind, guesses(7), seed=seed)
    assert (record.ended, record.seed, caplog.text) == ("done", seed, "")


# How it ends


def test_rollout_worker_max_steps_ends_an_episode():
    record = play(Guessing, guesses(1, 2, 3), max_steps=2)
    assert (record.ended, len(record.steps), record.steps[-1].is_done) == ("max_steps", 2, False)


def test_rollout_worker_done_at_max_steps_is_done():
    assert play(Guessing, guesses(7), max_steps=1).ended == "done"


class Stop:
    type = "terminate"


@pytest.mark.parametrize("stop", [{"type": "terminate"}, Stop()], ids=["dict", "object"])
def test_rollout_worker_records_and_does_not_send_a_terminating_action(stop):
    environment = Guessing()
    record = play(environment, ScriptedPolicy([{"number": 1}, PolicyOutput(stop, "enough")]))
    assert record.ended == "terminate"
    assert [step.is_done for step in record.steps] == [False, True]
    assert record.env_rewards == [pytest.approx(1 / 7), None]
    assert texts(record)[-1] == ("assistant", "enough")


def test_rollout_worker_to_action_may_terminate():
    def read(action):
        return {"type": "terminate"} if action["content"] == "stop" else {"number": 1}

    record = play(Guessing, ScriptedPolicy(["go", "stop"]), to_action=read)
    assert (record.ended, len(record.steps)) == ("terminate", 2)


def test_rollout_worker_stop_pattern_ends_the_episode_after_its_step():
    policy = ScriptedPolicy([PolicyOutput({"number": n}, f"{n} FINAL") for n in (1, 2)])
    record = play(Guessing, policy, stop_pattern=r"2\s+FINAL")
    assert (record.ended, len(record.steps)) == ("pattern", 2)
    assert record.env_rewards[-1] == pytest.approx(1 / 6)
    assert record.steps[-1].is_done is False


def test_rollout_worker_accepts_a_compiled_stop_pattern():
    record = play(Guessing, guesses(1), stop_pattern=re.compile("NUMBER", re.IGNORECASE))
    assert record.ended == "pattern"


def test_rollout_worker_stop_pattern_that_takes_too_long_fails_the_episode(monkeypatch):
    monkeypatch.setattr(_patterns, "MATCH_SECONDS", 0.05)
    policy = ScriptedPolicy([PolicyOutput({"number": 1}, "a" * 2000)])
    record = play(Guessing, policy, stop_pattern="(?:a.*){6}b")
    assert (record.ended, len(record.steps)) == ("error", 1)
    assert "`stop_pattern` '(?:a.*){6}b' took more than 0.05 s" in record.error


# What goes wrong


def test_rollout_worker_records_a_failed_step_with_its_error():
    record = play(Guessing, guesses(8, 13))
    assert record.ended == "error"
    assert record.error == "step 1: OSError: the game is down"
    assert [step.step_info.get("error") for step in record.steps] == [None, record.error]
    assert record.env_rewards == [0.5, None]
    assert texts(record)[-1] == ("assistant", '{"number": 13}')
    assert record.steps[-1].resulting_messages_history == record.messages


def test_rollout_worker_failed_policy_keeps_the_steps_before():
    record = play(Guessing, guesses(8))
    assert record.ended == "error"
    assert "the policy at step 1: PolicyError: the script has 1 turns" in record.error
    assert [step.step_info.get("error") for step in record.steps] == [None]


def test_rollout_worker_reports_an_invalid_action():
    record = play(Guessing, ScriptedPolicy([{"nummer": 8}]))
    assert record.ended == "error"
    assert "is not a valid Guess: number: Field required" in record.error


def test_rollout_worker_reports_a_failed_reset():
    class Broken(Guessing):
        def reset(self, seed=None, **kwargs):
            raise OSError("no board")

    record = play(Broken, guesses(8))
    assert (record.ended, record.error, record.steps) == ("error", "reset: OSError: no board", [])


def test_rollout_worker_reports_a_failed_factory():
    def factory():
        raise OSError("no room")

    record = play(factory, guesses(8))
    assert record.error == "making the environment: OSError: no room"


def test_rollout_worker_reports_a_factory_that_returns_no_environment():
    assert "must have reset and step, got 5" in play(lambda: 5, guesses(8)).error


def test_rollout_worker_sys_exit_of_an_environment_ends_its_episode_only():
    class Exits(Guessing):
        def step(self, action, **kwargs):
            raise SystemExit(3)

    assert "sys.exit(3)" in play(Exits, guesses(8)).error


def test_rollout_worker_continues_after_a_failed_rubric():
    class Down(Rubric):
        def forward(self, action, observation):
            raise OSError("the judge is down")

    class Unjudged(Guessing):
        def __init__(self):
            super().__init__()
            self.rubric = Down()

    record = play(Unjudged, guesses(8, 7))
    assert record.ended == "done"
    assert record.env_rewards == [None, None]
    assert "the judge is down" in record.steps[0].step_info["env_metadata"]["reward_error"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param(None, "got None", id="nothing"),
        pytest.param(({}, "", None), "tuple of 3", id="three"),
        pytest.param("column 3", "got 'column 3'", id="text"),
        pytest.param([{}, "", None, None], "list of 4", id="list"),
        pytest.param(
            PolicyOutput({}, message=Message(role="user", content="?")), "got 'user'", id="user"
        ),
        pytest.param(({}, None, None, None), "raw output must be a string, got None", id="no text"),
        pytest.param(
            ({}, "", None, float("nan")), "must be a finite number or None, got nan", id="NaN"
        ),
    ],
)
def test_rollout_worker_reports_an_invalid_policy_output(given, message):
    class Policy:
        async def get_action(self, observation, available_tools_specs=None):
            return given

    record = play(Guessing, Policy())
    assert record.ended == "error"
    assert "PolicyError" in record.error
    assert message in record.error
    assert record.steps == []


def test_rollout_worker_reports_a_sync_policy():
    class Policy:
        def get_action(self, observation, available_tools_specs=None):
            return {"number": 7}, "", None, None

    assert "get_action must be async" in play(Guessing, Policy()).error


def test_rollout_worker_accepts_any_tuple_of_four():
    class Policy:
        async def get_action(self, observation, available_tools_specs=None):
            return {"number": 7}, "seven", None, 1

    assert play(Guessing, Policy()).ended == "done"


def test_rollout_worker_policy_that_cancels_itself_cancels_nothing_else():
    class Policy:
        async def get_action(self, observation, available_tools_specs=None):
            raise asyncio.CancelledError

    assert "PolicyError: the policy ended itself" in play(Guessing, Policy()).error


def test_rollout_worker_sys_exit_of_a_policy_ends_its_episode_only():
    class Policy:
        async def get_action(self, observation, available_tools_specs=None):
            raise SystemExit(3)

    record = play(Guessing, Policy())
    assert record.ended == "error"
    assert record.error == "the policy at step 0: PolicyError: the policy raised SystemExit(3)"


def ends_the_program(*given):
    raise SystemExit(3)


class SyncExit:
    def get_action(self, observation, available_tools_specs=None):
        raise SystemExit(3)


@pytest.mark.parametrize(
    ("options", "doing"),
    [
        pytest.param({"policy": SyncExit()}, "the policy at step 0: ", id="sync policy"),
        pytest.param({"to_action": ends_the_program}, "step 0: ", id="to_action"),
        pytest.param({"to_messages": ends_the_program}, "reset: ", id="to_messages"),
    ],
)
def test_rollout_worker_system_exit_anywhere_ends_its_episode_only(options, doing):
    record = play(Guessing, **{"policy": guesses(8)} | options)
    assert record.ended == "error"
    assert record.error.startswith(doing)
    assert "SystemExit" in record.error


def test_rollout_worker_reports_a_failure_after_a_step_as_episode_error():
    record = play(Guessing, guesses(8, 9))
    assert "the policy at step 2" in record.error
    assert [step.step_info.get("episode_error") for step in record.steps] == [None, record.error]
    assert [step.step_info.get("error") for step in record.steps] == [None, None]


def test_run_group_continues_after_sys_exit_of_a_policy():
    class Policy:
        async def get_action(self, observation, available_tools_specs=None):
            if next(numbers) == 1:
                raise SystemExit(3)
            return {"number": 7}, "", None, None

    numbers = itertools.count()
    records = RLRolloutWorker(Guessing, Policy(), max_steps=3).run_group_sync(None, 3, seed=7)
    assert sorted(record.ended for record in records) == ["done", "done", "error"]


def test_rollout_worker_abandons_a_hanging_policy():
    ended = []

    class Policy:
        async def get_action(self, observation, available_tools_specs=None):
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("policy")

    record = play(Guessing, Policy(), policy_timeout=0.05)
    assert record.error == "the policy at step 0: PolicyError: the policy took longer than 0.05 s"
    assert ended == ["policy"]
