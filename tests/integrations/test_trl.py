"""`guerdon.integrations.trl` without TRL: its reward functions are plain callables."""

import asyncio
import contextlib
import gc
import inspect
import math
import multiprocessing
import pickle
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from guerdon import (
    EnvPool,
    EvaluateResult,
    Gate,
    LengthBounds,
    NumericAnswer,
    Rubric,
    Sequential,
    StepOutput,
    TrajectoryRubric,
    WeightedSum,
    reward_function,
)
from guerdon.credit import StepBatch, gigpo, grpo, rloo
from guerdon.errors import (
    CreditError,
    EnvError,
    EpisodeError,
    InvalidActionError,
    InvalidArgumentError,
    LoadError,
    RewardConfigError,
)
from guerdon.integrations import trl
from guerdon.integrations.trl import (
    RewardFunc,
    StepCredit,
    environment_factory,
    episode_reward,
    reward_func,
    reward_funcs,
    rollout_func,
    turn_index,
)
from tests.integrations.guessing import Guessing
from tests.integrations.reward_files import write_reward
from trainers.locks import Dials, Lock

PROMPT = "6 × 7?"


class Words(Rubric):
    """The number of words."""

    def forward(self, action, observation):
        return float(len(action.content.split()))


class Judge(Rubric):
    """An async judge, which fails on some answers."""

    running = most = 0

    async def forward(self, action, observation):
        Judge.running += 1
        Judge.most = max(Judge.most, Judge.running)
        await asyncio.sleep(0)
        Judge.running -= 1
        if "fail" in action.content:
            raise ConnectionError("the judge did not answer")
        return 0.5


@reward_function
def answered(messages, ground_truth=None, *, level=None, bonus=0.0):
    return {"score": float(ground_truth in messages[-1].text) + bonus, "metrics": {"level": level}}


@reward_function(mode="batch")
def longest(rollouts_messages, ground_truths=None, *, level=None):
    lengths = [len(messages[-1].text) for messages in rollouts_messages]
    return [float(length == max(lengths)) for length in lengths]


def tree():
    return Sequential(
        Gate(LengthBounds(1, 3, unit="words")), WeightedSum([NumericAnswer(), Words()], [1, 0.25])
    )


class Log:
    """What TRL passes beside the columns of the dataset."""

    def __init__(self, step=0):
        self.columns, self.metrics = {}, {}
        self.trainer_state = SimpleNamespace(global_step=step)

    def extra(self, column, values):
        self.columns[column] = values

    def metric(self, name, value):
        self.metrics.setdefault(name, []).append(value)

    @property
    def hooks(self):
        return {
            "trainer_state": self.trainer_state,
            "log_extra": self.extra,
            "log_metric": self.metric,
        }


def called(func, completions, prompts=None, **columns):
    prompts = [PROMPT] * len(completions) if prompts is None else prompts
    ids = [[0]] * len(completions)
    return func(prompts=prompts, completions=completions, completion_ids=ids, **columns)


# reward_func --------------------------------------------------------------------------------------


def test_reward_func_scores_plain_text_and_conversations_alike():
    func = reward_func(tree(), name="tree")
    texts = ["A: 42", "A: 41", "A: 42 or so, I think"]
    chats = [[{"role": "assistant", "content": text}] for text in texts]
    prompts = [[{"role": "user", "content": PROMPT}]] * 3
    expected = [1.5, 0.5, 0.0]
    assert called(func, texts, ground_truth=["42"] * 3) == expected
    assert called(func, chats, prompts, ground_truth=["42"] * 3) == expected


def test_reward_func_gives_none_not_0_where_the_reward_failed():
    func = reward_func(tree(), name="tree")
    assert called(func, ["A: 42", "A: 42"], ground_truth=["42", None]) == [1.5, None]
    assert "no ground truth" in func.results[1].error


def test_reward_func_warns_once_of_failures(caplog):
    called(reward_func(tree(), name="tree"), ["A: 42"] * 3, ground_truth=["42", None, None])
    [record] = caplog.records
    assert record.message.startswith("2 of 3 rewards of tree failed and have no advantage; the ")


def test_reward_func_logs_all_components_each_time_under_the_same_names():
    func, log = reward_func(tree(), name="tree"), Log()
    called(func, ["far too many words here"], ground_truth=["42"], **log.hooks)
    names = list(log.columns)
    assert names == [
        "tree/rubric_0", "tree/rubric_0.rubric", "tree/rubric_1", "tree/rubric_1.rubric_0",
        "tree/rubric_1.rubric_1", "tree/error", "tree/fingerprint",
    ]  # fmt: skip
    assert log.columns["tree/rubric_0"] == [0.0]
    assert math.isnan(log.columns["tree/rubric_1.rubric_0"][0])
    assert "tree/rubric_1" not in log.metrics  # a mean of NaN would hide those of other processes
    later = Log()
    called(func, ["A: 42", "a b c d"], ground_truth=["42"] * 2, **later.hooks)
    assert list(later.columns) == names
    assert later.columns["tree/rubric_1.rubric_0"] == [1.0, pytest.approx(math.nan, nan_ok=True)]
    assert later.metrics["tree/rubric_1.rubric_0"] == [1.0]


def test_reward_func_logs_failures_and_the_fingerprint():
    func, log = reward_func(tree(), name="tree"), Log()
    called(func, ["A: 42", "A: 42"], ground_truth=["42", None], **log.hooks)
    assert log.metrics["tree/failed"] == [0.0, 1.0]
    assert log.columns["tree/error"][0] is None
    assert "MissingInputError" in log.columns["tree/error"][1]
    assert log.columns["tree/fingerprint"] == [tree().fingerprint()] * 2


