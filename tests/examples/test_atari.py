"""Atari games: emulators, images on the wire, a rubric for each game."""

import doctest
import importlib
import io
import random
import subprocess
import sys
import zlib
from base64 import b64encode
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from examples.atari.environment import AtariEnvironment, game_ids
from examples.atari.models import AtariAction, AtariObservation, Frame
from examples.atari.play import GAMES, act, play
from examples.atari.png import decode, encode
from examples.atari.rubrics import ByGame, LifeLost
from guerdon import EnvPool, RewardConfig, check_environment, create_app
from guerdon.envs import ConfiguredEnv
from guerdon.errors import EpisodeError, InvalidArgumentError, MissingExtraError
from guerdon.integrations.gymnasium import GymnasiumEnv, from_gymnasium
from tests.envs.client.servers import Served, run

ROOT = Path(__file__).parents[2]
REWARD = ROOT / "examples" / "atari" / "reward.yaml"
MODULES = ["environment", "models", "play", "png", "rubrics"]
BLACK = np.zeros((210, 160, 3), dtype=np.uint8)


def short(game="ALE/Breakout-v5", max_steps=60):
    return AtariEnvironment(game, max_steps=max_steps)


def observed(game="ALE/Pong-v5", **fields):
    return AtariObservation(game_id=game, frame=Frame.of(BLACK), actions=["NOOP"], **fields)


# Images ----------------------------------------------------------------------------------------


@given(arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9), st.just(3))))
def test_decode_returns_what_encode_was_given(pixels):
    assert (decode(encode(pixels)) == pixels).all()


def test_encode_writes_a_png_that_pillow_reads():
    image = pytest.importorskip("PIL.Image", reason="textarena installs Pillow")
    with AtariEnvironment() as environment:
        pixels = environment.reset(seed=1).frame.pixels()
    with image.open(io.BytesIO(encode(pixels))) as opened:
        assert opened.mode == "RGB"
        assert (np.asarray(opened) == pixels).all()


@pytest.mark.parametrize(
    "image",
    [b"", b"GIF89a", encode(BLACK)[:30], encode(BLACK)[:60], encode(np.tile(BLACK, (3, 3, 1)))],
)
def test_decode_rejects_what_encode_has_not_written(image):
    with pytest.raises(InvalidArgumentError, match="can't read the image"):
        decode(image)


def test_decode_decompresses_no_more_than_the_size_in_the_header():
    image = bytearray(encode(BLACK))
    bomb = zlib.compress(bytes(100_000_000))
    image[33:] = len(bomb).to_bytes(4, "big") + b"IDAT" + bomb
    assert decode(bytes(image)).nbytes == BLACK.nbytes


def test_frame_pixels_rejects_another_size():
    frame = Frame(width=9, height=9, png=b64encode(encode(BLACK)).decode())
    with pytest.raises(InvalidArgumentError, match="160 × 210 pixels, expected 9 × 9"):
        frame.pixels()


# The environment -------------------------------------------------------------------------------


def test_atari_environment_passes_check_environment():
    report = check_environment(lambda: short(max_steps=5))
    assert report.ok
    # Loading a game may hold the interpreter lock for more than a second.
    noted = [line for line in report.lines if "interpreter lock" not in line.detail]
    assert {line.status for line in noted} == {"ok"}


def test_reset_chooses_the_game():
    with AtariEnvironment("ALE/Pong-v5") as environment:
        assert environment.reset(seed=1).actions[2] == "RIGHT"
        first = environment.reset(seed=1, game="ALE/Freeway-v5")
        assert (first.game_id, first.actions) == ("ALE/Freeway-v5", ["NOOP", "UP", "DOWN"])
        assert first.frame.pixels().shape == (210, 160, 3)
        assert environment.reset(seed=1).game_id == environment.state.game_id == "ALE/Pong-v5"


def test_reset_seed_determines_the_game():
    games = []
    for seed in 7, 7, 8:
        with short() as environment:
            games.append([each.frame.png for each in play(environment, seed=seed)])
    assert games[0] == games[1] != games[2]


