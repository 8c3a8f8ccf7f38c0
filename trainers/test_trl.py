"""`guerdon.integrations.trl` with TRL's own trainer."""

import collections
import gc
import itertools
import json
import threading
import time
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
import trl
from datasets import Dataset
from pydantic import Field
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.utils import get_json_schema
from trl import GRPOTrainer
from trl.experimental.async_grpo import async_rollout_worker

from guerdon import Action, Environment, EnvPool, Observation, Rubric, State, WeightedSum
from guerdon.credit import StepBatch, gigpo, to_token_advantages
from guerdon.integrations.trl import (
    StepCredit,
    StepCreditGRPOTrainer,
    environment_factory,
    episode_reward,
    reward_func,
    reward_funcs,
    turn_index,
)
from guerdon.rubrics import as_reward_function
from guerdon.types import tool_schema
from trainers.agreement import ROLLOUTS
from trainers.rollouts import TIMEOUT, make_reward, texts
from trainers.trl_digits import MAXIMUM, WORDS, Brief, SaysDigit, make_trainer, make_tree
from trainers.trl_lock import BATCH, BEST, METHODS, Lock, learn, lock_trainer, tool_trainer

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


def timed_trainer(make, spent, **options):
    """Return a trainer with step credit that adds up what its parts take."""

    def timed(name, function, *arguments):
        start = time.perf_counter()
        found = function(*arguments)
        spent[name] += time.perf_counter() - start
        return found

    class Inner(GRPOTrainer):
        def _calculate_rewards(self, *arguments):
            return timed("rewards", super()._calculate_rewards, *arguments)

        def _generate_and_score_completions(self, inputs):
            return timed("generate", super()._generate_and_score_completions, inputs)

    class Outer(StepCredit, Inner):
        def _calculate_rewards(self, *arguments):
            return timed("rewards with credit", super()._calculate_rewards, *arguments)

        def _generate_and_score_completions(self, inputs):
            return timed("generate with credit", super()._generate_and_score_completions, inputs)

        def training_step(self, *arguments):
            return timed("step", super().training_step, *arguments)

    return make(kind=Outer, settings={"max_steps": 40}, **options)


@pytest.mark.parametrize("task", ["digit", "lock"])
def test_step_credit_costs_little_of_a_step(task, tmp_path, figure, request):
    spent = collections.Counter()
    gc.disable()  # a collection of torch's objects takes longer than the credit of 40 steps
    request.addfinalizer(gc.enable)
    with EnvPool(Lock, n=BATCH).sync() as pool:
        if task == "digit":
            make = partial(make_trainer, [reward_func(make_tree(), name="digit")], tmp_path)
            trainer = timed_trainer(make, spent, credit="grpo")
        else:
            make = partial(lock_trainer, pool, tmp_path, **METHODS["GiGPO"])
            trainer = timed_trainer(make, spent)
        trainer.train()
    credit = sum(spent[f"{part} with credit"] - spent[part] for part in ("rewards", "generate"))
    share = credit / (spent["step"] - credit)
    figure(f"step credit, {task}: {100 * share:.1f} % of a training step with 160 completions")
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


class Add(Action):
    """Adds a number to the sum."""

    number: int = Field(ge=0, le=20, description="The number.")


class Sum(Observation):
    """The sum."""

    text: str


class Worth(Rubric):
    """The number; the scale breaks at 13."""

    def forward(self, action, observation):
        if action.number == 13:
            raise OSError("the scale broke")
        return float(action.number)


class Adding(Environment[Add, Sum, State]):
    """An environment that is done after two numbers, and breaks at 12."""

    state = State()
    closed = 0

    def __init__(self):
        super().__init__(rubric=Worth())

    def reset(self, seed=None):
        self._reset_rubric()
        self.numbers = []
        return Sum(text="sum 0")

    def step(self, action):
        if action.number == 12:
            raise OSError("the counter broke")
        self.numbers.append(action.number)
        done = len(self.numbers) == 2
        return self.score(action, Sum(text=f"sum {sum(self.numbers)}", done=done))

    def close(self):
        Adding.closed += 1


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