def test_reward_func_takes_the_ground_truth_from_a_column():
    func = reward_func(NumericAnswer(), name="correct", ground_truth="answer")
    assert called(func, ["A: 42", "A: 41"], answer=["42", "42"]) == [1.0, 0.0]
    with pytest.raises(InvalidArgumentError, match="no column 'answer' for the reward 'correct'"):
        called(func, ["A: 42"], ground_truth=["42"])


def test_reward_func_passes_columns_and_parameters_to_reward_functions():
    func, log = reward_func(answered, name="answered", parameters={"bonus": 0.5}), Log()
    columns = {"ground_truth": ["42", "42"], "level": [3, 4], "messages": ["x", "y"]}
    assert called(func, ["42", "41"], **columns, **log.hooks) == [1.5, 0.5]
    assert log.columns["answered/level"] == [3.0, 4.0]
    with pytest.raises(InvalidArgumentError, match="has no parameter 'malus'"):
        reward_func(answered, name="answered", parameters={"malus": 1})


def test_reward_func_takes_undecorated_functions_of_messages():
    func = reward_func(lambda messages: float(len(messages)), name="length")
    assert called(func, ["a"]) == [2.0]


def test_reward_func_scores_batch_functions_by_prompt_or_by_column():
    func = reward_func(longest, name="longest")
    assert called(func, ["a", "bb", "c", "d"], ["x", "x", "y", "y"]) == [0.0, 1.0, 1.0, 1.0]
    func = reward_func(longest, name="longest", group="level")
    assert called(func, ["a", "bb", "c"], level=[1, 1, 2]) == [0.0, 1.0, 1.0]
    assert len(func.results) == 3


def test_reward_func_does_not_score_the_turns_of_the_prompt():
    prompt = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "one two three"},
        {"role": "user", "content": PROMPT},
    ]
    func = reward_func(Words(), name="words")
    assert called(func, [[{"role": "assistant", "content": "A: 42"}]], [prompt]) == [2.0]
    assert [output.step_index for output in func.results[0].step_outputs] == [1]


def test_reward_func_scores_all_turns_of_a_completion():
    turns = [
        {"role": "assistant", "content": "", "tool_calls": [
            {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}]},
        {"role": "tool", "name": "add", "content": "42"},
        {"role": "assistant", "content": "A: 42"},
    ]  # fmt: skip
    func, log = reward_func(WeightedSum([Words()], [1.0]), name="words"), Log()
    assert called(func, [turns], **log.hooks) == [2.0]
    assert log.columns["words/rubric_0"] == [2.0]


def test_reward_func_scores_async_rewards_concurrently():
    func = reward_func(Sequential(Judge()), name="judge")
    assert asyncio.iscoroutinefunction(func.__call__)
    Judge.most = 0
    assert asyncio.run(called(func, ["a", "fail", "b", "c"])) == [0.5, None, 0.5, 0.5]
    assert Judge.most == 4
    assert "did not answer" in func.results[1].error


def test_reward_func_has_its_name_as_trl_reads_it():
    assert reward_func(tree(), name="tree").__name__ == "tree"


# Pickling


@pytest.mark.parametrize("reward", [tree(), answered, NumericAnswer()])
def test_reward_func_survives_pickling(reward):
    func = reward_func(reward, name="correct", ground_truth="answer")
    copy = pickle.loads(pickle.dumps(func))
    assert isinstance(copy, RewardFunc)
    assert (copy.__name__, copy.fingerprint) == ("correct", func.fingerprint)
    answers = {"answer": ["42", "42"]}
    assert called(copy, ["A: 42", "x"], **answers) == called(func, ["A: 42", "x"], **answers)


@pytest.mark.edge
def test_reward_func_runs_in_a_spawned_process():
    func = reward_func(NumericAnswer(), name="correct")
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        scores = pool.apply(func, ([PROMPT] * 2, ["A: 42", "A: 1"]), {"ground_truth": ["42", None]})
    assert scores == [1.0, None]


# Files


def test_reward_func_reads_the_file_of_a_pipeline(tmp_path):
    func = reward_func(write_reward(tmp_path), name="file")
    assert called(func, ["A: 42", "A: 41"], ground_truth=["42"] * 2) == [1.5, 0.5]
    copy = pickle.loads(pickle.dumps(func))
    assert copy.fingerprint == func.fingerprint
    func.close()


def test_reward_func_moves_schedules_with_the_trainers_step(tmp_path):
    schedule = ", schedule: {by: training_step, piecewise: [[0, 1.0], [100, 0.0]]}"
    func = reward_func(str(write_reward(tmp_path, schedule)), name="file")
    fingerprints = set()
    for step, expected in [(0, 1.5), (50, 1.0), (100, 0.5)]:
        log = Log(step)
        assert called(func, ["A: 42"], ground_truth=["42"], **log.hooks) == [expected]
        fingerprints.update(log.columns["file/fingerprint"])
    assert len(fingerprints) == 3
    with pytest.raises(InvalidArgumentError, match="need TRL's `trainer_state`"):
        called(func, ["A: 42"], ground_truth=["42"])


def test_reward_func_refuses_a_curriculum(tmp_path):
    path = write_reward(tmp_path)
    stages = "curriculum:\n  - {name: a, weights: {words: 1.0}, until: {episodes: 3}}\n"
    path.write_text(path.read_text() + stages + "  - {name: b, weights: {words: 0.0}}\n")
    with pytest.raises(InvalidArgumentError, match="has a curriculum"):
        reward_func(path, name="file")


