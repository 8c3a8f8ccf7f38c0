"""`guerdon.integrations.skyrl` with SkyRL-Gym's registry, SkyRL's generator and its trainer."""

import asyncio
import math
import typing
from functools import partial
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
import skyrl_gym
import torch
import typing_extensions

from guerdon.errors import EnvError, InvalidActionError, RewardFunctionError
from guerdon.integrations.skyrl import environment, register, reward_environment
from trainers.agreement import ROLLOUTS
from trainers.byte_tokenizer import END, make_tokenizer
from trainers.locks import AsyncJudge, Judge, Lock, tree
from trainers.rollouts import make_reward, texts

# skyrl 0.3.0 declares Python 3.11, but pydantic refuses `typing.TypedDict` before Python 3.12.
with patch.object(typing, "TypedDict", typing_extensions.TypedDict):
    from skyrl.backends.skyrl_train.utils import ppo_utils
    from skyrl.train.config import SkyRLTrainConfig
    from skyrl.train.generators.base import TrajectoryID
    from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator
    from skyrl.train.trainer import RayPPOTrainer
    from skyrl.train.utils.trainer_utils import validate_generator_output

Sums = reward_environment(tree())  # which the registry imports by its name
SUM = [{"role": "user", "content": "6 × 7?"}]
LOCK = [{"role": "user", "content": "Open the lock. {observation}"}]
LOGGED = ("rubric_0", "rubric_1", "turns", "reward_failed")
PLAYED = ("rubric_0", "turns", "reward_failed")


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


@pytest.fixture
def registered():
    """Register classes for one test, under one name."""

    def register_as(made):
        skyrl_gym.register("guerdon", made)

    yield register_as
    skyrl_gym.envs.registration.registry.pop("guerdon", None)


class Engine:
    """Generates the texts of each rollout; as in vLLM, only the tokens have the end of the turn."""

    def __init__(self, tokenizer, rollouts):
        self._encode = partial(tokenizer.encode, add_special_tokens=False)
        self._texts = {name: list(said) for name, said in rollouts.items()}

    async def generate(self, given, model=None):
        names = given.get("session_ids") or list(self._texts)
        said = [self._texts[name].pop(0) for name in names]
        tokens = [self._encode(text + END) for text in said]
        return {"responses": said, "response_ids": tokens, "stop_reasons": ["stop"] * len(said)}

    async def finish_session(self, name):
        pass


def configured(**generator):
    options = {"max_input_length": 2_000, "max_turns": 8, **generator}
    config = SkyRLTrainConfig.from_cli_overrides(
        {f"generator.{name}": value for name, value in options.items()}
    )
    config.generator.sampling_params.logprobs = None
    return config


def generated(tokenizer, rollouts, *, config=None, prompts=None, extras=None, groups=None):
    """What SkyRL's generator returns for rollouts, each of them the texts of its turns."""
    config, count = config or configured(), len(rollouts)
    ids = [TrajectoryID(group, number) for number, group in enumerate(groups or ["a"] * count)]
    engine = Engine(
        tokenizer, {id.to_string(): said for id, said in zip(ids, rollouts, strict=True)}
    )
    generator = SkyRLGymGenerator(config.generator, config.environment.skyrl_gym, engine, tokenizer)
    batch = {
        "prompts": prompts or [LOCK] * count,
        "env_classes": ["guerdon"] * count,
        "env_extras": extras or [{"seed": 37} for _ in range(count)],
        "trajectory_ids": ids,
        "sampling_params": None,
    }
    return asyncio.run(generator.generate(batch, disable_tqdm=True))


# Rewards


def scored(tokenizer, *answers, **options):
    extras = [{"reward_spec": {"method": "rule", "ground_truth": "42"}} for _ in answers]
    rollouts = [[answer] for answer in answers]
    prompts = [SUM] * len(answers)
    return generated(tokenizer, rollouts, prompts=prompts, extras=extras, **options)


@pytest.mark.parametrize("entry_point", [Sums, f"{__name__}:Sums"])
def test_reward_environment_is_made_from_the_registry(entry_point, registered):
    registered(entry_point)
    extras = {"reward_spec": {"ground_truth": "42"}}
    with skyrl_gym.make("guerdon", env_config={}, extras=extras) as env:
        assert env.init(SUM) == (SUM, {})
        turn = env.step("A: 42")
    assert turn == {"observations": [], "reward": 1.0, "done": True, "metadata": {}}


@pytest.mark.parametrize("judge", [Judge, AsyncJudge])
def test_reward_environment_scores_the_rollouts_of_the_generator(judge, registered, tokenizer):
    registered(reward_environment(tree(judge)))
    output = scored(tokenizer, "A: 42", "A: 41")
    assert [(each[-1], sum(each)) for each in output["rewards"]] == [(1.0, 1.0), (0.0, 0.0)]
    logged = {name: output["rollout_metrics"][f"environment/{name}"] for name in LOGGED}
    assert logged == {"rubric_0": 1.0, "rubric_1": 0.5, "turns": 1.0, "reward_failed": 0.0}