# The numbers that each turn of an episode adds, and the states and rewards of its steps.
EPISODES = [
    ([[1], [2]], [("sum 0", 1.0), ("sum 1", 2.0)]),
    ([[2], [1]], [("sum 0", 2.0), ("sum 2", 1.0)]),
    ([[1], [1]], [("sum 0", 1.0), ("sum 1", 1.0)]),
    ([[1, 2]], [("sum 0", 3.0)]),
    ([[99], [1], [2]], [("sum 0", 0.0), ("sum 0", 1.0), ("sum 1", 2.0)]),
    ([[1]], [("sum 0", 1.0), ("sum 1", 0.0)]),
    ([[12], [1]], [("sum 0", None)]),
    ([[1], [13]], [("sum 0", 1.0), ("sum 1", None)]),
]


def counter_trainer(folder, **settings):
    """Return a trainer whose model plays `EPISODES`, and then says that it is done."""

    class Scripted(kept(StepCreditGRPOTrainer)):
        turn = 0

        def _generate_single_turn(self, prompt_ids, *others, **more):
            self.rows = self.rows if self.turn else range(len(prompt_ids))
            scripts = [EPISODES[row % 8][0][self.turn :] for row in self.rows]
            texts = [
                "".join(CALL % number for number in left[0]) if left else "Done."
                for left in scripts
            ]
            self.rows = [row for row, left in zip(self.rows, scripts, strict=True) if left]
            self.turn += 1
            encode = self.processing_class
            return [encode(text + "<|im_end|>")["input_ids"] for text in texts], None

    return make_trainer(
        [episode_reward()], folder, kind=Scripted, tokenizer=with_tools(),
        environment_factory=environment_factory(Adding),
        prompt=lambda digit: [{"role": "user", "content": f"Count to {digit}. "}],
        credit="gigpo", states="states", step_rewards="step_rewards",
        settings={
            **SHORT, "max_steps": 1, "num_iterations": 1, "max_completion_length": 900,
            "log_completions": True, "num_completions_to_print": 0, **settings,
        },
    )  # fmt: skip


CALL = '<tool_call>\n{"name": "add", "arguments": {"number": %s}}\n</tool_call>'


def test_environment_factory_describes_the_action_to_the_model():
    environment = environment_factory(Adding)()
    expected = tool_schema(Add)["function"]
    found = get_json_schema(environment.add)["function"]
    number = expected["parameters"]["properties"]["number"]
    assert (number.pop("minimum"), number.pop("maximum")) == (0, 20)
    number["description"] += " (maximum 20, minimum 0)"
    expected["parameters"].pop("additionalProperties")
    assert found == expected


def test_environment_factory_gives_step_credit_the_turns_of_its_episodes(tmp_path):
    trainer = counter_trainer(tmp_path)
    trainer.train()
    rewards = trainer.rewards[0][:, 1].numpy().reshape(4, 8)
    np.testing.assert_array_equal(rewards, [[3, 3, 2, 3, 3, 1, np.nan, np.nan]] * 4)
    steps = [step for _ in range(4) for _, steps in EPISODES for step in steps]
    lengths = [len(steps) for _, steps in EPISODES] * 4
    rows = np.repeat(np.arange(32), lengths)
    batch = StepBatch.from_arrays(
        [reward for _, reward in steps],
        trajectory=rows,
        step=np.arange(len(rows)),
        group=rows // 8,
        state=[state for state, _ in steps],
        valid={row: row % 8 < 6 for row in range(32)},
    )
    output = trainer.outputs[0]
    mask = (output["completion_mask"] * output["tool_mask"]).numpy()
    turns = turn_index(mask)
    assert (turns.max(axis=1) + 1).tolist() == [len(script) + 1 for script, _ in EPISODES] * 4
    index = np.where((turns >= 0) & (turns < np.array(lengths)[:, None]), turns, -1)
    index = np.where(index < 0, -1, index + (np.cumsum(lengths) - lengths)[:, None])
    advantage = gigpo(batch).advantage
    expected = to_token_advantages(advantage, mask, index=index)
    np.testing.assert_allclose(output["advantages"].numpy(), expected, atol=1e-6)
    assert not expected.reshape(4, 8, -1)[:, 6:].any()
    assert expected.any()


