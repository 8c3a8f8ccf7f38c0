"""The worlds, their tables, and their environments."""

import sys

import numpy as np
import pytest

from guerdon import check_environment
from guerdon.arena import (
    WORLDS,
    KeyMaze,
    Lock,
    Model,
    Outcome,
    StampedMaze,
    World,
    WorldAction,
    WorldEnvironment,
    available_worlds,
)
from guerdon.arena.episodes import episode_seeds, play
from guerdon.arena.exact import uniform_policy
from guerdon.errors import EpisodeError, InvalidActionError, InvalidArgumentError

NAMES = WORLDS.names()


@pytest.mark.parametrize("name", NAMES)
def test_world_describes_different_states_differently(name):
    model = Model.of(WORLDS[name]())
    texts = [model.world.describe(state) for state in model.states]
    assert len(set(texts)) == len(texts)
    assert model.world.name == name
    assert model.world.about


@pytest.mark.parametrize("name", NAMES)
def test_model_has_probabilities_that_add_up_to_one(name):
    model = Model.of(WORLDS[name]())
    going = ~model.is_end
    np.testing.assert_allclose(model.probability[going].sum(-1), 1)
    assert np.all(model.cumulative[going][..., -1] == 1)


@pytest.mark.parametrize("name", NAMES)
def test_world_environment_plays_the_episodes_of_the_tables(name):
    model = Model.of(WORLDS[name]())
    seeds = episode_seeds(np.array([9], np.uint64), 0, 6)
    episodes = play(model, uniform_policy(model)[None], seeds)
    environment = WorldEnvironment(model)
    for number, seed in enumerate(seeds[0].tolist()):
        rows = np.flatnonzero(episodes.episode == number)
        state = environment.reset(seed=seed).state
        for row in rows:
            assert state == episodes.state[row]
            action = model.world.actions[episodes.action[row]]
            observation = environment.step(WorldAction(action=action))
            assert observation.reward == pytest.approx(episodes.reward[row], abs=1e-15)
            state = observation.state
        assert observation.done


@pytest.mark.parametrize("name", NAMES)
def test_world_environment_passes_check_environment(name):
    report = check_environment(
        lambda: WorldEnvironment(WORLDS[name]()),
        actions=[{"action": action} for action in WORLDS[name]().actions],
    )
    assert not report.problems, report.problems


def test_world_environment_refuses_unknown_actions_and_steps_without_an_episode():
    environment = WorldEnvironment(Lock())
    with pytest.raises(EpisodeError, match="call reset"):
        environment.step(WorldAction(action="leave"))
    environment.reset(seed=1)
    with pytest.raises(InvalidActionError, match="`action` must be 'set 0'"):
        environment.step(WorldAction(action="kick"))
    assert environment.step(WorldAction(action="leave")).done
    with pytest.raises(EpisodeError):
        environment.step(WorldAction(action="leave"))


def test_stamped_maze_never_shows_the_same_text_twice():
    environment = WorldEnvironment(StampedMaze())
    texts = [environment.reset(seed=seed).text for seed in range(3)]
    texts += [environment.step(WorldAction(action="up")).text for _ in range(3)]
    assert len(set(texts)) == 6


def test_model_with_reward_uses_another_rubric():
    from guerdon.rubrics import as_rubric

    model = Model.of(KeyMaze())
    other = model.with_reward(as_rubric(lambda action, observation: 2.0 * observation.done))
    assert other.reward.max() == 2.0
    assert model.reward.max() == 1.0


def test_available_worlds_leave_out_frozen_lake_without_gymnasium(monkeypatch, caplog):
    assert available_worlds() == NAMES
    monkeypatch.setitem(sys.modules, "gymnasium.envs.toy_text.frozen_lake", None)
    assert set(NAMES) - set(available_worlds()) == {"frozen-lake"}
    assert "pip install 'guerdon[gymnasium]'" in caplog.text


class Broken(World):
    name = "broken"
    actions = ("go",)
    max_steps = 3
    weights = {"coin": 1.0}  # noqa: RUF012

    def __init__(self, outcomes):
        self._outcomes = outcomes

    def initial(self):
        return 0

    def outcomes(self, state, action):
        return self._outcomes(state)


@pytest.mark.parametrize(
    ("outcomes", "problem"),
    [
        (lambda state: [], r"probabilities in \(0, 1\]"),
        (lambda state: [Outcome(1.5, 1)], r"probabilities in \(0, 1\]"),
        (lambda state: [Outcome(0.5, 1)], r"add up to 1, got 0.5"),
        (lambda state: [Outcome(1.0, 1, ["gold"])], r"events among \['coin'\], got \['gold'\]"),
        (lambda state: [Outcome(1.0, state + 1)], "more than 20,000 states"),
    ],
)
def test_model_refuses_invalid_worlds(outcomes, problem):
    with pytest.raises(InvalidArgumentError, match=problem):
        Model.of(Broken(outcomes))


def test_model_cuts_off_a_world_that_never_ends():
    model = Model.of(Broken(lambda state: [Outcome(1.0, 0, ["coin"])]))
    episodes = play(model, uniform_policy(model)[None], np.array([[1, 2]], np.uint64))
    assert np.bincount(episodes.episode).tolist() == [3, 3]


@pytest.mark.parametrize("steps", [0, 20_000, 2.5])
def test_model_refuses_max_steps_out_of_range(steps):
    world = Broken(lambda state: [Outcome(1.0, 0)])
    world.max_steps = steps
    with pytest.raises(InvalidArgumentError, match="`max_steps` must be"):
        Model.of(world)
