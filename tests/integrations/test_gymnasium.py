"""Gymnasium: environments of guerdon behind its interfaces, and the reverse, with the package."""

import math
import subprocess
import sys
from enum import Enum
from typing import Literal

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import concatenate, create_empty_array
from pydantic import BaseModel, Field

from examples.connect4.environment import Connect4Environment
from guerdon import EnvPool, Observation, Rubric, check_environment, create_app
from guerdon.errors import EnvError, EpisodeError, InvalidArgumentError
from guerdon.integrations.gymnasium import (
    GymnasiumEnv,
    GymnasiumObservation,
    GymnasiumVectorEnv,
    from_gymnasium,
)
from guerdon.integrations.spaces import ModelSpace
from tests.envs.client.servers import Served
from tests.integrations.guessing import MOST, AsyncGuessing, Fair, Guess, Guessing, Hint

spaces = gymnasium.spaces


@pytest.fixture
def registered():
    """The ID of the game, registered as a person would."""
    module = "guerdon.integrations.gymnasium"
    gymnasium.register(
        "Guessing-v0",
        entry_point=f"{module}:GymnasiumEnv",
        vector_entry_point=f"{module}:GymnasiumVectorEnv",
        kwargs={"env": Fair},
    )
    yield "Guessing-v0"
    del gymnasium.registry["Guessing-v0"]


