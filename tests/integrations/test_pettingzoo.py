"""PettingZoo: Codenames and others behind its interfaces, with the package."""

import math
import random
from functools import partial

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo.test import api_test, parallel_api_test, seed_test

from examples.codenames.environment import CodenamesEnvironment
from examples.codenames.play import act
from examples.codenames.words import ASSOCIATIONS
from examples.connect4.environment import Connect4Environment
from guerdon import Action, Environment, Observation, RubricComposer, State
from guerdon.errors import EnvDefinitionError, EnvError, InvalidArgumentError
from guerdon.integrations.pettingzoo import PettingZooAECEnv, PettingZooParallelEnv

CLUES = sorted(ASSOCIATIONS)
COLORS = {"": 0, "agent": 1, "bystander": 2, "assassin": 3}


class Numbers:
    """Codenames in numbers: a clue of the table, or the place of a word, or 25 for a pass."""

    def __init__(self):
        self.words = []

    def to_action(self, number, agent):
        if agent == "spymaster":
            return {"kind": "clue", "word": CLUES[number // 3], "number": int(number % 3) + 1}
        if number == 25:
            return {"kind": "pass"}
        return {"kind": "guess", "word": self.words[number]}

    def to_observation(self, observation, agent):
        self.words = observation.words
        colors = observation.key or observation.revealed
        mask = np.ones(len(CLUES) * 3, np.int8)
        if agent == "guesser":
            hidden = [word not in observation.revealed for word in observation.words]
            mask = np.array([*hidden, True], np.int8)
        board = [COLORS[colors.get(word, "")] for word in observation.words]
        board += [observation.guesses_left, observation.clues_left]
        return {"observation": np.array(board, np.int8), "action_mask": mask}


def codenames(kind, **options):
    def seen(choices):
        board = spaces.Box(0, 25, (27,), np.int8)
        return spaces.Dict({"observation": board, "action_mask": spaces.MultiBinary(choices)})

    numbers = Numbers()
    return kind(
        CodenamesEnvironment,
        action_space={"spymaster": spaces.Discrete(len(CLUES) * 3), "guesser": spaces.Discrete(26)},
        to_action=numbers.to_action,
        observation_space={"spymaster": seen(len(CLUES) * 3), "guesser": seen(26)},
        to_observation=numbers.to_observation,
        **options,
    )


# It recommends other names of agents, and observations without a mask.
@pytest.mark.filterwarnings(
    "ignore:We recommend agents to be named",
    "ignore:Observation space for each agent probably should be",
    "ignore:Observation is not a NumPy array",
    "ignore:Agents have different observation space sizes",
)
def test_pettingzoo_aec_env_passes_api_test_on_codenames():
    api_test(codenames(PettingZooAECEnv), num_cycles=200)


def test_pettingzoo_parallel_env_passes_parallel_api_test_on_codenames():
    parallel_api_test(codenames(PettingZooParallelEnv), num_cycles=200)


def test_pettingzoo_aec_env_passes_seed_test_on_codenames():
    seed_test(partial(codenames, PettingZooAECEnv), num_cycles=50)


def scripted(kind):
    """Codenames with its own actions, and its own observations as elements."""
    return kind(
        CodenamesEnvironment,
        action_space=spaces.Discrete(1),
        to_action=lambda action, agent: action,
        observation_space=spaces.Discrete(1),
        to_observation=lambda observation, agent: (observation, agent),
    )


def choices(seed):
    """The actions of the scripted game, and what each step returned."""
    rng = random.Random(f"guesser {seed}")
    with CodenamesEnvironment() as environment:
        observation = environment.reset(seed=seed)
        while not observation.done:
            action = act(observation, rng)
            observation = environment.step(action)
            yield action, observation


def test_pettingzoo_aec_env_returns_the_rewards_of_each_agent():
    env = scripted(PettingZooAECEnv)
    env.reset(seed=25)
    totals, last = dict.fromkeys(env.possible_agents, 0.0), None
    for action, observation in choices(25):
        env.step(action)
        last = observation
        assert env.rewards == observation.metadata["agent_rewards"]
        for agent, reward in env.rewards.items():
            totals[agent] += reward
    assert {agent: round(total, 2) for agent, total in totals.items()} == {
        "spymaster": 1.65,
        "guesser": 1.6,
    }  # as the documentation of Codenames shows
    assert last.done
    assert env.terminations == dict.fromkeys(env.possible_agents, True)
    for _ in env.agent_iter():
        env.step(None)
    assert env.agents == []


def test_pettingzoo_aec_env_last_returns_the_rewards_since_the_agents_last_turn():
    env = scripted(PettingZooAECEnv)
    env.reset(seed=25)
    received = {"spymaster": 0.0, "guesser": 0.0}
    for action, _ in choices(25):
        received[env.agent_selection] += env.last()[1]
        env.step(action)
    for agent in env.agent_iter():
        received[agent] += env.last()[1]
        env.step(None)
    assert {agent: round(total, 2) for agent, total in received.items()} == {
        "spymaster": 1.65,
        "guesser": 1.6,
    }


@pytest.mark.parametrize("kind", [PettingZooAECEnv, PettingZooParallelEnv])
def test_pettingzoo_env_shows_an_agent_its_own_observations_only(kind):
    env = scripted(kind)
    env.reset(seed=25)
    aec = getattr(env, "aec", env)
    assert aec.observe("guesser") == 0  # nothing yet
    for action, observation in choices(25):
        agent = aec.agent_selection
        env.step(action if kind is PettingZooAECEnv else {agent: action})
        seen, whose = aec.observe(observation.metadata["agent"])
        assert whose == observation.metadata["agent"]
        assert (seen.words, seen.clue) == (observation.words, observation.clue)
        if not observation.done:
            assert aec.agent_selection == whose
            assert aec.observe("guesser")[0].key == {}


def test_pettingzoo_parallel_env_uses_the_action_of_the_agent_whose_turn_it_is():
    env = codenames(PettingZooParallelEnv)
    seen, infos = env.reset(seed=25)
    assert infos == {"spymaster": {"agent": "spymaster"}, "guesser": {"agent": "spymaster"}}
    assert not seen["guesser"]["observation"].any()
    seen, rewards, terminated, truncated, infos = env.step({"spymaster": 0, "guesser": 25})
    assert infos["spymaster"] == {"agent": "guesser"}
    assert set(infos["guesser"]["reward_components"]) >= {"spymaster", "guesser"}
    assert rewards.keys() == terminated.keys() == truncated.keys() == seen.keys()
    assert env.aec._local.environment.state.clues == [f"{CLUES[0]} 1"]


def test_pettingzoo_env_render_returns_the_text():
    env = codenames(PettingZooParallelEnv, render_mode="ansi")
    env.reset(seed=1)
    assert '"clues_left": 7' in env.render()
    env.close()


def test_pettingzoo_aec_env_passes_options_to_reset():
    env = PettingZooAECEnv(Duel)
    env.reset(seed=1, options={"start": 3})
    assert env.observe("black")["number"] == 3


def test_pettingzoo_aec_env_raises_what_the_environment_raises():
    env = codenames(PettingZooAECEnv)
    env.reset(seed=1)
    env.step(0)
    with pytest.raises(IndexError):
        env.step(99)
    env.step(25)
    env = scripted(PettingZooAECEnv)
    env.reset(seed=1)
    with pytest.raises(InvalidArgumentError, match="a clue of the spymaster is expected"):
        env.step({"kind": "pass"})


# Failures --------------------------------------------------------------------------------------


class Bid(Action):
    amount: int = 0


class Number(Observation):
    number: int = 0
    text: str = ""


def of_black(action, observation):
    """Fails for 13."""
    if action.amount == 13:
        raise ArithmeticError("thirteen")
    return float(action.amount)


class Duel(Environment[Bid, Number, State]):
    """Black and white bid in turn; black begins."""

    agents = ("black", "white")
    state = State()

    def __init__(self):
        rubrics = {"black": of_black, "white": lambda action, observation: -1.0}
        super().__init__(rubric=RubricComposer(rubrics, {"black": 1, "white": 1}, normalize=False))

    def reset(self, seed=None, start=0):
        self._next = "black"
        return Number(number=start, metadata={"agent": "black"})

    def step(self, action):
        self._next = "white" if self._next == "black" else "black"
        observation = Number(number=action.amount, metadata={"agent": self._next})
        return self.score(action, observation)


class Unscored(Duel):
    """Sets the rewards of its agents itself."""

    def step(self, action):
        unknown = None if action.amount == 13 else 0.5
        rewards = {"black": unknown, "white": 0.25}
        return Number(metadata={"agent": "white", "agent_rewards": rewards})


def bid(amount):
    """An element of the space of bids."""
    return np.array(amount)


@pytest.mark.parametrize("env", [Duel, Unscored])
def test_pettingzoo_env_raises_the_reason_of_a_failed_reward(env):
    aec = PettingZooAECEnv(env)
    aec.reset()
    aec.step(bid(3))
    assert aec.rewards["white"] != 0
    assert aec.truncations == {"black": False, "white": False}
    with pytest.raises(EnvError, match=r"the reward of black is unknown: .*(thirteen|set none)"):
        aec.step(bid(13))


@pytest.mark.parametrize("kind", [PettingZooAECEnv, PettingZooParallelEnv])
def test_pettingzoo_env_on_invalid_truncates_with_the_number(kind):
    env = kind(Duel, on_invalid=math.nan)
    env.reset()
    env.step(bid(13) if kind is PettingZooAECEnv else {"black": bid(13)})
    aec = getattr(env, "aec", env)
    assert all(map(math.isnan, aec.rewards.values()))
    assert aec.truncations == {"black": True, "white": True}
    assert aec.terminations == {"black": False, "white": False}
    assert all("thirteen" in info["reward_error"] for info in aec.infos.values())
    if kind is PettingZooParallelEnv:
        assert env.agents == []


def test_pettingzoo_env_on_invalid_takes_the_place_of_the_unknown_rewards_only():
    env = PettingZooAECEnv(Unscored, on_invalid=-1.0)
    env.reset()
    env.step(bid(13))
    assert env.rewards == {"black": -1.0, "white": 0.25}
    assert env.truncations == {"black": True, "white": True}


def test_pettingzoo_env_of_an_environment_without_agents_raises():
    with pytest.raises(EnvDefinitionError, match="Connect4Environment has no `agents`"):
        PettingZooAECEnv(Connect4Environment)