@pytest.mark.parametrize("seed", [None, -1, 2**70])
def test_reset_accepts_any_seed(seed):
    with short() as environment:
        assert environment.reset(seed=seed).lives == 5


def test_step_counts_points_score_and_lives():
    with short(max_steps=300) as environment:
        observations = play(environment, seed=3)
    assert observations[-1].score == sum(each.points for each in observations) > 0
    assert sum(each.lives_lost for each in observations) == 5 - observations[-1].lives > 0
    assert {each.truncated for each in observations[:-1]} == {False}


def test_max_steps_truncates_an_episode():
    with short(max_steps=3) as environment:
        observations = play(environment, seed=1)
    assert [(each.done, each.truncated) for each in observations] == [
        (False, False), (False, False), (True, True)
    ]  # fmt: skip


@pytest.mark.parametrize(
    "game", ["Pong", "ALE/Pong-v9", "CartPole-v1", "os:ALE/Pong-v5", "antigravity:ALE/Pong-v5", ""]
)
def test_reset_rejects_an_unknown_game_and_imports_nothing(game):
    with AtariEnvironment() as environment:
        with pytest.raises(InvalidArgumentError, match=r"one of the 1\d\d IDs .* such as ALE/"):
            environment.reset(game=game)
        assert "antigravity" not in sys.modules
        assert environment.reset(game="ALE/Pong-v5").game_id == "ALE/Pong-v5"


def test_atari_environment_rejects_an_unknown_game_with_those_of_a_similar_name():
    with pytest.raises(InvalidArgumentError, match=r"such as ALE/Pong-v5; got 'pong'"):
        AtariEnvironment("pong")
    with pytest.raises(InvalidArgumentError, match="`max_steps` must be at least 1, got 0"):
        AtariEnvironment(max_steps=0)


def test_step_rejects_an_action_that_the_game_has_not_and_continues():
    with short() as environment:
        environment.reset(seed=1)
        with pytest.raises(InvalidArgumentError, match=r"\(0 NOOP, .*, 3 LEFT\), got 4"):
            environment.step(AtariAction(action_id=4))
        assert environment.state.step_count == 0
        assert environment.step(AtariAction(action_id=3)).reward == 0.0


@pytest.mark.parametrize("action_id", [-1, 18, "FIRE", None])
def test_atari_action_rejects_what_no_game_has(action_id):
    with pytest.raises(ValueError, match="action_id"):
        AtariAction(action_id=action_id)


def test_step_before_reset_or_after_the_end_raises():
    with short(max_steps=1) as environment:
        for begin in (lambda: None, lambda: play(environment, seed=1)):
            begin()
            with pytest.raises(EpisodeError, match=r"call reset\(\)"):
                environment.step(AtariAction(action_id=0))


@pytest.mark.parametrize("package", ["ale_py", "gymnasium"])
def test_atari_environment_without_its_packages_names_the_extra(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'guerdon\[atari\]'") as caught:
        AtariEnvironment()
    assert caught.value.extra == "atari"


def test_game_ids_are_those_of_ale():
    assert set(GAMES) < set(game_ids())
    assert all(name.startswith("ALE/") for name in game_ids())


# The reward ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("game", "points", "score", "path"),
    [
        ("ALE/Pong-v5", -1.0, -1.0, "games.ALE/Pong-v5"),
        ("ALE/Breakout-v5", 7.0, 1.0, "games.ALE/Breakout-v5"),
        ("ALE/Breakout-v5", 0.0, 0.0, "games.ALE/Breakout-v5"),
        ("ALE/SpaceInvaders-v5", 30.0, 1.0, "other"),
        ("ALE/Skiing-v5", -16.0, -1.0, "other"),
    ],
)
def test_by_game_dispatches_on_the_game_id(game, points, score, path):
    observation = observed(game, points=points)
    action = AtariAction(action_id=0)
    assert ByGame().score(action, observation).components() == {path: score}
    assert ByGame()(action, observation) == score


def test_life_lost_scores_a_lost_life():
    action = AtariAction(action_id=0)
    assert LifeLost()(action, observed(lives=4, lives_lost=1)) == 1.0
    assert LifeLost()(action, observed(lives=4)) == 0.0