def test_environment_factory_logs_its_episodes_and_closes_its_environments(tmp_path):
    closed = Adding.closed
    trainer = counter_trainer(tmp_path)
    trainer.train()
    [row] = [row for row in trainer.state.log_history if "rewards/Adding/mean" in row]
    assert row["rewards/Adding/mean"] == pytest.approx(15 / 6)
    assert row["episode/failed"] == 0.25
    assert row["episode/invalid_actions"] == 0.125
    assert row["tools/failure_frequency"] > 0
    table = pandas.read_parquet(tmp_path / "completions" / "completions_00001.parquet")
    assert table["Adding"].isna().tolist() == [False] * 6 + [True] * 2 + [False] * 6 + [
        True, True, *[False] * 6, True, True, *[False] * 6, True, True,
    ]  # fmt: skip
    assert "the counter broke" in table["episode/error"][6]
    assert set(table["episode/fingerprint"].dropna()) == {Worth().fingerprint()}
    del trainer
    gc.collect()
    assert Adding.closed - closed >= 32


def test_environment_factory_keeps_steps_whose_answer_trl_rolls_back(tmp_path):
    length = len(with_tools()(CALL % 1)["input_ids"]) + 9
    trainer = counter_trainer(tmp_path, max_completion_length=length)
    trainer.train()
    environments = trainer.environments
    completions = trainer._completions
    assert [len(each) for each in completions[:3]] == [1, 1, 1]  # without the answer
    assert [environments[row].get_reward() for row in range(3)] == [1.0, 2.0, 1.0]
    advantages = trainer.outputs[0]["advantages"].numpy()
    assert advantages[1, 0] > 0 > advantages[0, 0]


def test_environment_factory_teaches_the_lock(tmp_path, figure):
    trainer = tool_trainer(tmp_path, settings={"max_steps": 60}, **METHODS["GiGPO"])
    trainer.train()
    rewards = [row["reward"] for row in trainer.state.log_history if "reward" in row]
    figure(
        f"lock as a tool, seed 0, GiGPO: opened {100 * rewards[0]:.0f} % in the first ten steps, "
        f"{100 * rewards[-1]:.0f} % in the last ten of 60"
    )
    assert rewards[0] < 0.2
    assert rewards[-1] > 0.4


# A pool of environments


def test_rollout_func_gives_step_credit_advantages_of_turns(tmp_path):
    with EnvPool(Lock, n=32).sync() as pool:
        options = METHODS["GiGPO"] | {"kind": kept(StepCreditGRPOTrainer)}
        trainer = lock_trainer(pool, tmp_path, settings=SHORT, **options)
        trainer.train()
    output, inputs = trainer.outputs[-1], trainer._inputs
    lengths = [len(row["states"]) for row in inputs]
    rows = np.repeat(np.arange(32), lengths)
    batch = StepBatch.from_arrays(
        [reward for row in inputs for reward in row["step_rewards"]],
        trajectory=rows,
        step=np.arange(len(rows)),
        group=rows // 8,
        state=[state for row in inputs for state in row["states"]],
    )
    mask = (output["completion_mask"] * output["tool_mask"]).numpy()
    turns = turn_index(mask)
    assert (turns.max(axis=1) + 1).tolist() == lengths
    index = np.where(turns < 0, -1, turns + (np.cumsum(lengths) - lengths)[:, None])
    expected = to_token_advantages(gigpo(batch, gamma=0.95).advantage, mask, index=index)
    np.testing.assert_allclose(output["advantages"].numpy(), expected, atol=1e-6)