def test_reward_environment_scores_the_rollouts_of_a_batch(registered, tokenizer):
    registered(Sums)
    output = scored(tokenizer, "A: 42", "A: 41", config=configured(batched=True))
    assert output["rewards"] == [1.0, 0.0]


def test_reward_environment_stops_the_generator_if_the_reward_fails(registered, tokenizer):
    registered(Sums)
    with pytest.raises(RewardFunctionError, match="the judge is down"):
        scored(tokenizer, "A: 42", "down")


def test_reward_environment_gives_the_generator_the_number_of_on_invalid(registered, tokenizer):
    registered(reward_environment(tree(), on_invalid=-1.0))
    output = scored(tokenizer, "A: 42", "down")
    assert [sum(each) for each in output["rewards"]] == [1.0, -1.0]
    logged = {name: output["rollout_metrics"][f"environment/{name}"] for name in LOGGED}
    assert logged == {"rubric_0": 1.0, "rubric_1": 1.0, "turns": 1.0, "reward_failed": 0.5}


def test_reward_environment_gives_the_generator_the_scores_of_the_reward(
    registered, tokenizer, agrees
):
    registered(reward_environment(make_reward(), on_invalid=math.nan))
    asked, answers = zip(*map(texts, ROLLOUTS), strict=True)
    output = generated(
        tokenizer,
        [[answer] for answer in answers],
        prompts=[[{"role": "user", "content": question}] for question in asked],
        extras=[{"ground_truth": row["ground_truth"]} for row in ROLLOUTS],
        groups=[row["group"] for row in ROLLOUTS],
    )
    agrees("SkyRL, `SkyRLGymGenerator`", [sum(each) for each in output["rewards"]], failures="NaN")


def test_generator_refuses_a_reward_that_is_none(registered, tokenizer):
    class Unknown(skyrl_gym.envs.base_text_env.BaseTextEnv):
        def __init__(self, **kwargs):
            super().__init__()

        def step(self, action):
            return {"observations": [], "reward": None, "done": True, "metadata": {}}

    registered(Unknown)
    with pytest.raises(AssertionError):
        scored(tokenizer, "A: 42")
    with pytest.raises(TypeError):
        scored(tokenizer, "A: 42", config=configured(batched=True))


# Environments


@pytest.fixture
def made(registered):
    """Register the lock under the options of a test, and return the locks that were made."""
    locks = []

    def make():
        locks.append(Lock())
        return locks[-1]

    def register_lock(**options):
        registered(environment(make, **options))
        return locks

    return register_lock


def turns_of(output, tokenizer):
    """The texts of each turn, with its reward, of rollouts of the generator."""
    rows = zip(output["response_ids"], output["loss_masks"], output["rewards"], strict=True)
    for tokens, mask, rewards in rows:
        found, said = [], []
        for token, is_played, reward in zip(tokens, mask, rewards, strict=True):
            said += [token] * is_played
            if is_played and token == tokenizer.eos_token_id:
                found.append((tokenizer.decode(said), reward))
                said = []
            else:
                assert reward == 0.0
        yield found


def test_environment_gives_the_last_token_of_each_turn_the_reward_of_its_step(made, tokenizer):
    locks = made()
    output = generated(tokenizer, [["3", "5", "7"], ["3", "7"]])
    assert list(turns_of(output, tokenizer)) == [
        [(f"3{END}", 1.0), (f"5{END}", 0.0), (f"7{END}", 1.0)],
        [(f"3{END}", 1.0), (f"7{END}", 1.0)],
    ]
    dialog = tokenizer.decode(output["prompt_token_ids"][0] + output["response_ids"][0])
    chat = [("user", "Open the lock. first dial"), ("assistant", "3"), ("user", "click"),
            ("assistant", "5"), ("user", "nothing"), ("assistant", "7")]  # fmt: skip
    assert dialog == tokenizer.apply_chat_template(
        [{"role": role, "content": text} for role, text in chat], tokenize=False
    ).removesuffix("\n")
    logged = {name: output["rollout_metrics"][f"environment/{name}"] for name in PLAYED}
    assert logged == {"rubric_0": 2.0, "turns": 2.5, "reward_failed": 0.0}
    assert [each.is_closed for each in locks] == [True, True]


def test_environment_ends_an_episode_after_the_turns_of_the_generator(made, tokenizer):
    locks = made()
    output = generated(tokenizer, [["5", "3", "7"]], config=configured(max_turns=2))
    assert [reward for _, reward in next(turns_of(output, tokenizer))] == [0.0, 1.0]
    assert [each.is_closed for each in locks] == [True]


@pytest.mark.parametrize("text", ["9", "no digit"])
def test_environment_stops_the_generator_if_a_turn_fails_and_closes_the_environment(
    text, made, tokenizer
):
    locks = made()
    with pytest.raises((EnvError, InvalidActionError)):
        generated(tokenizer, [["3", text]])
    assert [each.is_closed for each in locks] == [True]