def test_reward_func_reports_a_missing_file_or_name(tmp_path):
    with pytest.raises(RewardConfigError):
        reward_func(tmp_path / "none.yaml", name="file")
    with pytest.raises(LoadError):
        reward_func("guerdon:Nothing", name="file")


# reward_funcs -------------------------------------------------------------------------------------


def test_reward_funcs_make_a_row_none_in_all_columns_where_one_failed():
    funcs, weights = reward_funcs(WeightedSum([NumericAnswer(), Words()], [1.0, 0.25]))
    completions = ["A: 42", "A: 41", "A: 42"]
    columns = [called(func, completions, ground_truth=["42", "42", None]) for func in funcs]
    assert columns == [[1.0, 0.0, None], [2.0, 2.0, None]]
    assert weights == [1.0, 0.25]
    assert [func.__name__ for func in funcs] == ["rubric_0", "rubric_1"]


def test_reward_funcs_sum_to_the_tree():
    reward = WeightedSum([NumericAnswer(), Words()], [1.0, -0.25])
    funcs, weights = reward_funcs(reward, ground_truth="answer")
    completions = ["A: 42", "A: 41", "some more words"]
    columns = np.array([called(func, completions, answer=["42"] * 3) for func in funcs])
    whole = reward_func(reward, name="sum", ground_truth="answer")
    assert (weights @ columns).tolist() == called(whole, completions, answer=["42"] * 3)


def test_reward_funcs_score_a_batch_once():
    calls = []
    counted = Words()
    counted.register_forward_hook(lambda *given: calls.append(given))
    funcs, _ = reward_funcs(WeightedSum([counted, counted], [1, 1]))
    batch = ["a", "b"]
    for func in funcs:
        called(func, batch)
    once = len(calls)
    called(funcs[0], ["a", "b"])
    assert (once, len(calls)) == (4, 8)


def test_reward_funcs_are_async_if_one_is():
    funcs, _ = reward_funcs(WeightedSum([Judge(), Words()], [1, 1]))
    completions = ["a", "fail"]

    async def both():
        return await asyncio.gather(*[called(func, completions) for func in funcs])

    assert all(asyncio.iscoroutinefunction(func.__call__) for func in funcs)
    assert asyncio.run(both()) == [[0.5, None], [1.0, None]]


def test_reward_funcs_stay_together_when_they_are_pickled():
    funcs, _ = reward_funcs(WeightedSum([NumericAnswer(), Words()], [1, 1]))
    first, second = pickle.loads(pickle.dumps(funcs))
    assert first.joint is second.joint
    completions = ["A: 42"]
    assert called(second, completions, ground_truth=[None]) == [None]


def test_reward_funcs_refuse_other_rubrics():
    with pytest.raises(InvalidArgumentError, match="must be a WeightedSum, got"):
        reward_funcs(tree())


# StepCredit ---------------------------------------------------------------------------------------


class Tensor:
    """What step credit uses of a tensor."""

    def __init__(self, values):
        self.values = np.asarray(values, dtype=float)

    def cpu(self):
        return self

    double = cpu

    def numpy(self):
        return self.values

    def __mul__(self, other):
        return Tensor(self.values * other.values)

    def __getitem__(self, key):
        return self.values[key]

    def new_tensor(self, values):
        return Tensor(np.asarray(values, dtype=np.float32))


class Trainer:
    """What step credit uses of TRL's trainer."""

    num_generations = 2
    num_generations_eval = 1
    multi_objective_aggregation = "sum_then_normalize"
    environments = None

    def __init__(self, reward_funcs, weights, batch, masks, processes=1):
        self.accelerator = SimpleNamespace(num_processes=processes)
        self.model = SimpleNamespace(training=True)
        self.reward_funcs, self.reward_weights = reward_funcs, Tensor(weights)
        self.batch, self.masks = batch, masks
        self._logs = {"advantages": [], "extra": {"step_advantages": []}}

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids):
        given = {"prompts": prompts, "completions": completions, "completion_ids": completion_ids}
        if self.environments is not None:
            given["environments"] = self.environments
        columns = [func(**given) for func in self.reward_funcs]
        return Tensor(
            [[np.nan if one is None else one for one in row] for row in zip(*columns, strict=True)]
        )

    def _generate_and_score_completions(self, inputs):
        prompts = [row["prompt"] for row in inputs]
        self._calculate_rewards(inputs, prompts, self.batch, None)
        self._logs["advantages"] += [9.0] * len(inputs)
        completion, tool = self.masks
        output = {"completion_mask": Tensor(completion), "advantages": Tensor([0.0])}
        return output if tool is None else output | {"tool_mask": Tensor(tool)}


class StepTrainer(StepCredit, Trainer):
    pass


def conversation(*turns):
    messages = []
    for turn in turns:
        messages += [{"role": "assistant", "content": turn}, {"role": "tool", "content": "ok"}]
    return messages[:-1]


