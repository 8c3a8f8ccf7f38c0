"""`guerdon.integrations.gymnasium` with RLlib's PPO, on a CPU, and the files of the page."""

import importlib
import math
import sys
from pathlib import Path
from statistics import fmean

import pytest
import ray
from markdown_it import MarkdownIt

from guerdon import Rubric, Sequential
from guerdon.errors import EnvError
from guerdon.integrations.gymnasium import GymnasiumEnv

PAGE = Path(__file__).parents[1] / "docs" / "train-with-gymnasium.md"
RANDOM = 1 - (15 / 16) ** 5  # the return of five random guesses


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The module that the page calls train.py."""
    folder = tmp_path_factory.mktemp("page")
    for block in MarkdownIt().parse(PAGE.read_text(encoding="utf-8")):
        if "file=" in block.info:
            name = block.info.partition("file=")[2]
            (folder / name).write_text(block.content, encoding="utf-8")
    sys.path.insert(0, str(folder))
    yield importlib.import_module("train")
    sys.path.remove(str(folder))
    ray.shutdown()


steps = []  # that the judge has scored, in all environments of a test


class Judge(Rubric):
    """Scores 1 for the number; the judge is down at some of the steps of a test."""

    def __init__(self, down):
        super().__init__()
        self.down = down

    def forward(self, action, observation):
        steps.append(action)
        if len(steps) in self.down:
            raise OSError("the judge is down")
        return float(observation.done)


@pytest.fixture
def judged(page):
    """Configure training on a few steps, in an environment whose judge fails now and then."""

    def configured(on_invalid="raise", down=(100, 200), callback=page.Rewards):
        steps.clear()

        class Judged(page.Guessing):
            def __init__(self):
                super().__init__()
                self.rubric = Sequential(Judge(down))

        def make_env(config):
            env = page.gymnasium.wrappers.FlattenObservation(
                GymnasiumEnv(Judged, on_invalid=on_invalid)
            )
            env = page.gymnasium.wrappers.DtypeObservation(env, page.np.float32)
            return page.gymnasium.wrappers.TimeLimit(env, 5)

        page.register_env("judged", make_env)
        config = page.PPOConfig().environment("judged").callbacks(callback)
        config.env_runners(num_env_runners=0)
        return config.training(train_batch_size_per_learner=250, num_epochs=1)

    return configured


def test_gymnasium_env_trains_with_ppo(page, figure):
    config = page.config.copy(copy_frozen=False).debugging(seed=0)
    algorithm = config.build_algo()
    returns = [algorithm.train()["env_runners"]["episode_return_mean"] for _ in range(20)]
    algorithm.stop()
    first, last = fmean(returns[:3]), fmean(returns[-3:])
    figure(f"RLlib, PPO: mean return {first:.2f} at first, {last:.2f} after 40,000 steps")
    assert first < RANDOM + 0.1
    assert last > 0.65


def test_gymnasium_env_gives_callbacks_the_components_and_the_fingerprint(page, judged):
    seen = []

    class Fingerprints(page.Rewards):
        def on_episode_end(self, *, episode, **kwargs):
            seen.append(episode.get_infos(-1)["reward_fingerprint"])

    algorithm = judged(down=(), callback=Fingerprints).build_algo()
    logged = algorithm.train()["env_runners"]
    algorithm.stop()
    assert logged["reward_failed"] == 0.0
    assert 0.0 < logged["reward/rubric_0"] < 0.2  # 1 / 16 of the random guesses are right
    assert set(seen) == {Sequential(Judge(())).fingerprint()}


def test_gymnasium_env_stops_ppo_if_the_reward_fails(judged):
    algorithm = judged().build_algo()
    with pytest.raises(RuntimeError) as raised:
        algorithm.train()
    algorithm.stop()
    assert isinstance(raised.value.__cause__, EnvError)
    assert "the judge is down" in str(raised.value.__cause__)


def test_gymnasium_env_gives_ppo_the_number_of_on_invalid(judged):
    algorithm = judged(on_invalid=-1.0).build_algo()
    logged = algorithm.train()["env_runners"]
    algorithm.stop()
    assert logged["reward_failed"] == pytest.approx(2 / 250)
    assert logged["episode_return_min"] == -1.0


def test_on_sample_end_leaves_out_episodes_whose_reward_failed(page, judged):
    losses = {}
    for callback in (page.Rewards, page.RLlibCallback):
        algorithm = judged(on_invalid=math.nan, callback=callback).build_algo()
        result = algorithm.train()
        losses[callback] = result["learners"]["default_policy"]["total_loss"]
        assert math.isfinite(result["env_runners"]["episode_return_mean"])
        algorithm.stop()
    assert math.isfinite(losses[page.Rewards])
    assert math.isnan(losses[page.RLlibCallback])


def test_restart_failed_sub_environments_samples_again_from_the_start(judged):
    config = judged(down=(100,)).fault_tolerance(restart_failed_sub_environments=True)
    algorithm = config.build_algo()
    sampled = algorithm.train()["env_runners"]["num_env_steps_sampled"]
    algorithm.stop()
    assert sampled == 250
    assert len(steps) >= 100 + 250
