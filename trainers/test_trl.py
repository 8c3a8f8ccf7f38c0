"""`guerdon.integrations.trl` with TRL's own trainer."""

import time
from functools import partial
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
import trl
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from trl import GRPOTrainer

from guerdon import Rubric, WeightedSum
from guerdon.credit import StepBatch, gigpo, to_token_advantages
from guerdon.integrations.trl import (
    StepCredit,
    StepCreditGRPOTrainer,
    reward_func,
    reward_funcs,
    turn_index,
)
from guerdon.rubrics import as_reward_function
from trainers.agreement import ROLLOUTS
from trainers.rollouts import make_reward, texts
from trainers.trl_digits import MAXIMUM, WORDS, Brief, SaysDigit, make_trainer, make_tree

SHORT = {
    "per_device_train_batch_size": 32,
    "num_generations": 8,
    "max_steps": 2,
    "logging_steps": 1,
}


def kept(kind):
    """Return a subclass that keeps what it trains on."""

    class Kept(kind):
        def _generate_and_score_completions(self, inputs):
            output = super()._generate_and_score_completions(inputs)
            self.__dict__.setdefault("outputs", []).append(output)
            return output

        def _calculate_rewards(self, *arguments):
            rewards = super()._calculate_rewards(*arguments)
            self.__dict__.setdefault("rewards", []).append(rewards)
            return rewards

    return Kept


# Learning


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_reward_func_teaches_the_digit_task(seed, tmp_path, figure):
    trainer = make_trainer([reward_func(make_tree(), name="digit")], tmp_path, seed=seed)
    start, busy = time.perf_counter(), time.process_time()
    trainer.train()
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    rewards = [row["reward"] for row in trainer.state.log_history if "reward" in row]
    figure(
        f"digit task, seed {seed}: first ten steps {rewards[0]:.3f}, last ten {rewards[-1]:.3f} of "
        f"{MAXIMUM}, {seconds:.0f} s"
    )
    assert rewards[0] < 0.25
    assert rewards[-1] > 1.0
    assert busy < 90  # of this process, so that a busy machine doesn't fail it


# Failures


class HalfFails(Rubric):
    """A judge that does not answer to every second call."""

    def __init__(self):
        super().__init__()
        self._calls = 0

    def forward(self, action, observation):
        self._calls += 1
        if self._calls % 2:
            raise TimeoutError("the judge did not answer")
        return float(len(action.content))


def test_reward_func_gives_failed_rows_advantage_0_and_an_unbiased_mean_to_the_others(
    tmp_path, figure
):
    func = reward_func(HalfFails(), name="judge")
    trainer = make_trainer([func], tmp_path, kind=kept(GRPOTrainer), settings=SHORT)
    trainer.train()
    rewards = trainer.rewards[0].reshape(-1, 8).numpy().astype(float)
    advantages = trainer.outputs[0]["advantages"].reshape(-1, 8).numpy()
    failed = np.isnan(rewards)
    assert failed.mean() == 0.5
    assert (advantages[failed] == 0).all()
    mean = np.nanmean(rewards, axis=1, keepdims=True)
    std = np.nanstd(rewards, axis=1, ddof=1, keepdims=True)
    expected = (rewards - mean) / (std + 1e-4)
    np.testing.assert_allclose(advantages[~failed], expected[~failed], atol=1e-5)
    bias = np.abs(np.where(failed, 0, advantages).sum(axis=1)).max()
    assert bias < 1e-4
    rows = [row for row in trainer.state.log_history if "judge/failed" in row]
    assert [row["judge/failed"] for row in rows] == [0.5] * len(rows)
    figure(f"failing judge: 50 % failed, all with advantage 0; largest group sum {bias:.1e}")


def test_reward_funcs_make_failed_rows_none_in_all_columns(tmp_path):
    funcs, weights = reward_funcs(WeightedSum([HalfFails(), Brief()], [1.0, 0.5]))
    settings = {
        **SHORT,
        "reward_weights": weights,
        "multi_objective_aggregation": "normalize_then_sum",
    }
    trainer = make_trainer(funcs, tmp_path, kind=kept(GRPOTrainer), settings=settings)
    trainer.train()
    failed = np.isnan(trainer.rewards[0].numpy())
    assert (failed[:, 0] == failed[:, 1]).all()
    assert failed.mean() == 0.5
    assert (trainer.outputs[0]["advantages"].numpy()[failed[:, 0]] == 0).all()


def test_reward_func_gives_grpo_trainer_the_scores_of_the_reward(tmp_path, agrees):
    trainer = make_trainer([reward_func(make_reward(), name="sum")], tmp_path)
    prompts, completions = map(list, zip(*map(texts, ROLLOUTS), strict=True))
    rewards = trainer._calculate_rewards(ROLLOUTS, prompts, completions, completions)
    agrees("TRL, `GRPOTrainer`", rewards[:, 0].tolist(), failures="NaN", tolerance=1e-6)