FOUR = [
    conversation("a", "b b"),
    conversation("a a a"),
    conversation("a", "b"),
    conversation("x x", "y"),
]
COMPLETION = [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
TOOL = [[1, 0, 0, 1, 1], [1, 1, 1, 1, 1], [1, 0, 1, 1, 1], [1, 1, 0, 1, 1]]


def step_trainer(reward=None, masks=(COMPLETION, TOOL), weights=(1.0,), credit="gigpo", **options):
    func = reward_func(Words() if reward is None else reward, name="reward")
    return StepTrainer([func], weights, FOUR, masks, credit=credit, **options)


def inputs(**columns):
    rows = [{"prompt": [{"role": "user", "content": PROMPT}]} for _ in FOUR]
    return [
        row | {name: values[index] for name, values in columns.items()}
        for index, row in enumerate(rows)
    ]


STATES = [["s", "t"], ["s"], ["s", "t"], ["s", "t"]]


def test_step_credit_gives_each_turn_the_advantage_of_its_step():
    estimator = partial(gigpo, gamma=0.5)
    trainer = step_trainer(credit=estimator, states="states")
    output = trainer._generate_and_score_completions(inputs(states=STATES))
    batch = StepBatch.from_arrays(
        [1, 2, 3, 1, 1, 2, 1],
        trajectory=[0, 0, 1, 2, 2, 3, 3],
        step=range(7),
        group=[0, 0, 0, 1, 1, 1, 1],
        state=["s", "t", "s", "s", "t", "s", "t"],
    )
    turn = estimator(batch).advantage
    expected = np.array([
        [turn[0], 0, 0, turn[1], turn[1]],
        [turn[2]] * 3 + [0, 0],
        [turn[3], 0, turn[4], 0, 0],
        [turn[5], turn[5], 0, turn[6], turn[6]],
    ])  # fmt: skip
    np.testing.assert_allclose(output["advantages"].values, expected, rtol=1e-6)


def test_step_credit_logs_the_real_advantages():
    trainer = step_trainer(states="states")
    output = trainer._generate_and_score_completions(inputs(states=STATES))
    written = np.array(COMPLETION) * np.array(TOOL)
    tokens = output["advantages"].values
    means = tokens.sum(axis=1) / written.sum(axis=1)
    np.testing.assert_allclose(trainer._logs["advantages"], means, rtol=1e-5)
    by_turn = trainer._logs["extra"]["step_advantages"]
    assert [len(row) for row in by_turn] == [2, 1, 2, 2]
    np.testing.assert_allclose(by_turn[0], [tokens[0][0], tokens[0][3]], rtol=1e-6)


def test_step_credit_excludes_completions_without_a_score():
    class Fails(Words):
        def forward(self, action, observation):
            if action.content == "a a a":
                raise ConnectionError("no answer")
            return super().forward(action, observation)

    trainer = step_trainer(Fails(), credit=partial(rloo))
    tokens = trainer._generate_and_score_completions(inputs())["advantages"].values
    assert tokens[1].tolist() == [0.0] * 5
    assert tokens[0].tolist() == [0.0] * 5  # nothing is left to compare it with
    assert tokens[2][0] == -1.0
    assert tokens[3][0] == 1.0


def test_step_credit_excludes_completions_where_one_of_two_functions_failed():
    def fails(action, observation):
        if action.content == "a a a":
            raise ConnectionError("no answer")
        return 5.0

    def other(completions, **others):  # None: it has nothing to score
        return [None, 1.0, None, None]

    funcs = [reward_func(Words(), name="words"), reward_func(fails, name="judge"), other]
    seen = []
    estimator = lambda batch: seen.append(batch) or grpo(batch)  # noqa: E731
    trainer = StepTrainer(funcs, [1, 1, 1], FOUR, (COMPLETION, TOOL), credit=estimator)
    tokens = trainer._generate_and_score_completions(inputs())["advantages"].values
    assert list(seen[0].masked) == [1]
    assert not tokens[1].any()


def test_step_credit_takes_the_rewards_of_turns_from_a_column():
    rewards = [[0.0, 4.0], [1.0], [0.0, 0.0], [2.0, 0.0]]
    trainer = step_trainer(credit=lambda batch: seen.append(batch) or grpo(batch), step_rewards="r")
    seen = []
    trainer._generate_and_score_completions(inputs(r=rewards))
    assert seen[0].rewards.tolist() == [0.0, 4.0, 1.0, 0.0, 0.0, 2.0, 0.0]
    assert seen[0].scores.tolist() == [3.0, 3.0, 2.0, 3.0]


def test_step_credit_adds_other_scores_at_the_last_turn():
    def plain(completions, **others):
        return [10.0] * len(completions)

    seen = []
    func = reward_func(Words(), name="reward")
    estimator = lambda batch: seen.append(batch) or grpo(batch)  # noqa: E731
    trainer = StepTrainer([func, plain], [2.0, 1.0], FOUR, (COMPLETION, TOOL), credit=estimator)
    trainer._generate_and_score_completions(inputs())
    assert seen[0].rewards.tolist() == [2.0, 14.0, 16.0, 2.0, 12.0, 4.0, 12.0]
    assert seen[0].scores.tolist() == [16.0, 16.0, 14.0, 16.0]


def test_step_credit_reads_the_step_outputs_of_reward_functions():
    @reward_function
    def turns(messages):
        outputs = [StepOutput(step_index=0, base_reward=5.0)]
        return EvaluateResult(score=7.0, step_outputs=outputs)

    seen = []
    trainer = step_trainer(turns, credit=lambda batch: seen.append(batch) or grpo(batch))
    trainer._generate_and_score_completions(inputs())
    assert seen[0].rewards.tolist() == [5.0, 0.0, 5.0, 5.0, 0.0, 5.0, 0.0]
    assert seen[0].scores.tolist() == [7.0] * 4


def test_step_credit_leaves_out_step_outputs_without_a_turn(caplog):
    @reward_function
    def turns(messages):
        outputs = [StepOutput(step_index=index, base_reward=5.0) for index in (0, 9, "ask")]
        return EvaluateResult(score=7.0, step_outputs=outputs)

    seen = []
    trainer = step_trainer(turns, credit=lambda batch: seen.append(batch) or grpo(batch))
    trainer._generate_and_score_completions(inputs())
    assert seen[0].rewards.tolist() == [5.0, 0.0, 5.0, 5.0, 0.0, 5.0, 0.0]
    assert "8 step outputs have no turn and were left out; the first: step 9" in caplog.text


def test_step_credit_gives_turns_after_the_episode_no_advantage():
    states = [["s"], ["s"], ["s", "t"], ["s", "t"]]  # completion 0 goes on after its only step
    trainer = step_trainer(credit=partial(gigpo, normalize="mean"), states="states")
    tokens = trainer._generate_and_score_completions(inputs(states=states))["advantages"].values
    assert tokens[0][3:].tolist() == [0.0, 0.0]


def test_step_credit_works_with_completions_that_are_masked_out():
    completion = [[0] * 5, *COMPLETION[1:]]
    trainer = step_trainer(masks=(completion, None), credit="grpo")
    tokens = trainer._generate_and_score_completions(inputs())["advantages"].values
    assert tokens[0].tolist() == [0.0] * 5


def test_step_credit_reads_states_of_environments():
    trainer = step_trainer(states="states")
    trainer.environments = [SimpleNamespace(states=states) for states in STATES]
    seen = trainer._generate_and_score_completions(inputs())["advantages"].values
    other = step_trainer(states="states")
    expected = other._generate_and_score_completions(inputs(states=STATES))["advantages"].values
    assert seen.tolist() == expected.tolist()


def test_step_credit_takes_the_number_of_generations_of_an_evaluation():
    trainer = step_trainer(credit="rloo")
    trainer.model.training = False
    tokens = trainer._generate_and_score_completions(inputs())["advantages"].values
    assert not tokens.any()


def test_step_credit_refuses_several_processes_and_gives_the_reason():
    with pytest.raises(InvalidArgumentError, match="TRL may split a group over processes; use one"):
        StepTrainer([], [], FOUR, (COMPLETION, TOOL), processes=2, credit="gigpo")


def test_step_credit_refuses_rewards_that_are_normalized_before(monkeypatch):
    monkeypatch.setattr(Trainer, "multi_objective_aggregation", "normalize_then_sum")
    with pytest.raises(InvalidArgumentError, match="the estimator normalizes, got"):
        step_trainer()


def test_step_credit_names_what_is_missing():
    with pytest.raises(InvalidArgumentError, match="no column 'states' for step credit"):
        step_trainer(states="states")._generate_and_score_completions(inputs())
    with pytest.raises(CreditError, match="no states"):
        step_trainer()._generate_and_score_completions(inputs())
    trainer = step_trainer(states="states", step_rewards="r")
    rewards = [[1.0], [1.0, 2.0], [1.0, 1.0], [1.0, 1.0]]
    with pytest.raises(InvalidArgumentError, match="completion 0 has 2 states and 1 rewards"):
        trainer._generate_and_score_completions(inputs(states=STATES, r=rewards))
    with pytest.raises(InvalidArgumentError, match="nonsense"):
        step_trainer(credit="nonsense")


def test_turn_index_numbers_the_runs_of_a_mask():
    mask = [[1, 0, 1, 1, 0], [0, 1, 1, 0, 1], [0, 0, 0, 0, 0]]
    expected = [[0, -1, 1, 1, -1], [-1, 0, 0, -1, 1], [-1] * 5]
    assert turn_index(mask).tolist() == expected


def test_step_credit_grpo_trainer_names_the_package_that_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "trl", None)
    monkeypatch.delitem(vars(trl), "StepCreditGRPOTrainer", raising=False)
    with pytest.raises(ImportError, match="StepCreditGRPOTrainer requires the package trl: pip"):
        trl.StepCreditGRPOTrainer  # noqa: B018
    with pytest.raises(AttributeError, match="has no attribute 'Other'"):
        trl.Other  # noqa: B018