@pytest.fixture
def vector(request):
    made = []

    def make(**options):
        made.append(GymnasiumVectorEnv(Guessing, num_envs=3, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def equal(one, other):
    """Whether elements of spaces are equal."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    return np.array_equal(one, other)


# Spaces ----------------------------------------------------------------------------------------


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Everything(BaseModel):
    choice: Literal["a", "b", 3]
    color: Color
    only: Literal["x"]
    flag: bool
    bounded: int = Field(ge=-2, lt=4)
    count: int = Field(ge=0)
    share: float = Field(gt=0, lt=0.1)
    pair: list[float] = Field(min_length=2, max_length=2)
    text: str = Field(min_length=1, max_length=9)


def test_model_space_of_each_type():
    space = ModelSpace(Everything).space
    tiny = math.nextafter(0.0, 1.0)
    assert dict(space.spaces) | {"text": None} == {
        "choice": spaces.Discrete(3),
        "color": spaces.Discrete(2),
        "only": spaces.Discrete(1),
        "flag": spaces.Discrete(2),
        "bounded": spaces.Discrete(6, start=-2),
        "count": spaces.Box(0, np.inf, (), np.int64),
        "share": spaces.Box(tiny, math.nextafter(0.1, 0.0), (), np.float64),
        "pair": spaces.Box(-np.inf, np.inf, (2,), np.float64),
        "text": None,
    }
    assert (space["text"].min_length, space["text"].max_length) == (1, 9)


def test_model_space_converts_both_ways_and_in_batches():
    made = ModelSpace(Everything)
    made.space.seed(5)
    models, elements = [], []
    for _ in range(50):
        fields = made.to_fields(made.space.sample())
        fields["color"] = Color(fields["color"])
        model = Everything.model_validate(fields).model_copy(
            update={"color": fields["color"].value}
        )
        element = made.to_element(model)
        assert made.to_fields(element) == fields | {"color": model.color}
        assert element in made.space
        models.append(model)
        elements.append(element)
    batch = concatenate(made.space, elements, create_empty_array(made.space, 50))
    assert equal(made.to_batch(models), batch)


def test_model_space_of_one_field_is_the_space_of_the_field():
    made = ModelSpace(Guess)
    assert made.space == spaces.Discrete(16)
    assert made.to_fields(np.int64(3)) == {"number": 3}
    assert type(made.to_fields(np.int64(3))["number"]) is int


class Nested(Observation):
    cells: dict[str, int]


class Optional(Observation):
    size: int | None


class Growing(Observation):
    sizes: list[int] = Field(max_length=3)


class Pair(Observation):
    pair: tuple[int, str]


@pytest.mark.parametrize("model", [Nested, Optional, Growing, Pair])
def test_model_space_names_the_field_that_has_none(model):
    with pytest.raises(InvalidArgumentError, match=rf"`{model.__name__}\.\w+` .*; pass a space"):
        ModelSpace(model)


def test_model_space_of_a_model_without_fields_raises():
    with pytest.raises(InvalidArgumentError, match="Observation has no fields; pass a space"):
        ModelSpace(Observation)


@pytest.mark.parametrize("name", ["action_space", "to_action", "observation_space"])
def test_gymnasium_env_rejects_a_space_without_its_function(name):
    with pytest.raises(InvalidArgumentError, match="must be given together"):
        GymnasiumEnv(Guessing, **{name: spaces.Discrete(2)})


# One environment -------------------------------------------------------------------------------


def test_gymnasium_env_passes_check_env(registered):
    check_env(gymnasium.make(registered, render_mode="ansi").unwrapped)


def test_gymnasium_env_of_async_methods_passes_check_env():
    check_env(GymnasiumEnv(AsyncGuessing), skip_render_check=True)


def test_gymnasium_env_is_the_environment():
    env = GymnasiumEnv(Guessing)
    first, info = env.reset(seed=3, options={"secret": 9})
    assert (first["hint"], first["text"], info) == (0, "none, 6 left", {})
    seen, reward, terminated, truncated, info = env.step(np.int64(11))
    assert (seen["hint"], seen["left"], float(seen["share"])) == (1, 5, 5 / 6)
    assert (reward, terminated, truncated) == (-0.25, False, False)
    assert info["reward_components"] == {"found": 0.0}
    assert env.step(9)[1:4] == (0.75, True, False)


def test_gymnasium_env_truncates_where_the_observation_says_so():
    env = GymnasiumEnv(Guessing)
    env.reset(options={"secret": 9})
    endings = [env.step(1)[2:4] for _ in range(MOST)]
    assert endings == [(False, False)] * (MOST - 1) + [(False, True)]


def test_gymnasium_env_reset_without_a_seed_continues_those_of_the_last_seed():
    def secrets():
        env = GymnasiumEnv(Guessing)
        env.reset(seed=5)
        return [env.reset() and env._local.environment.secret for _ in range(8)]

    assert secrets() == secrets()
    assert len(set(secrets())) > 1


def test_gymnasium_env_raises_the_reason_of_a_failed_reward():
    env = GymnasiumEnv(Guessing)
    env.reset(options={"secret": 9})
    with pytest.raises(EnvError, match=r"the reward of the step is unknown: .*thirteen"):
        env.step(13)


@pytest.mark.parametrize("secret", [9, 13])  # the step would end the episode, or not
@pytest.mark.parametrize("number", [math.nan, -1.0])
def test_gymnasium_env_on_invalid_truncates_with_the_number(secret, number):
    env = GymnasiumEnv(Guessing, on_invalid=number)
    env.reset(options={"secret": secret})
    _, reward, terminated, truncated, info = env.step(13)
    assert np.array_equal(reward, number, equal_nan=True)
    assert (terminated, truncated) == (False, True)
    assert "thirteen" in info["reward_error"]


def test_gymnasium_env_raises_what_the_environment_raises():
    env = GymnasiumEnv(Guessing, on_invalid=0.0)
    env.reset()
    with pytest.raises(InvalidArgumentError, match="nobody guesses 14"):
        env.step(14)
    assert env.step(3)[1] is not None


def test_gymnasium_env_render_returns_the_text():
    env = GymnasiumEnv(Guessing, render_mode="ansi")
    env.reset(options={"secret": 9})
    assert env.render() == "none, 6 left"
    env.step(10)
    assert env.render() == "lower, 5 left"
    assert GymnasiumEnv(Guessing).render() is None


def test_gymnasium_env_closes_the_environment_once():
    env = GymnasiumEnv(Guessing)
    env.close()
    env.close()
    assert env._local.environment.closed == 1


def test_gymnasium_env_with_functions_plays_connect4():
    codes = {"X": 1, ".": 0, "O": -1}
    env = GymnasiumEnv(
        Connect4Environment,
        observation_space=spaces.Box(-1, 1, (6, 7), np.int8),
        to_observation=lambda board: np.array(
            [[codes[cell] for cell in row] for row in board.board], np.int8
        ),
    )
    check_env(env, skip_render_check=True)
    board, _ = env.reset(seed=1)
    board, *_ = env.step(3)
    assert (board == 1).sum() == (board == -1).sum() == 1


def test_guerdon_integrations_name_the_extra_to_install():
    for framework, blocked in [
        ("gymnasium", "gymnasium"),
        ("pettingzoo", "pettingzoo"),
        ("pettingzoo", "gymnasium"),
    ]:
        code = (
            f"import sys; sys.modules[{blocked!r}] = None\n"
            f"try: import guerdon.integrations.{framework}\n"
            "except ImportError as error: print(error, error.extra)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert f"pip install 'guerdon[{blocked}]' {blocked}" in done.stdout, done.stderr


# Many environments -----------------------------------------------------------------------------


def test_make_vec_steps_alike_with_every_vectorization_mode(registered):
    def steps(mode):
        envs = gymnasium.make_vec(registered, num_envs=3, vectorization_mode=mode)
        first, _ = envs.reset(seed=4)
        seen = [first]
        # Until the first end; later seeds belong to each kind of vector environment.
        for number in range(15):
            seen.append(envs.step(np.array([number, 15, number]))[:4])
            if (seen[-1][2] | seen[-1][3]).any():
                break
        envs.close()
        return seen

    one, other = steps("sync"), steps("vector_entry_point")
    assert len(one) == len(other) > 2
    assert equal(one[0], other[0])
    for mine, theirs in zip(one[1:], other[1:], strict=True):
        assert all(map(equal, mine, theirs))


@pytest.mark.edge
def test_make_vec_async_plays_in_processes(registered):
    envs = gymnasium.make_vec(
        registered,
        num_envs=2,
        vectorization_mode="async",
        vector_kwargs={"context": "spawn", "shared_memory": False},
    )
    first, _ = envs.reset(seed=4, options={"secret": 9})
    assert first["text"] == ("none, 6 left",) * 2
    _, rewards, terminated, _, infos = envs.step(np.array([9, 3]))
    assert (rewards.tolist(), terminated.tolist()) == ([0.75, -0.25], [True, False])
    assert infos["reward_components"]["found"].tolist() == [1.0, 0.0]
    envs.close()


def test_gymnasium_vector_env_declares_next_step_autoreset(vector):
    envs = vector()
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    envs.reset(seed=1, options={"secret": 9})
    _, rewards, terminated, _, _ = envs.step(np.array([9, 1, 1]))
    assert (rewards.tolist(), terminated.tolist()) == ([0.75, -0.25, -0.25], [True, False, False])
    seen, rewards, terminated, truncated, infos = envs.step(np.array([1, 2, 9]))
    assert seen["left"].tolist() == [6, 4, 4]  # the first has begun again
    assert rewards.tolist() == [0.0, -0.25, 0.75]
    assert (terminated.tolist(), truncated.any()) == ([False, False, True], False)
    assert infos["_reward_components"].tolist() == [False, True, True]
    assert infos["reward_components"].tolist() == [None, {"found": 0.0}, {"found": 1.0}]
    assert envs.step(np.array([1, 2, 0]))[0]["left"].tolist() == [5, 3, 6]


def test_gymnasium_vector_env_returns_elements_of_its_spaces(vector):
    envs = vector()
    seen, _ = envs.reset(seed=1)
    envs.action_space.seed(1)
    for _ in range(20):
        assert seen in envs.observation_space
        actions = np.minimum(envs.action_space.sample(), 12)
        seen, *_ = envs.step(actions)


@pytest.mark.parametrize("seed", [8, [8, 3, 5]])
def test_gymnasium_vector_env_repeats_the_episodes_of_a_seed(vector, seed):
    def steps():
        envs = vector()
        seen = [envs.reset(seed=seed)[0]]
        seen += [envs.step(np.full(3, number % 12))[0] for number in range(20)]
        return seen

    assert all(map(equal, steps(), steps()))


def test_gymnasium_vector_env_works_with_wrappers(vector):
    envs = gymnasium.wrappers.vector.RecordEpisodeStatistics(vector())
    envs.reset(options={"secret": 9})
    envs.step(np.array([1, 1, 1]))
    *_, infos = envs.step(np.array([9, 1, 1]))
    assert (infos["episode"]["r"][0], infos["episode"]["l"][0]) == (0.5, 2)


@pytest.mark.parametrize(("action", "reason"), [(13, "thirteen"), (14, "nobody guesses 14")])
def test_gymnasium_vector_env_raises_the_reason_and_the_environment(vector, action, reason):
    envs = vector()
    envs.reset(options={"secret": 9})
    with pytest.raises(EnvError, match=f"the reward of environment 1 is unknown: .*{reason}"):
        envs.step(np.array([9, action, 1]))
    # A trainer may catch it: the first two environments begin another episode.
    seen, rewards, *_ = envs.step(np.array([1, 1, 1]))
    assert (seen["left"].tolist(), rewards.tolist()) == ([6, 6, 4], [0.0, 0.0, -0.25])


@pytest.mark.parametrize(("action", "left"), [(13, 4), (14, 5)])
def test_gymnasium_vector_env_on_invalid_truncates_the_failed_ones(vector, action, left):
    envs = vector(on_invalid=math.nan)
    envs.reset(options={"secret": 9})
    envs.step(np.array([1, 2, 3]))
    seen, rewards, terminated, truncated, infos = envs.step(np.array([1, action, 9]))
    assert np.array_equal(rewards, [-0.25, math.nan, 0.75], equal_nan=True)
    assert terminated.tolist() == [False, False, True]
    assert truncated.tolist() == [False, True, False]
    assert seen["left"].tolist() == [4, left, 4]  # one that raised shows its previous one
    key = "reward_error" if action == 13 else "error"
    assert infos[f"_{key}"].tolist() == [False, True, False]
    seen, rewards, *_ = envs.step(np.array([1, 1, 1]))
    assert (seen["left"].tolist(), rewards.tolist()) == ([3, 6, 6], [-0.25, 0.0, 0.0])


def test_gymnasium_vector_env_raises_if_a_reset_fails(vector):
    with pytest.raises(EnvError, match=r"the reset of environment 0 failed: .*no such secret"):
        vector(on_invalid=math.nan).reset(options={"secret": -1})


def test_gymnasium_vector_env_takes_a_function_and_own_spaces():
    envs = GymnasiumVectorEnv(
        lambda: Connect4Environment(gamma=0.5),
        num_envs=2,
        observation_space=spaces.Box(0, 42, (2,), np.float32),
        to_observation=lambda board: np.array([len(board.last_moves), 1], np.float32),
    )
    assert envs.reset(seed=1)[0].tolist() == [[0, 1], [0, 1]]
    assert envs.step(np.array([3, 4]))[0].tolist() == [[2, 1], [2, 1]]
    envs.close()


@pytest.mark.edge
def test_gymnasium_vector_env_plays_a_server_like_a_local_pool(vector):
    local = vector()
    served = Served(create_app(Guessing))
    try:
        pool = EnvPool(served.url, n=3, observation_type=Hint)
        remote = GymnasiumVectorEnv(Guessing, pool=pool)
        assert equal(local.reset(seed=4)[0], remote.reset(seed=4)[0])
        for number in range(12):
            actions = np.array([number, 12 - number, 5])
            for mine, theirs in zip(local.step(actions)[:4], remote.step(actions)[:4], strict=True):
                assert equal(mine, theirs)
        with pytest.raises(EnvError, match=r"environment 2 is unknown: .*thirteen"):
            remote.reset() and remote.step(np.array([1, 1, 13]))
        remote.close()
    finally:
        served.stop()


# Gymnasium's environments ----------------------------------------------------------------------


def upright(action, observation):
    """The pole is upright."""
    return 1.0 - abs(observation.element[2])


class Points(Rubric):
    """The environment's own reward."""

    score_range = (-20.0, 1.0)

    def forward(self, action, observation):
        return observation.points


CartPole = from_gymnasium("CartPole-v1", upright, max_episode_steps=8)


@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1"])
def test_from_gymnasium_passes_check_environment(id):
    report = check_environment(from_gymnasium(id, Points(), max_episode_steps=15))
    assert [line for line in report.lines if line.status != "ok"] == []


def test_from_gymnasium_is_the_environment_scored_by_the_rubric():
    original = gymnasium.make("CartPole-v1", max_episode_steps=8)
    with CartPole() as environment:
        mine, (theirs, _) = environment.reset(seed=3), original.reset(seed=3)
        for number in range(8):
            assert mine.content == theirs.tolist()
            mine = environment.step(CartPole.action_type(action=number % 2))
            theirs, points, terminated, truncated, _ = original.step(number % 2)
            assert mine.reward == pytest.approx(1 - abs(theirs[2]))
            assert (mine.points, mine.done) == (points, terminated or truncated)
        assert (mine.done, mine.truncated) == (True, True)
        assert environment.state.step_count == 8
        with pytest.raises(EpisodeError, match=r"call reset\(\)"):
            environment.step(CartPole.action_type(action=0))


def test_from_gymnasium_has_the_actions_of_the_space():
    with pytest.raises(ValueError, match="less than 2"):
        CartPole.action_type(action=2)
    Pendulum = from_gymnasium("Pendulum-v1", Points())
    assert Pendulum.__name__ == "PendulumV1"
    with Pendulum() as environment:
        environment.reset(seed=1)
        assert environment.step(Pendulum.action_type(action=[0.5])).reward < 0
    with pytest.raises(ValueError, match="at most 1 item"):
        Pendulum.action_type(action=[0.5, 0.5])


def test_from_gymnasium_to_content_and_options_of_reset():
    Cart = from_gymnasium("CartPole-v1", upright, to_content=lambda state: f"{state[2]:.1f} rad")
    with Cart() as environment:
        first = environment.reset(seed=1, low=0.19, high=0.2)
        assert first.content == "0.2 rad"


def test_from_gymnasium_gives_each_environment_a_rubric_of_its_own():
    assert CartPole().rubric is not CartPole().rubric


def test_from_gymnasium_and_gymnasium_env_are_inverse():
    back = GymnasiumEnv(
        CartPole,
        observation_space=spaces.Box(-10, 10, (4,), np.float32),
        to_observation=lambda observation: observation.element,
    )
    check_env(back, skip_render_check=True)


def test_from_gymnasium_of_an_unknown_id_raises():
    with pytest.raises(gymnasium.error.NameNotFound):
        from_gymnasium("NoSuchGame-v0", upright)


@pytest.mark.edge
def test_from_gymnasium_is_served_without_its_elements():
    served = Served(create_app(CartPole))
    try:
        with EnvPool(served.url, n=2, observation_type=GymnasiumObservation).sync() as pool:
            first = pool.reset_batch(seeds=3)
            steps = pool.step_batch([{"action": 1}] * 2)
            assert [len(each.content) for each in first] == [4, 4]
            assert all(0.9 < each.reward < 1 and each.element is None for each in steps)
            [refused, _] = pool.step_batch([{"action": 7}, None])
            assert "less than 2" in refused.metadata["error"]
    finally:
        served.stop()
