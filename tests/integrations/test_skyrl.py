"""`guerdon.integrations.skyrl`, without SkyRL; `make trainers` tests both together."""

import math
import sys

import pytest

from guerdon import TrajectoryRubric, reward_function
from guerdon.errors import EnvError, InvalidActionError, MissingExtraError, RewardFunctionError
from guerdon.integrations import skyrl
from guerdon.integrations.skyrl import environment, register, reward_environment
from trainers.locks import AsyncJudge, Judge, Lock, tree
from trainers.skyrl_gym_stand_in import SKYRL_GYM

SUM = [{"role": "user", "content": "6 × 7?"}]
EXTRAS = {"reward_spec": {"method": "rule", "ground_truth": "42"}, "max_turns": 1}


@pytest.fixture
def gym(monkeypatch):
    """Replace SkyRL-Gym."""
    monkeypatch.setattr(skyrl, "import_framework", lambda module, install: SKYRL_GYM)


def answered(env_class, answer, extras=EXTRAS, prompt=SUM):
    env = env_class(env_config={}, extras=extras)
    env.init(prompt)
    return env, env.step(answer)


@pytest.mark.usefixtures("gym")
@pytest.mark.parametrize("judge", [Judge, AsyncJudge])
def test_reward_environment_scores_one_turn(judge):
    env, turn = answered(reward_environment(tree(judge)), "A: 42")
    assert turn == {"observations": [], "reward": 1.0, "done": True, "metadata": {}}
    logs = {"rubric_0": 1.0, "rubric_1": 1.0, "turns": 1.0, "reward_failed": 0.0}
    assert env.get_metrics() == logs


@pytest.mark.usefixtures("gym")
@pytest.mark.parametrize("judge", [Judge, AsyncJudge])
def test_reward_environment_raises_and_logs_an_error_if_the_reward_fails(judge, caplog):
    with pytest.raises(RewardFunctionError, match=r"the reward failed: .*the judge is down"):
        answered(reward_environment(tree(judge)), "down")
    assert [each.levelname for each in caplog.records] == ["ERROR"]
    assert "the judge is down" in caplog.text


@pytest.mark.usefixtures("gym")
def test_reward_environment_returns_the_number_of_on_invalid_and_the_same_metrics():
    env_class = reward_environment(tree(), on_invalid=-2)
    env, turn = answered(env_class, "down")
    assert (turn["reward"], turn["done"]) == (-2.0, True)
    logs = env.get_metrics()
    assert logs["reward_failed"] == 1.0
    assert math.isnan(logs["rubric_1"])
    assert list(logs) == list(answered(env_class, "A: 42")[0].get_metrics())


@pytest.mark.usefixtures("gym")
def test_reward_environment_gives_a_reward_function_the_prompt_and_the_columns():
    @reward_function
    def shown(messages, data_source, ground_truth=None):
        return {"score": len(messages), "metrics": {data_source: float(ground_truth)}}

    extras = {**EXTRAS, "data_source": "sums"}
    env, turn = answered(reward_environment(shown), "A: 42", extras)
    assert turn["reward"] == 2.0
    assert env.get_metrics()["sums"] == 42.0


@pytest.mark.usefixtures("gym")
def test_reward_environment_counts_no_assistant_message_of_the_prompt_as_a_step():
    class Turns(TrajectoryRubric):
        def score_trajectory(self, trajectory):
            return len(trajectory)

        def compute_step_rewards(self):
            return [0.0] * len(self.trajectory)

    prompt = [*SUM, {"role": "assistant", "content": "A: 41"}, *SUM]
    assert answered(reward_environment(Turns()), "A: 42", prompt=prompt)[1]["reward"] == 1.0


@pytest.mark.usefixtures("gym")
def test_reward_environment_keeps_the_prompt_if_the_generator_appends_to_it():
    @reward_function
    def length(messages):
        return len(messages)

    env = reward_environment(length)(extras=EXTRAS)
    prompt = [*SUM]
    history, _ = env.init(prompt)
    history.append({"role": "assistant", "content": "A: 42"})
    assert env.step("A: 42")["reward"] == 2.0


@pytest.mark.usefixtures("gym")
def test_reward_environment_refuses_rewards_of_batches():
    @reward_function
    def ranked(rollouts_messages):
        return [0.0] * len(rollouts_messages)

    with pytest.raises(RewardFunctionError, match="ranked scores batches"):
        reward_environment(ranked)