def test_trajectory_rubrics_spread_their_score_over_the_turns_of_step_credit():
    class Last(TrajectoryRubric):
        def score_trajectory(self, trajectory):
            return 1.0

        def compute_step_rewards(self):
            return [1.0 / len(self.trajectory)] * len(self.trajectory)

    seen = []
    trainer = step_trainer(Last(), credit=lambda batch: seen.append(batch) or grpo(batch))
    trainer._generate_and_score_completions(inputs())
    assert seen[0].rewards.tolist() == [0.5, 0.5, 1.0, 0.5, 0.5, 0.5, 0.5]


# environment_factory ------------------------------------------------------------------------------


class Strict(Lock):
    """A lock whose reset accepts a seed only, and breaks at the seed 99; the digit 8 breaks it."""

    def reset(self, seed=0):
        if seed == 99:
            raise OSError("no such lock")
        return super().reset(seed)

    def step(self, action):
        if action.digit == 8:
            raise OSError("the dial broke off")
        return super().step(action)


@pytest.fixture
def made():
    """The locks that a test makes, in order."""
    return []


@pytest.fixture
def lock(made):
    """A lock that is a tool."""

    def make():
        made.append(Strict())
        return made[-1]

    return environment_factory(make)()


ROW = {"seed": 37, "prompt": [{"role": "user", "content": "Open it: "}], "level": 3}