def test_reward_func_takes_part_in_trls_event_loop(tmp_path):
    class Judge(SaysDigit):
        async def forward(self, action, observation):
            return SaysDigit.forward(self, action, observation)

    trainer = make_trainer([reward_func(Judge(), name="judge")], tmp_path, settings=SHORT)
    trainer.train()
    assert "rewards/judge/mean" in trainer.state.log_history[0]


# Logs


def test_reward_func_fills_the_completions_table(tmp_path):
    func = reward_func(make_tree(), name="digit")
    trainer = make_trainer([func], tmp_path, settings={**SHORT, "log_completions": True})
    trainer.train()
    tables = [pandas.read_parquet(path) for path in sorted((tmp_path / "completions").iterdir())]
    assert len(tables) == 2
    for table in tables:
        assert {"digit", "digit/rubric_0", "digit/rubric_1.rubric_1", "digit/error"} <= {*table}
        assert set(table["digit/fingerprint"]) == {make_tree().fingerprint()}
        closed = table["digit/rubric_0"] == 0
        assert table["digit/rubric_1"].isna().equals(closed)


# Step credit


def play(prompts, trainer):
    """Play two or three turns of random words; the environment answers a word to each."""
    draw = np.random.default_rng(len(prompts))
    played = {name: [] for name in (
        "prompt_ids", "completion_ids", "logprobs", "env_mask", "places", "earned"
    )}  # fmt: skip
    for prompt in prompts:
        ids, mask, places, earned = [], [], [], []
        for turn in range(draw.integers(2, 4)):
            words = draw.integers(2, len(WORDS), size=draw.integers(1, 4)).tolist()
            ids += [*words, 12]
            mask += [1] * len(words) + [0]
            places.append(f"place {turn}")
            earned.append(float(draw.integers(0, 3)))
        played["prompt_ids"].append(trainer.processing_class(prompt)["input_ids"])
        played["completion_ids"].append(ids)
        played["logprobs"].append([0.0] * len(ids))
        played["env_mask"].append(mask)
        played["places"].append(places)
        played["earned"].append(earned)
    return played


def total(completions, earned, **others):
    """Return what each episode earned."""
    return [sum(rewards) for rewards in earned]


LOSSES = ("grpo", "dr_grpo", "bnpo", "dapo", "cispo", "sapo", "luspo", "vespo")


@pytest.mark.parametrize("loss", LOSSES)
def test_step_credit_grpo_trainer_trains_on_the_advantages_of_turns(loss, tmp_path):
    estimator = partial(gigpo, gamma=0.95)
    trainer = make_trainer(
        [total], tmp_path, kind=kept(StepCreditGRPOTrainer), rollout_func=play,
        credit=estimator, states="places", step_rewards="earned",
        settings={**SHORT, "loss_type": loss, "log_completions": True},
    )  # fmt: skip
    before = [each.clone() for each in trainer.model.parameters()]
    trainer.train()
    output = trainer.outputs[0]
    played = play(["say 1"] * 32, trainer)
    lengths = [len(places) for places in played["places"]]
    rows = np.repeat(np.arange(32), lengths)
    batch = StepBatch.from_arrays(
        np.concatenate(played["earned"]),
        trajectory=rows,
        step=np.arange(len(rows)),
        group=rows // 8,
        state=[place for places in played["places"] for place in places],
    )
    mask = (output["completion_mask"] * output["tool_mask"]).numpy()
    index = turn_index(mask)
    index = np.where(index < 0, -1, index + (np.cumsum(lengths) - lengths)[:, None])
    expected = to_token_advantages(estimator(batch).advantage, mask, index=index)
    assert output["advantages"].shape == output["completion_ids"].shape
    np.testing.assert_allclose(output["advantages"].numpy(), expected, atol=1e-6)
    assert any(
        not torch.equal(*pair) for pair in zip(before, trainer.model.parameters(), strict=True)
    )
    assert all(np.isfinite(row["loss"]) for row in trainer.state.log_history if "loss" in row)
    table = pandas.read_parquet(tmp_path / "completions" / "completions_00001.parquet")
    turns = [values.tolist() for values in table["step_advantages"]]
    np.testing.assert_allclose(np.concatenate(turns), estimator(batch).advantage, atol=1e-9)
    means = expected.sum(axis=1) / mask.sum(axis=1)
    np.testing.assert_allclose(table["advantage"], means, atol=1e-6)


def test_step_credit_grpo_trainer_learns_the_digit_task(tmp_path, figure):
    trainer = make_trainer(
        [reward_func(make_tree(), name="digit")], tmp_path, kind=StepCreditGRPOTrainer,
        credit="grpo",
    )  # fmt: skip
    trainer.train()
    rewards = [row["reward"] for row in trainer.state.log_history if "reward" in row]
    figure(f"digit task with step credit (grpo): last ten steps {rewards[-1]:.3f} of {MAXIMUM}")
    assert rewards[-1] > 1.0