@pytest.mark.usefixtures("gym")
def test_aggregate_metrics_leaves_out_what_was_not_reached():
    rows = [{"right": 1.0, "judged": math.nan}, {"right": 0.0, "judged": 0.5}, {}]
    found = reward_environment(tree()).aggregate_metrics(rows)
    assert found == {"right": 0.5, "judged": 0.5}
    [missing] = reward_environment(tree()).aggregate_metrics([{"judged": math.nan}]).values()
    assert math.isnan(missing)


# Environments

PROMPT = [
    {"role": "system", "content": "Digits only."},
    {"role": "user", "content": "Open it: {observation}"},
]


@pytest.fixture
def locks(gym, monkeypatch):
    """The locks that were made."""
    made = []
    monkeypatch.setattr(Lock, "__init__", _remembering(Lock.__init__, made))
    return made


def _remembering(init, made):
    def remember(self):
        init(self)
        made.append(self)

    return remember


def played(*texts, max_turns=8, **options):
    env = environment(Lock, **options)(extras={"seed": 37, "max_turns": max_turns})
    first, _ = env.init(PROMPT)
    return env, first, [env.step(text) for text in texts]


def test_environment_plays_an_episode(locks):
    env, first, turns = played("3", "5", "7")
    assert first == [PROMPT[0], {"role": "user", "content": "Open it: first dial"}]
    assert [(turn["reward"], turn["done"]) for turn in turns] == [
        (1.0, False),
        (0.0, False),
        (1.0, True),
    ]
    said = [[each["content"] for each in turn["observations"]] for turn in turns]
    assert said == [["click"], ["nothing"], []]
    assert turns[0]["metadata"]["reward_components"] == {"rubric_0": 1.0}
    assert turns[0]["metadata"]["reward_fingerprint"] == Lock().rubric.fingerprint()
    assert env.get_metrics() == {"rubric_0": 2.0, "turns": 3.0, "reward_failed": 0.0}
    env.close()
    env.close()
    assert locks[0].is_closed


@pytest.mark.usefixtures("locks")
def test_environment_ends_an_episode_after_max_turns():
    env, _, turns = played("5", "3", max_turns=2)
    assert [turn["done"] for turn in turns] == [False, True]
    env.close()


@pytest.mark.parametrize(("text", "error"), [("9", EnvError), ("no digit", InvalidActionError)])
def test_environment_raises_and_is_closed_if_a_turn_fails(text, error, locks):
    env, _, _ = played("3")
    with pytest.raises(error):
        env.step(text)
    assert locks[0].is_closed


@pytest.mark.parametrize("text", ["9", "no digit"])
def test_environment_ends_an_episode_with_the_number_of_on_invalid(text, locks):
    env, _, turns = played("3", text, on_invalid=-2)
    assert [(turn["reward"], turn["done"]) for turn in turns] == [(1.0, False), (-2.0, True)]
    assert env.get_metrics() == {"rubric_0": 1.0, "turns": 2.0, "reward_failed": 1.0}
    assert locks[0].is_closed


def test_environment_raises_and_is_closed_if_the_reset_fails(locks):
    class Jammed(Lock):
        def reset(self, seed=0):
            raise OSError("the lock is jammed")

    env = environment(Jammed, on_invalid=-2)(extras={"seed": 37, "data_source": "locks"})
    with pytest.raises(OSError, match="the lock is jammed"):
        env.init(PROMPT)
    assert locks[0].is_closed


def test_environment_is_closed_if_a_message_of_the_prompt_has_no_content(locks):
    env = environment(Lock)(extras={"seed": 37})
    with pytest.raises(KeyError, match="content"):
        env.init([{"role": "user"}])
    assert locks[0].is_closed


@pytest.mark.usefixtures("locks")
def test_environment_takes_functions_that_convert_actions_and_observations():
    env, first, [turn] = played(
        "three", to_action=lambda text: {"digit": len(text) - 2}, observation_text=lambda seen: "?"
    )
    assert first[1]["content"] == "Open it: ?"
    assert turn["reward"] == 1.0
    env.close()


@pytest.mark.parametrize("make", [lambda: reward_environment(tree()), lambda: environment(Lock)])
def test_environments_state_what_is_missing(make, monkeypatch):
    monkeypatch.setitem(sys.modules, "skyrl_gym.envs.base_text_env", None)
    with pytest.raises(MissingExtraError, match="pip install skyrl-gym"):
        make()


def test_register_states_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "skyrl.backends.skyrl_train.utils.ppo_utils", None)
    with pytest.raises(MissingExtraError, match="pip install skyrl"):
        register()