def test_environment_factory_makes_a_tool_of_the_action():
    environment = environment_factory(Guessing, tool="guess_it")()
    functions = dict(inspect.getmembers(type(environment), inspect.isfunction))
    public = [name for name in functions if not name.startswith("_")]
    assert public == ["get_reward", "guess_it", "reset"]
    assert type(environment).__name__ == "Guessing"
    assert str(inspect.signature(environment.guess_it)) == "(*, number: int)"
    assert "    number: number (maximum 15, minimum 0)" in environment.guess_it.__doc__


def test_environment_factory_makes_environments_of_one_class():
    factory = environment_factory(Lock)
    assert type(factory()) is type(factory())


@pytest.mark.parametrize("tool", ["reset", "get_reward", "_turn", "two words"])
def test_environment_factory_refuses_other_names_for_the_tool(tool):
    with pytest.raises(InvalidArgumentError, match=f"`tool` must be .*, got '{tool}'"):
        environment_factory(Lock, tool=tool)()


def test_environment_factory_passes_what_the_reset_accepts_and_sums_the_rewards(lock):
    assert lock.reset(**ROW) == "first dial"
    assert [lock.turn(digit=digit) for digit in (3, 5, 7)] == ["click", "nothing", "click"]
    assert lock.get_reward() == 2.0
    lock.reset(**ROW)
    assert lock.get_reward() == 0.0


def test_environment_factory_uses_observation_text():
    lock = environment_factory(Lock, observation_text=lambda seen: seen.text.upper())()
    assert lock.reset(seed=37) == "FIRST DIAL"


def test_environment_factory_gives_none_where_a_reward_failed(lock):
    lock.reset(**ROW)
    lock.turn(digit=3)
    assert "the scale is broken" in lock.turn(digit=9)
    with pytest.raises(EpisodeError, match=r"step 1: .*the scale is broken"):
        lock.turn(digit=7)
    assert lock.get_reward() is None


def test_environment_factory_gives_none_where_the_environment_raised_and_makes_another(lock, made):
    lock.reset(**ROW)
    with pytest.raises(EnvError, match="the environment failed: OSError: the dial broke off"):
        lock.turn(digit=8)
    assert lock.get_reward() is None
    assert lock.reset(**ROW) == "first dial"
    assert [each.is_closed for each in made] == [True, False]
    assert lock.get_reward() == 0.0


def test_environment_factory_gives_none_where_the_reset_raised(lock):
    assert lock.reset(seed=99) == ""
    with pytest.raises(EpisodeError, match="no such lock"):
        lock.turn(digit=3)
    assert lock.get_reward() is None


def test_environment_factory_answers_invalid_arguments_without_a_step(lock):
    lock.reset(**ROW)
    with pytest.raises(InvalidActionError, match="not a valid Turn"):
        lock.turn(digit="three")
    assert lock.turn(digit=3) == "click"
    assert lock.get_reward() == 1.0


def test_environment_factory_refuses_calls_after_the_end(lock):
    lock.reset(**ROW)
    lock.turn(digit=3)
    lock.turn(digit=7)
    with pytest.raises(EpisodeError, match="the episode has ended"):
        lock.turn(digit=7)
    assert lock.get_reward() == 2.0


def test_environment_factory_closes_environments_that_are_no_longer_used(made):
    def make():
        made.append(Lock())
        return made[-1]

    environment = environment_factory(make)()
    environment.reset(**ROW)
    del environment
    gc.collect()
    assert [each.is_closed for each in made] == [True]


def test_environment_factory_can_be_pickled():
    environment = pickle.loads(pickle.dumps(environment_factory(Lock)))()
    environment.reset(**ROW)
    assert environment.turn(digit=3) == "click"


def assistant(*digits, tool="turn"):
    calls = [
        {"type": "function", "function": {"name": tool, "arguments": {"digit": digit}}}
        for digit in digits
    ]
    return {"role": "assistant", "content": "", "tool_calls": calls}


ANSWER = {"role": "tool", "name": "turn", "content": ""}


def credited(environments, completions, reward_funcs=(), **options):
    """Return the batch of steps that step credit makes of environments and their completions."""
    seen = []
    length = 2 * max(map(len, completions))
    mask = np.zeros((len(completions), length))
    for row, completion in enumerate(completions):
        mask[row, : 2 * sum(each["role"] == "assistant" for each in completion) : 2] = 1
    funcs = [lambda environments, **_: [each.get_reward() for each in environments], *reward_funcs]
    trainer = StepTrainer(
        funcs, [1.0] * len(funcs), completions, (np.ones_like(mask), mask),
        credit=lambda batch: seen.append(batch) or gigpo(batch),
        states="states", step_rewards="step_rewards",
    )  # fmt: skip
    trainer.environments = environments
    rows = [{"prompt": [{"role": "user", "content": PROMPT}]} for _ in completions]
    tokens = trainer._generate_and_score_completions(rows)["advantages"].values
    return seen[0], tokens


def play(digits_of_turns):
    """Play turns with calls in a lock, and return it with its completion."""
    environment = environment_factory(Strict)()
    environment.reset(**ROW)
    completion = []
    for digits in digits_of_turns:
        completion.append(assistant(*digits))
        for digit in digits:
            with contextlib.suppress(EnvError):
                environment.turn(digit=digit)
            completion.append(ANSWER)
    return environment, completion