@pytest.mark.parametrize("text", ["9", "no digit"])
def test_environment_ends_an_episode_with_the_number_of_on_invalid(text, made, tokenizer):
    locks = made(on_invalid=-2.0)
    output = generated(tokenizer, [["3", text, "7"], ["3", "7"]])
    assert [[reward for _, reward in each] for each in turns_of(output, tokenizer)] == [
        [1.0, -2.0],
        [1.0, 1.0],
    ]
    logged = {name: output["rollout_metrics"][f"environment/{name}"] for name in PLAYED}
    assert logged == {"rubric_0": 1.5, "turns": 2.0, "reward_failed": 0.5}
    assert [each.is_closed for each in locks] == [True, True]


# Advantages


@pytest.fixture(scope="module")
def estimators():
    """Register the estimators, and return their names."""
    register()
    return register()  # which does nothing


def trained(output, tokenizer, config):
    """What SkyRL's trainer makes of the output of the generator, until the advantages."""
    trainer = RayPPOTrainer.__new__(RayPPOTrainer)
    trainer.cfg, trainer.tokenizer, trainer.all_metrics = config, tokenizer, {}
    trainer.dispatch = SimpleNamespace(get_lcm_dp_size=lambda: 1)
    config.trainer.train_batch_size = config.trainer.policy_mini_batch_size = 1  # a prompt
    config.generator.n_samples_per_prompt = len(output["rewards"])
    validate_generator_output(
        len(output["rewards"]), output, config.generator.step_wise_trajectories
    )
    uids = ["a"] * len(output["rewards"])
    data = trainer.convert_to_training_input(*trainer.postprocess_generator_output(output, uids))
    data["values"] = None  # of a critic
    return trainer.compute_advantages_and_returns(data)


@pytest.mark.usefixtures("estimators")
def test_register_gives_a_rollout_whose_reward_is_nan_the_advantage_0(registered, tokenizer):
    registered(reward_environment(tree(), on_invalid=math.nan))
    turns = ["A: 42", "A: 41", "down", "A: 42", "A: 40"]
    valid = [each for each in turns if each != "down"]

    def advantages(answers, estimator):
        config = configured()
        config.trainer.algorithm.advantage_estimator = estimator
        data = trained(scored(tokenizer, *answers), tokenizer, config)
        return data["advantages"][:, -1].tolist()

    assert np.isnan(advantages(turns, "grpo")).all()
    found = advantages(turns, "guerdon_grpo")
    assert found.pop(turns.index("down")) == 0.0
    assert found == pytest.approx(advantages(valid, "guerdon_grpo"), abs=1e-6)
    assert found == pytest.approx(advantages(valid, "grpo"), abs=1e-5)


@pytest.mark.parametrize(
    ("ours", "theirs", "by_std"),
    [
        ("guerdon_grpo", "grpo", True),
        ("guerdon_dr_grpo", "grpo", False),
        ("guerdon_rloo", "rloo", True),
    ],
)
def test_register_gives_the_advantages_of_skyrl(ours, theirs, by_std, estimators, figure):
    numbers = np.random.default_rng(0)
    index = numbers.permutation([f"prompt {group}" for group in range(64)] * 8)
    rewards = torch.zeros(len(index), 6)
    rewards[:, -1] = torch.tensor(numbers.normal(2, 3, len(index)), dtype=torch.float32)
    mask = torch.tensor(numbers.random((len(index), 6)) < 0.7).long()

    def advantages(estimator):
        return ppo_utils.compute_advantages_and_returns(
            rewards, mask, index, estimator, config=None, grpo_norm_by_std=by_std
        )[0]

    assert ours in estimators
    difference = float((advantages(ours) - advantages(theirs)).abs().max())
    figure(f"SkyRL, {ours}: differs from {theirs} by {difference:.1e} at most, 512 rows")
    assert difference < 5e-6


def test_environment_gives_estimators_of_tokens_the_rewards_of_steps(made, tokenizer):
    made()
    config = configured()
    config.trainer.algorithm.advantage_estimator = "reinforce++"
    output = generated(tokenizer, [["3", "5", "7"], ["3", "7"]])
    returns = trained(output, tokenizer, config)["returns"]
    to_go = [row[row.nonzero()].flatten().unique_consecutive().tolist() for row in returns]
    assert to_go == [[2.0, 1.0], [2.0, 1.0]]


def test_environment_with_step_wise_trajectories_has_the_reward_of_the_last_step(made, tokenizer):
    made()
    rollouts = [["3", "5"], ["5", "3"]]  # a digit is right in each

    def advantages(**options):
        config = configured(max_turns=2, **options)
        output = generated(tokenizer, rollouts, config=config)
        rows = trained(output, tokenizer, config)["advantages"]
        return [np.sign(row[row.abs().argmax()].item()) for row in rows]

    assert advantages() == [0.0, 0.0]
    assert advantages(step_wise_trajectories=True) == [-1.0, -1.0, 1.0, 1.0]