@pytest.mark.parametrize("game", GAMES)
def test_reward_yaml_gives_the_rewards_of_the_environment(game):
    def rewards(make):
        with make() as environment:
            observation = environment.reset(seed=4, game=game)
            rng, rewards = random.Random(4), []
            for _ in range(100):
                observation = environment.step(act(observation, rng))
                rewards.append((observation.reward, observation.metadata["reward_components"]))
        return rewards

    with ConfiguredEnv(AtariEnvironment, RewardConfig.from_file(REWARD)) as configured:
        assert rewards(configured) == rewards(AtariEnvironment)


def test_from_gymnasium_plays_pong_by_its_ram():
    def missed(action, observation):
        return -1.0 if observation.points < 0 else 0.0

    Pong = from_gymnasium("ALE/Pong-v5", missed, obs_type="ram", max_episode_steps=80)
    with EnvPool(Pong, n=2).sync() as pool:
        first = pool.reset_batch(seeds=3)
        steps = [pool.step_batch([{"action": 0}] * 2) for _ in range(80)]
    assert [len(each.content) for each in first] == [128, 128]
    assert min(each.reward for step in steps for each in step) == -1.0
    assert all(each.done and each.truncated for each in steps[-1])


def test_gymnasium_env_of_an_atari_environment_passes_check_env():
    env = GymnasiumEnv(
        short,
        action_space=spaces.Discrete(4),
        to_action=lambda number: {"action_id": int(number)},
        observation_space=spaces.Box(0, 255, (210, 160, 3), np.uint8),
        to_observation=lambda observation: observation.frame.pixels(),
    )
    check_env(env, skip_render_check=True)


# The policy, and the wire ----------------------------------------------------------------------


@pytest.mark.parametrize(("game", "least"), [("ALE/Breakout-v5", 5), ("ALE/Freeway-v5", 3)])
def test_act_scores(game, least):
    with short(game, max_steps=300) as environment:
        assert play(environment, seed=3)[-1].score >= least


def test_act_returns_more_balls_in_pong_than_random_actions():
    def points(policy):
        with AtariEnvironment("ALE/Pong-v5") as environment:
            observation, rng = environment.reset(seed=3), random.Random(3)
            while not observation.done:
                observation = environment.step(policy(observation, rng))
        return observation.score

    assert points(act) > points(lambda _, rng: AtariAction(action_id=rng.randrange(6)))


@pytest.mark.edge
def test_env_pool_plays_16_games_over_the_wire():
    options = [{"game": GAMES[slot % len(GAMES)]} for slot in range(16)]

    async def over_the_wire(url):
        rng = random.Random(0)
        async with EnvPool(url, n=16, observation_type=AtariObservation) as pool:
            played = [await pool.reset_batch(seeds=5, options=options)]
            for _ in range(20):
                played.append(await pool.step_batch([act(each, rng) for each in played[-1]]))
            refused = await pool.step_batch([{"action_id": 17}] + [None] * 15)
        return played, refused[0]

    served = Served(create_app(AtariEnvironment))
    try:
        played, refused = run(over_the_wire(served.url))
    finally:
        served.stop()
    assert [each.game_id for each in played[-1]] == [each["game"] for each in options]
    assert {each.reward is None for each in played[-1]} == {False}
    assert "must be one of those of ALE/Pong-v5 (0 NOOP" in refused.metadata["error"]

    # The same frames as in this process.
    with AtariEnvironment() as environment:
        here = environment.reset(seed=5 + 2, game=GAMES[2])  # whose policy draws no random numbers
        for step in played:
            assert step[2].frame == here.frame
            here = environment.step(act(here, random.Random(0)))


@pytest.mark.edge
def test_atari_play_prints_a_table():
    output = subprocess.run(
        [sys.executable, "-m", "examples.atari.play", "2"],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    assert "ALE/Freeway" in output
    assert "× +1" in output


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_of_atari_run(name):
    assert doctest.testmod(importlib.import_module(f"examples.atari.{name}")).failed == 0