def test_step_credit_makes_one_step_of_the_calls_of_a_turn():
    first, together = play([[3, 5], [7], []])
    second, apart = play([[3], [1], [7], []])
    batch, tokens = credited([first, second], [together, apart])
    assert batch.rewards.tolist() == [1.0, 1.0, 1.0, 0.0, 1.0]
    keys = [batch.state_keys[number] for number in batch.state]
    assert keys == ["first dial", "nothing", "first dial", "click", "nothing"]
    assert batch.lengths.tolist() == [2, 3]  # the turn after the end has no step
    assert not tokens[0, 4:].any()
    assert not tokens[1, 6:].any()


def test_step_credit_gives_a_step_to_turns_without_an_executed_call():
    stopped, early = play([[3], []])  # answered in words before the end
    limited, late = play([[1], [2]])
    late.append(assistant(3))  # TRL's limit of calls was reached
    other, mixed = play([[3], [7]])
    mixed.insert(0, assistant(4, tool="search"))
    batch, _ = credited([stopped, limited, other, other], [early, late, mixed, mixed])
    assert batch.rewards.tolist() == [1.0, 0.0, 0.0, 0.0, 0.0, *[0.0, 1.0, 1.0] * 2]
    keys = [batch.state_keys[number] for number in batch.state]
    assert keys[:5] == ["first dial", "click", "first dial", "nothing", "nothing"]


def test_step_credit_excludes_failed_episodes_though_another_function_gave_a_number():
    def length(completions, **others):
        return [float(len(each)) for each in completions]

    failed, broken = play([[3], [8], []])
    unreset, none = play([[3]])
    unreset.reset(seed=99)
    good, completion = play([[3], [7]])
    environments, completions = (
        [failed, good, unreset, good],
        [broken, completion, none, completion],
    )
    batch, tokens = credited(environments, completions, [length])
    assert set(batch.masked) == {0, 2}
    assert not tokens[[0, 2]].any()


# rollout_func -------------------------------------------------------------------------------------


class Characters:
    """A tokenizer with a token for each character."""

    eos_token_id = 0

    def __call__(self, text, add_special_tokens=True):
        return {"input_ids": list(map(ord, text))}

    def batch_decode(self, rows, skip_special_tokens):
        return ["".join(map(chr, filter(None, ids))) for ids in rows]


class Player:
    """What `rollout_func` uses of TRL's trainer; its model writes one text after another."""

    num_generations = 2
    num_generations_eval = 1
    processing_class = Characters()

    def __init__(self, *turns, training=True, limit=1_000, logprob=None):
        config = SimpleNamespace(max_position_embeddings=limit)
        self.model = SimpleNamespace(training=training, config=config)
        self.turns, self.contexts, self.logprob = iter(turns), [], logprob

    def _tokenize_prompts(self, prompts):
        texts = [each if isinstance(each, str) else each[-1]["content"] for each in prompts]
        return [list(map(ord, text)) for text in texts], None, {}

    def _generate_single_turn(self, contexts, images, fields, num_generations):
        self.contexts.append(self.processing_class.batch_decode(contexts, False))
        texts = next(self.turns)
        assert len(texts) == len(contexts)
        ids = [[*map(ord, text), 0] for text in texts]
        logprobs = self.logprob and [[self.logprob] * len(each) for each in ids]
        return ids, logprobs


OPTIONS = {
    "max_turns": 4, "turn": "[{observation}]", "to_action": lambda text: {"digit": int(text)},
    "reset_arguments": lambda prompt: {"seed": 37},
}  # fmt: skip


def played(player, prompts=("a{observation}", "b{observation}"), n=2, env=Strict, **options):
    with EnvPool(env, n=n).sync() as pool:
        play = rollout_func(pool, **OPTIONS | options)
        return play(list(prompts), player)


def test_rollout_func_plays_a_pool_in_lock_step():
    player = Player(["3", "5"], ["7", "3"], ["7"])
    found = played(player, ["Open: {observation}", "Go: {observation}"])
    assert player.contexts == [
        ["Open: first dial", "Go: first dial"],
        ["Open: first dial3[click]", "Go: first dial5[nothing]"],
        ["Go: first dial5[nothing]3[click]"],
    ]
    texts = Characters().batch_decode(found["completion_ids"], True)
    assert texts == ["3[click]7", "5[nothing]3[click]7"]
    assert found["env_mask"][0] == [1, 1, *[0] * len("[click]"), 1, 1]
    assert [len(each) for each in found["env_mask"]] == [len(e) for e in found["completion_ids"]]
    assert found["logprobs"] is None
    assert found["states"] == [["first dial", "click"], ["first dial", "nothing", "click"]]
    assert found["step_rewards"] == [[1.0, 1.0], [0.0, 1.0, 1.0]]
    assert scored(found) == [2.0, 2.0]


def scored(found, func=None, **hooks):
    columns = {name: found[name] for name in ("guerdon_episodes", "states", "step_rewards")}
    func = func or episode_reward()
    return called(func, [""] * len(found["states"]), **columns, **hooks)


def test_rollout_func_puts_the_first_observation_into_messages():
    prompts = [[{"role": "system", "content": "s"}, {"role": "user", "content": "{observation}."}]]
    player = Player(["3"], ["7"])
    played(player, prompts, n=1)
    assert player.contexts[0] == ["first dial."]
    assert prompts[0][-1]["content"] == "{observation}."