def test_rollout_func_gives_failed_episodes_advantage_0(tmp_path):
    class Fails(Lock):
        def step(self, action):
            if action.digit == 7:
                raise OSError("the dial broke off")
            return super().step(action)

    with EnvPool(Fails, n=32).sync() as pool:
        kind = kept(GRPOTrainer)
        trainer = lock_trainer(pool, tmp_path, kind=kind, settings=SHORT | {"num_iterations": 1})
        trainer.train()
    rewards, output = trainer.rewards[0][:, 0].numpy(), trainer.outputs[0]
    failed = np.isnan(rewards)
    assert 0 < failed.sum() < 32
    assert not output["advantages"].numpy()[failed].any()
    assert trainer.state.log_history[0]["episode/failed"] == pytest.approx(failed.mean())


def test_rollout_func_teaches_the_lock_in_fewer_turns_with_step_credit(tmp_path, figure):
    turns = {}
    for method in METHODS:
        busy = time.process_time()
        curve = learn(method, 0, tmp_path / method)
        busy = time.process_time() - busy
        turns[method] = curve[-1][1]
        figure(
            f"lock, seed 0, {method}: {curve[0][1]:.2f} turns in the first ten steps, "
            f"{turns[method]:.2f} in the last ten, best {BEST}; {busy:.0f} s of CPU"
        )
    assert turns["GiGPO"] < 3.05
    assert turns["GiGPO"] < turns["GRPO"] < 4


# The spawned process of AsyncGRPOTrainer


class Completions(BaseHTTPRequestHandler):
    """Answers as vLLM does, with the texts of the server one after another."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        ids = with_tools()(next(self.server.texts) + "<|im_end|>")["input_ids"]
        logprobs = {"token_logprobs": [-1.0] * len(ids)}
        body = json.dumps({"choices": [{"token_ids": ids, "logprobs": logprobs}]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def completions_server():
    """A server that answers as vLLM does."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Completions)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("scoring", "texts", "rewards"),
    [
        (
            {"reward_funcs": [reward_func(make_reward(), name="sum")]},
            ["A: 42", "A: 41", f"A: 42 {TIMEOUT}"],
            [1.25, 0.25, None],
        ),
        (
            {"reward_funcs": [], "environment_factory": environment_factory(Adding)},
            [CALL % 3, "Done.", CALL % 1, "Done.", CALL % 12, "Done."],
            [3.0, 1.0, None],
        ),
    ],
    ids=["reward_func", "environment_factory"],
)
def test_async_grpo_scores_in_its_spawned_process(
    scoring, texts, rewards, completions_server, monkeypatch
):
    monkeypatch.setattr(async_rollout_worker, "is_vllm_available", lambda: True)
    completions_server.texts = itertools.cycle(texts)
    prompt = [{"role": "user", "content": "6 × 7?"}]
    tokenizer = with_tools()
    worker = async_rollout_worker.AsyncRolloutWorker(
        model_name="none", dataset=Dataset.from_list([{"prompt": prompt, "ground_truth": "42"}]),
        processing_class=tokenizer, eos_token_ids=[tokenizer.eos_token_id], num_generations=3,
        max_inflight_tasks=1, max_tokens=200, max_tool_calling_iterations=1,
        vllm_server_url=f"http://127.0.0.1:{completions_server.server_port}", **scoring,
    )  # fmt: skip
    worker.start()
    try:
        samples = [worker.rollout_buffer.get(timeout=60) for _ in rewards]
    finally:
        worker.stop()
    found = [each.metrics["reward"] for each in samples]
    assert [None if np.isnan(reward) else reward for reward in found] == rewards
    assert [each.advantage for each in samples] == pytest.approx([1.0, -1.0, 0.0])