def test_step_credit_costs_little_of_a_step(tmp_path, figure):
    spent = {"generate": 0.0, "with credit": 0.0, "step": 0.0}

    def timed(name, function, *arguments):
        start = time.perf_counter()
        found = function(*arguments)
        spent[name] += time.perf_counter() - start
        return found

    class Inner(GRPOTrainer):
        def _generate_and_score_completions(self, inputs):
            return timed("generate", super()._generate_and_score_completions, inputs)

    class Outer(StepCredit, Inner):
        def _generate_and_score_completions(self, inputs):
            return timed("with credit", super()._generate_and_score_completions, inputs)

        def training_step(self, *arguments):
            return timed("step", super().training_step, *arguments)

    func = reward_func(make_tree(), name="digit")
    trainer = make_trainer([func], tmp_path, kind=Outer, credit="grpo", settings={"max_steps": 40})
    trainer.train()
    share = (spent["with credit"] - spent["generate"]) / (spent["step"] + spent["generate"])
    figure(f"step credit: {100 * share:.1f} % of a training step with 160 completions")
    assert share < 0.1


def test_reward_func_costs_little_more_than_the_reward(figure):
    tree = make_tree()
    func = reward_func(tree, name="digit")
    prompts, completions = ["say 1"] * 160, ["1", "1 2", "1 2 3", "1 2 3 4"] * 40
    columns = {"ground_truth": ["1"] * 160}
    chats = [
        [{"role": "user", "content": "say 1"}, {"role": "assistant", "content": completion}]
        for completion in completions
    ]
    direct = as_reward_function(tree)
    logged = {"log_extra": lambda *given: None, "log_metric": lambda *given: None}
    times = {"ours": [], "direct": []}
    for _ in range(10):
        start = time.perf_counter()
        rewards = func(prompts=prompts, completions=completions, **columns, **logged)
        middle = time.perf_counter()
        expected = [direct(chat, "1").score for chat in chats]
        times["ours"].append(middle - start)
        times["direct"].append(time.perf_counter() - middle)
        assert rewards == expected
    ours, direct_s = (1000 * min(times[name]) for name in ("ours", "direct"))
    figure(f"160 completions: {ours:.1f} ms with logs, {direct_s:.1f} ms for the reward alone")


# Environments with tools


class Counter:
    """An environment whose only tool counts; it is done after two calls."""

    def reset(self, **row):
        self.states, self.rewards = [], []

    def add(self, number: int) -> str:
        """Add a number.

        Args:
            number: The number.
        """
        self.states.append(len(self.states))
        self.rewards.append(float(number))
        return f"sum {sum(self.rewards):.0f}"


def with_tools():
    """Return a tokenizer of bytes with Qwen3's chat template, which calls tools."""
    special = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<tool_call>", "</tool_call>",
               "<tool_response>", "</tool_response>", "<think>", "</think>"]  # fmt: skip
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(token, special=token.startswith("<|")) for token in special])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<|endoftext|>", eos_token="<|im_end|>"
    )
    fast.chat_template = (Path(trl.__file__).parent / "chat_templates/qwen3.jinja").read_text()
    return fast


def test_step_credit_grpo_trainer_finds_the_turns_of_environments_with_tools(tmp_path):
    class Scripted(kept(StepCreditGRPOTrainer)):
        turns = 0

        def _generate_single_turn(self, prompt_ids, *others, **more):
            self.turns += 1
            call = (
                '<tool_call>\n{"name": "add", "arguments": {"number": %d}}\n</tool_call><|im_end|>'
            )
            texts = [
                call % ((row + self.turns) % 3) if self.turns % 3 else "Done.<|im_end|>"
                for row in range(len(prompt_ids))
            ]
            encode = self.processing_class
            return [encode(text)["input_ids"] for text in texts], None

    class Words(Rubric):
        def forward(self, action, observation):
            return float(len(action.tool_calls))

    func = reward_func(Words(), name="calls")
    trainer = make_trainer(
        [func], tmp_path, kind=Scripted, tokenizer=with_tools(), environment_factory=Counter,
        prompt=lambda digit: [{"role": "user", "content": f"Count to {digit}."}],
        credit="gigpo", states="states", step_rewards="rewards",
        settings={**SHORT, "max_steps": 1, "num_iterations": 1, "max_completion_length": 500},
    )  # fmt: skip
    trainer.train()
    output = trainer.outputs[0]
    turns = turn_index((output["completion_mask"] * output["tool_mask"]).numpy())
    assert set(turns.max(axis=1)) == {2}
    assert [len(result.step_outputs) for result in func.results] == [3] * 32
    advantages = output["advantages"].numpy()
    assert (advantages[turns == 2] == 0).all()
    assert (advantages[turns == -1] == 0).all()
    for row in range(32):
        for turn in range(2):
            assert len(set(advantages[row][turns[row] == turn])) == 1
    assert advantages[turns >= 0].any()