def test_rollout_func_gives_each_group_a_seed():
    class Seeded(Lock):
        def reset(self, seed=None):
            super().reset(seed)
            return Dials(text=str(seed))

    def first(player, batches=1):
        with EnvPool(Seeded, n=4).sync() as pool:
            play = rollout_func(pool, **OPTIONS | {"max_turns": 1, "reset_arguments": None})
            for _ in range(batches):
                play(["{observation}"] * 4, player)
        return player.contexts

    one = ["1"] * 4
    assert first(Player(one, one), 2) == [["0", "0", "1", "1"], ["2", "2", "3", "3"]]
    assert first(Player(one, training=False)) == [["0", "1", "2", "3"]]


def test_rollout_func_ends_failed_episodes_without_a_reward():
    player = Player(["8", "9", "3"], ["7"])
    found = played(player, "abc", n=3)
    assert found["step_rewards"] == [[None], [None], [1.0, 1.0]]
    assert scored(found) == [None, None, 2.0]
    errors = [each.error for each in found["guerdon_episodes"]]
    assert "the dial broke off" in errors[0]
    assert "the scale is broken" in errors[1]


def test_rollout_func_gives_episodes_whose_reset_failed_one_masked_token():
    seeds = {"a": 99, "b": 37}
    player = Player(["3"], ["7"])
    found = played(player, "ab", reset_arguments=lambda prompt: {"seed": seeds[prompt]})
    assert (found["completion_ids"][0], found["env_mask"][0]) == ([0], [0])
    assert scored(found) == [None, 2.0]


def test_rollout_func_shows_the_model_why_a_text_is_not_an_action():
    player = Player(["x", "3"], ["5", "7"], ["3"])
    found = played(player, max_turns=3)
    assert "invalid literal for int() with base 10: 'x'" in player.contexts[1][0]
    assert found["step_rewards"] == [[0.0, 0.0, 1.0], [1.0, 1.0]]
    assert found["states"][0] == ["first dial", "first dial", "nothing"]
    assert scored(found) == [1.0, 2.0]


def test_rollout_func_goes_on_after_an_action_that_the_pool_refused():
    player = Player(["x"], ["3"], ["7"])
    found = played(player, "a", n=1, to_action=lambda text: {"digit": text})
    assert "not a valid Turn" in player.contexts[1][0]
    assert found["step_rewards"] == [[0.0, 1.0, 1.0]]


def test_rollout_func_raises_what_is_wrong_with_to_action():
    with pytest.raises(KeyError):
        played(Player(["3", "3"]), to_action={}.__getitem__)


def test_rollout_func_plays_more_prompts_than_the_pool_has_environments():
    player = Player(["3", "3"], ["7", "7"], ["3"], ["7"])
    found = played(player, "abc")
    assert scored(found) == [2.0, 2.0, 2.0]
    assert Characters().batch_decode(found["prompt_ids"], True)[2] == "c"


def test_rollout_func_ends_episodes_that_fill_the_context():
    player = Player(["5", "5"], limit=len("afirst dial5 [nothing]"))
    found = played(player)
    assert found["step_rewards"] == [[0.0], [0.0]]
    assert found["env_mask"] == [[1, 1]] * 2


def test_rollout_func_returns_log_probabilities_if_the_model_does():
    found = played(Player(["3"], ["7"], logprob=-0.5), "a", n=1)
    assert found["logprobs"] == [[-0.5, -0.5, *[0.0] * len("[click]"), -0.5, -0.5]]


def test_rollout_func_refuses_turns_without_an_observation_or_a_token():
    with pytest.raises(InvalidArgumentError, match=r"must contain \{observation\}, got 'x'"):
        played(Player(), turn="x")
    with pytest.raises(InvalidArgumentError, match="`turn` must contain a token of the model"):
        played(Player(["5", "5"]), turn="{observation}", observation_text=lambda observation: "")


# episode_reward -----------------------------------------------------------------------------------


def test_episode_reward_logs_episodes(caplog):
    log = Log()
    found = played(Player(["3", "9", "1"], ["7", "1"]), "abc", n=3, max_turns=2)
    assert scored(found, episode_reward("lock"), **log.hooks) == [2.0, None, 0.0]
    assert set(log.columns) == {
        "lock/steps", "lock/invalid_actions", "lock/rubric_0", "lock/error", "lock/fingerprint",
    }  # fmt: skip
    assert log.columns["lock/steps"] == [2.0, 1.0, 2.0]
    assert log.columns["lock/rubric_0"][0] == 2.0
    assert math.isnan(log.columns["lock/rubric_0"][1])
    assert log.columns["lock/fingerprint"][0] == Lock().rubric.fingerprint()
    assert log.metrics["lock/failed"] == [0.0, 1.0, 0.0]
    assert "1 of 3 rewards of lock failed" in caplog.text


def test_episode_reward_only_logs_environments_that_own_the_reward():
    log = Log()
    environments = [play([[3], [7]])[0], play([[9]])[0]]
    found = called(episode_reward(), ["", ""], environments=environments, **log.hooks)
    assert found == [None, None]
    assert log.columns["episode/rubric_0"][0] == 2.0
    assert log.metrics["episode/failed"] == [0.0, 1.0]


def test_episode_reward_needs_episodes():
    with pytest.raises(InvalidArgumentError, match="`episode_reward` needs episodes that"):
        called(episode_reward(), ["A: 42"])


def test_reward_func_gives_none_where_the_episode_failed():
    func = reward_func(Words(), name="words")
    found = played(Player(["3", "9"], ["7"]))
    assert scored(found, func) == [0.0, None]
    environments = [play([[3]])[0], play([[8]])[0]]
    assert called(func, ["a b", "a"], environments=environments) == [2.0, None]
