"""Reward functions as rubrics, and rubrics as reward functions."""

import asyncio
import contextlib
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon.envs import Environment
from guerdon.errors import (
    MissingInputError,
    RewardFunctionError,
    RubricDefinitionError,
    TrajectoryError,
)
from guerdon.rollouts import score_rollouts
from guerdon.rubrics import (
    ExponentialDiscountingTrajectoryRubric,
    Gate,
    Guarded,
    NumericAnswer,
    RegexMatch,
    Rubric,
    Sequential,
    TrajectoryRubric,
    WeightedSum,
    as_rubric,
)
from guerdon.rubrics.functions import RewardFunctionRubric, as_reward_function, reward_function
from guerdon.rubrics.functions.rubric import rubric_of
from guerdon.types import Action, EvaluateResult, Observation, Rollout, State, StepOutput

SOON = 10  # seconds after which what should happen is taken not to happen

CHAT = [
    {"role": "user", "content": "6 × 7?"},
    {"role": "assistant", "content": "Let me see."},
    {"role": "user", "content": "So?"},
    {"role": "assistant", "content": "A: 42"},
]


@reward_function
def answered(messages, ground_truth=None):
    """The last message contains the ground truth."""
    return float(ground_truth in messages[-1].text)


@reward_function
async def awaited(messages, ground_truth=None):
    """The same, later."""
    await anyio.lowlevel.checkpoint()
    return float(ground_truth in messages[-1].text)


@reward_function
def stepwise(messages):
    """A reward a turn: 1, 2, 3…"""
    turns = [message for message in messages if message.role == "assistant"]
    outputs = [
        StepOutput(step_index=turn, base_reward=turn + 1.0) for turn in reversed(range(len(turns)))
    ]
    return EvaluateResult(score=0.5, step_outputs=outputs)


@reward_function
def shortest(rollouts_messages):
    return [1.0 for _ in rollouts_messages]


def giving(*outputs, score=0.5):
    @reward_function
    def reward(messages):
        return {"score": score, "step_outputs": list(outputs)}

    return reward


def output(step_index, base_reward=1.0):
    return {"step_index": step_index, "base_reward": base_reward}


def row_of(rubric, messages=CHAT, **columns):
    [row] = score_rollouts(rubric, [Rollout.from_row({"messages": messages, **columns})])
    return row


def scores(row):
    """The parts of a row that don't depend on how the reward was made."""
    return {key: row[key] for key in ("score", "is_score_valid", "components", "step_rewards")}


# A reward function is a rubric


@pytest.mark.parametrize("function", [answered, awaited], ids=["sync", "async"])
def test_a_reward_function_scores_recorded_rollouts_as_a_rubric(function):
    row = row_of(as_rubric(function), ground_truth="42")
    assert (row["score"], row["step_rewards"], row["error"]) == (1.0, [0.0, 1.0], None)
    assert row_of(as_rubric(function), ground_truth="41")["score"] == 0.0


def test_reward_function_rubric_it_is_a_trajectory_rubric_with_the_function_inside():
    rubric = as_rubric(answered)
    assert isinstance(rubric, RewardFunctionRubric)
    assert isinstance(rubric, TrajectoryRubric)
    assert repr(rubric).startswith("answered(")
    assert "answered" in repr(Sequential(answered))
    assert as_rubric(answered) is not rubric


def test_reward_function_rubric_it_is_called_once_an_episode_with_the_whole_conversation():
    calls = []

    @reward_function
    def reward(messages, ground_truth=None, **columns):
        calls.append(([message.to_openai() for message in messages], ground_truth, columns))
        return 0.5

    rubric = as_rubric(reward)
    assert row_of(rubric, ground_truth="42", id="q7", level=3)["score"] == 0.5
    rubric.compute_step_rewards()
    assert calls == [(CHAT, "42", {"id": "q7", "level": 3})]
    row_of(rubric)
    assert calls[1:] == [(CHAT, None, {})]


def test_reward_function_rubric_columns_reach_the_function_by_name():
    @reward_function
    def reward(messages, *, level=0):
        return float(level)

    assert row_of(as_rubric(reward), level=3)["score"] == 3.0
    assert row_of(as_rubric(reward))["score"] == 0.0


def test_reward_function_rubric_the_function_can_not_change_what_others_see():
    seen = []

    @reward_function
    def pops(messages, **columns):
        messages.clear()
        columns.clear()
        return 0.5

    @reward_function
    def looks(messages, level):
        seen.append(len(messages))
        return float(level)

    row = row_of(WeightedSum([pops, looks], [0.5, 0.5]), level=1)
    assert (row["score"], row["error"], seen) == (0.75, None, [4])


def test_reward_function_rubric_base_rewards_are_the_rewards_of_the_steps():
    row = row_of(as_rubric(stepwise))
    assert (row["score"], row["step_rewards"]) == (0.5, [1.0, 2.0])


@pytest.mark.parametrize(
    ("outputs", "rewards"),
    [
        ([], [0.0, 0.5]),
        ([output(0)], [1.0, 0.0]),
        ([output(1)], [0.0, 1.0]),
        ([output(1, -1.0), output(0, 2.0)], [2.0, -1.0]),
    ],
    ids=["none", "first", "last", "both"],
)
def test_reward_function_rubric_gives_other_steps_zero_and_the_last_the_score_without_outputs(
    outputs, rewards
):
    assert row_of(as_rubric(giving(*outputs)))["step_rewards"] == rewards


@pytest.mark.parametrize(
    "outputs",
    [[output(2)], [output(-1)], [output("0")], [output("nowhere")], [output(0), output(0)]],
    ids=["after", "before", "text", "unknown", "twice"],
)
def test_reward_function_rubric_rewards_of_unknown_steps_are_an_error(outputs):
    row = row_of(as_rubric(giving(*outputs)))
    assert (row["score"], row["is_score_valid"]) == (None, False)
    assert "TrajectoryError: " in row["error"]
    assert repr(outputs[-1]["step_index"]) in row["error"]


def test_reward_function_rubric_a_step_may_be_named_by_its_id():
    messages = [CHAT[0], {**CHAT[1], "step_id": "think"}, CHAT[2], {**CHAT[3], "step_id": "say"}]
    rubric = as_rubric(giving(output("say", 3.0), output("think", 1.0)))
    assert row_of(rubric, messages)["step_rewards"] == [1.0, 3.0]
    rubric = as_rubric(giving(output("say", 3.0), output(0, 1.0)))
    assert row_of(rubric, messages)["step_rewards"] == [1.0, 3.0]


def test_reward_function_rubric_two_rewards_for_a_step_by_its_number_and_by_its_id_are_an_error():
    messages = [CHAT[0], {**CHAT[1], "step_id": "think"}]
    row = row_of(as_rubric(giving(output("think"), output(0))), messages)
    assert "TrajectoryError: " in row["error"]


def test_reward_function_rubric_an_ambiguous_id_is_an_error():
    messages = [CHAT[0], {**CHAT[1], "step_id": "s"}, CHAT[2], {**CHAT[3], "step_id": "s"}]
    row = row_of(as_rubric(giving(output("s"))), messages)
    assert "TrajectoryError: " in row["error"]


def test_reward_function_rubric_rewards_of_unknown_steps_are_reported_by_compute_step_rewards():
    action, observation = Rollout.from_row({"messages": CHAT}).steps[-1]
    rubric = as_rubric(giving(output(7)))
    rubric(action, observation)
    with pytest.raises(TrajectoryError, match="7"):
        rubric.compute_step_rewards()


# Failures of a function that is a rubric


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "<lambda> returned None"),
        (float("nan"), "<lambda> returned an invalid result: score"),
        ({"error": "the judge is down"}, "the judge is down"),
        ({"score": 0.5, "is_score_valid": False, "reason": "off topic"}, "off topic"),
    ],
    ids=["None", "nan", "error", "reason"],
)
def test_reward_function_rubric_a_result_that_is_not_valid_is_a_failure_of_the_rubric(
    value, expected
):
    rubric = as_rubric(reward_function(lambda messages: value))
    row = row_of(rubric)
    assert (row["score"], row["is_score_valid"], row["step_rewards"]) == (None, False, None)
    assert "RewardFunctionError: " in row["error"]
    assert expected in row["error"]
    action, observation = Rollout.from_row({"messages": CHAT}).steps[1]
    with pytest.raises(RewardFunctionError, match=expected):
        rubric(action, observation)


def test_reward_function_rubric_raises_what_the_function_raises():
    rubric = as_rubric(reward_function(lambda messages: 1 / 0))
    row = row_of(rubric)
    assert (row["score"], row["is_score_valid"]) == (None, False)
    assert "ZeroDivisionError: division by zero" in row["error"]
    action, observation = Rollout.from_row({"messages": CHAT}).steps[1]
    with pytest.raises(ZeroDivisionError):
        rubric(action, observation)


def test_reward_function_rubric_the_next_episode_forgets_the_failure_and_the_result():
    rubric = as_rubric(answered)
    assert not row_of(rubric)["is_score_valid"]
    assert row_of(rubric, ground_truth="42")["step_rewards"] == [0.0, 1.0]
    rubric = as_rubric(stepwise)
    row_of(rubric)
    rubric.reset()
    assert rubric.compute_step_rewards() == []


def test_reward_function_rubric_rejects_batch_functions():
    for make in (as_rubric, rubric_of, Gate, Sequential, lambda f: WeightedSum([f], [1.0])):
        with pytest.raises(
            RubricDefinitionError, match="shortest compares the rollouts of a batch"
        ):
            make(shortest)


# In a tree


def test_reward_functions_are_taken_by_containers():
    assert row_of(WeightedSum([stepwise, NumericAnswer()], [0.5, 0.5]), ground_truth="42")[
        "score"
    ] == pytest.approx(0.75)
    assert row_of(Gate(stepwise, threshold=0.5))["score"] == 0.5
    assert row_of(Gate(stepwise, threshold=0.75))["score"] == 0.0
    assert row_of(Guarded(stepwise))["step_rewards"] == [1.0, 2.0]
    row = row_of(Sequential(Gate(answered), stepwise), ground_truth="42")
    assert (row["score"], row["error"]) == (0.5, None)


def test_reward_function_rubric_an_async_function_makes_the_tree_async():
    row = row_of(WeightedSum([awaited, stepwise], [0.5, 0.5]), ground_truth="42")
    assert (row["score"], row["step_rewards"], row["error"]) == (0.75, [0.5, 1.5], None)


def test_reward_function_rubric_a_guard_tries_the_function_again():
    tries = []

    @reward_function
    def flaky(messages):
        tries.append(len(tries))
        if len(tries) < 3:
            raise OSError("no answer")
        return 0.5

    row = row_of(Guarded(flaky, retries=2))
    assert (row["score"], tries) == (0.5, [0, 1, 2])


def test_reward_function_rubric_a_guard_puts_its_own_score_in_place_of_a_failure(caplog):
    action, observation = Rollout.from_row({"messages": CHAT}).steps[-1]
    guarded = Guarded(reward_function(lambda messages: None), on_error="zero")
    assert guarded(action, observation) == 0.0
    assert "returned None" in caplog.text


# In an environment


class Say(Action):
    content: str


class Turn(Say):
    """Whose field has nothing to do with turns of a conversation."""

    turn: str


class Heard(Observation):
    text: str = ""


class Silent(Observation):
    cells: tuple[int, ...] = ()


class Talk(Environment[Say, Observation, State]):
    """Two turns, then it is over."""

    kind = Heard

    def __init__(self, rubric):
        super().__init__(rubric=rubric)
        self.turns = State()

    def reset(self, seed=None, episode_id=None, **kwargs):
        self._reset_rubric()
        self.turns = State(episode_id=episode_id)
        return self.kind()

    def step(self, action, timeout_s=None, **kwargs):
        self.turns.step_count += 1
        return self.score(action, self.made())

    def made(self):
        number = self.turns.step_count
        metadata = {"ground_truth": "42"}
        return Heard(text=f"heard {number}", done=number == 2, metadata=metadata)

    @property
    def state(self):
        return self.turns


class Quiet(Talk):
    """Its observations say nothing."""

    def made(self):
        return Silent(done=self.turns.step_count == 2)


def played(rubric, *actions, world=Talk):
    with world(rubric) as environment:
        environment.reset()
        return [environment.step(action) for action in actions]


@pytest.mark.parametrize("function", [answered, awaited], ids=["sync", "async"])
@pytest.mark.parametrize("container", [as_rubric, Guarded, lambda f: WeightedSum([f], [1.0])])
def test_a_reward_function_scores_an_environment(function, container):
    @reward_function
    def last_word(messages, ground_truth):
        return float(ground_truth in messages[-2].text)

    first, second = played(container(last_word), Say(content="Well."), Say(content="A: 42"))
    assert (first.reward, second.reward) == (0.0, 1.0)
    assert second.metadata["step_rewards"] == [0.0, 1.0]
    first, second = played(container(function), Say(content="42"), Say(content="41"))
    assert (first.reward, second.reward) == (0.0, 0.0)


def test_reward_function_rubric_gets_the_conversation_of_an_environment():
    seen = []

    @reward_function
    def reward(messages, ground_truth=None):
        seen.extend((message.role, message.text) for message in messages)
        return float(ground_truth)

    first, second = played(as_rubric(reward), Say(content="a"), Say(content="b"))
    assert (first.reward, second.reward) == (0.0, 42.0)
    assert seen == [
        ("assistant", "a"), ("user", "heard 1"), ("assistant", "b"), ("user", "heard 2"),
    ]  # fmt: skip


def test_reward_function_rubric_failure_in_an_environment_is_not_a_reward():
    function = reward_function(lambda messages: 1 / 0)
    first, second = played(as_rubric(function), Say(content="a"), Say(content="b"))
    assert (first.reward, second.reward) == (0.0, None)
    assert "ZeroDivisionError" in second.metadata["reward_error"]


def test_reward_function_rubric_the_steps_of_an_environment_are_counted_from_zero():
    _, last = played(as_rubric(stepwise), Say(content="a"), Say(content="b"))
    assert last.metadata["step_rewards"] == [1.0, 2.0]


@pytest.mark.parametrize("turns", ["white black", "0 0", "1 0"])
def test_reward_function_rubric_field_named_turn_is_not_a_step_number(turns):
    actions = [Turn(content="x", turn=turn) for turn in turns.split()]
    _, last = played(as_rubric(stepwise), *actions)
    assert last.metadata.get("reward_error") is None
    assert last.metadata["step_rewards"] == [1.0, 2.0]


def test_reward_function_rubric_rejects_an_observation_without_text_in_the_middle():
    _, last = played(as_rubric(stepwise), Say(content="a"), Say(content="b"), world=Quiet)
    assert last.reward is None
    assert (
        "MissingInputError: the observation of step 0 (Silent) has no text for a message"
        in (last.metadata["reward_error"])
    )


def test_reward_function_rubric_accepts_a_last_observation_without_text():
    rubric = as_rubric(stepwise)
    assert rubric("a", SimpleNamespace(done=False, message="go on")) == 0.0
    assert rubric("b", SimpleNamespace(done=True)) == 0.5
    rubric = as_rubric(stepwise)
    rubric("a", SimpleNamespace(done=False, message=3))
    with pytest.raises(MissingInputError, match="one of content, message, text, prompt"):
        rubric("b", SimpleNamespace(done=True))


def test_reward_function_rubric_observations_and_actions_may_be_mappings():
    seen = []

    @reward_function
    def reward(messages, ground_truth=None, level=0):
        seen.extend(message.text for message in messages)
        return float(ground_truth) + level

    rubric = as_rubric(reward)
    assert rubric({"content": "a"}, {"done": False, "text": "go on"}) == 0.0
    last = {"done": True, "metadata": {"ground_truth": "42", "level": 0.5}}
    assert rubric({"content": "b"}, last) == 42.5
    assert seen == ["a", "go on", "b"]


# A rubric is a reward function


class Words(Rubric):
    """The share of five words that the turn has."""

    def forward(self, action, observation):
        return len(action.content.split()) / 5


class Discounted(ExponentialDiscountingTrajectoryRubric):
    """The last turn says 42."""

    def score_trajectory(self, trajectory):
        return float("42" in trajectory[-1][0].content)


class Fails(Rubric):
    """It is on strike where the turn is empty."""

    def forward(self, action, observation):
        if not action.content:
            raise ValueError("the text is empty")
        return 0.25


class AsyncWords(Words):
    async def forward(self, action, observation):
        await anyio.lowlevel.checkpoint()
        return len(action.content.split()) / 5


def test_reward_function_rubric_each_turn_is_a_step_and_the_score_their_sum():
    result = as_reward_function(Words())(CHAT)
    assert result.score == pytest.approx(0.6 + 0.4)
    assert [each.step_index for each in result.step_outputs] == [0, 1]
    assert [each.base_reward for each in result.step_outputs] == [0.6, 0.4]
    assert result.is_score_valid


def test_reward_function_rubric_components_are_the_metrics():
    tree = WeightedSum([Words(), lambda action, observation: 0.5], [0.5, 0.5])
    metrics = as_reward_function(tree)(CHAT[:2]).metrics
    assert metrics == {"rubric_0": 0.6, "rubric_1": 0.5}
    assert as_reward_function(tree)(CHAT[:2]).step_outputs[0].metrics == {}
    result = as_reward_function(tree)(CHAT)
    assert result.metrics == {"rubric_0": 1.0, "rubric_1": 1.0}  # over both turns
    assert [each.metrics["rubric_0"] for each in result.step_outputs] == [0.6, 0.4]


def test_reward_function_rubric_ground_truth_and_columns_reach_the_rubric():
    @as_reward_function
    def looks(action, observation):
        metadata = observation.metadata
        return float(metadata["ground_truth"]) + metadata["level"]

    assert looks(CHAT[:2], "42", level=0.5).score == 42.5


def test_reward_function_rubric_a_trajectory_rubric_spreads_its_score():
    function = as_reward_function(Discounted(gamma=0.5))
    result = function(CHAT)
    assert (result.score, [each.base_reward for each in result.step_outputs]) == (1.0, [0.5, 1.0])
    again = function(CHAT)  # it was reset
    assert again == result


# A rubric that several call at once


class Lengths(TrajectoryRubric):
    """The length of each turn; the score is that of the last."""

    def score_trajectory(self, trajectory):
        self.meet()
        return float(len(trajectory[-1][0].content))

    def compute_step_rewards(self):
        return [float(len(action.content)) for action, _ in self.trajectory]

    def meet(self):
        """Wait for another that scores at the same time; there should be none."""


def spoken(*lengths):
    """A conversation with turns of these lengths."""
    return [
        message
        for length in lengths
        for message in (
            {"role": "user", "content": "?"},
            {"role": "assistant", "content": "x" * length},
        )
    ]


def base_rewards(result):
    return [each.base_reward for each in result.step_outputs]


CONVERSATIONS = [(number, *range(1, number + 2)) for number in range(1, 9)]


def test_reward_function_rubric_each_of_several_threads_gets_the_rewards_of_its_own_steps():
    start, together = threading.Barrier(8, timeout=SOON), threading.Barrier(2)

    class Meets(Lengths):
        def meet(self):
            with contextlib.suppress(threading.BrokenBarrierError):
                together.wait(0.05)  # only the first waits, for nothing

    function = as_reward_function(Meets())

    def scored(lengths):
        start.wait()
        return function(spoken(*lengths))

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(scored, CONVERSATIONS))
    assert [base_rewards(each) for each in results] == [list(each) for each in CONVERSATIONS]
    assert [each.score for each in results] == [each[-1] for each in CONVERSATIONS]


class AsyncLengths(Lengths):
    async def score_trajectory(self, trajectory):
        await anyio.lowlevel.checkpoint()  # here the others begin, where they may
        return float(len(trajectory[-1][0].content))


@pytest.mark.anyio
async def test_reward_function_rubric_each_of_several_tasks_gets_the_rewards_of_its_own_steps():
    function = as_reward_function(AsyncLengths())
    results = {}

    async def scored(lengths):
        results[lengths] = await function(spoken(*lengths))

    async with anyio.create_task_group() as tasks:
        for lengths in CONVERSATIONS:
            tasks.start_soon(scored, lengths)
    for lengths, result in results.items():
        assert (base_rewards(result), result.score) == (list(lengths), lengths[-1])
    assert len(results) == 8


def test_reward_function_rubric_gathered_calls_get_the_rewards_of_their_own_steps_in_each_loop():
    function = as_reward_function(AsyncLengths())

    async def main():
        return await asyncio.gather(*(function(spoken(*each)) for each in CONVERSATIONS))

    for _ in range(2):  # what it waits with belongs to no loop
        results = asyncio.run(main())
        assert [base_rewards(each) for each in results] == [list(each) for each in CONVERSATIONS]


def test_reward_function_rubric_each_of_several_event_loops_gets_the_rewards_of_its_own_steps():
    start, together = threading.Barrier(4, timeout=SOON), threading.Barrier(2)

    class Meets(AsyncLengths):
        async def score_trajectory(self, trajectory):
            with contextlib.suppress(threading.BrokenBarrierError):
                together.wait(0.05)  # only the first waits, for nothing
            return await super().score_trajectory(trajectory)

    function = as_reward_function(Meets())

    async def main(lengths):
        start.wait()
        async with asyncio.timeout(SOON):
            return await asyncio.gather(*(function(spoken(*lengths)) for _ in range(2)))

    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(asyncio.run, main(lengths)) for lengths in CONVERSATIONS[:4]]
        results = [each.result(SOON) for each in runs]
    for lengths, both in zip(CONVERSATIONS, results, strict=False):
        assert [base_rewards(each) for each in both] == [list(lengths)] * 2


@pytest.mark.anyio
@pytest.mark.parametrize("wrap", [lambda each: each, lambda each: WeightedSum([each], [1.0])])
async def test_as_reward_function_scores_trajectories_of_an_async_tree_concurrently(wrap):
    waiting, together = [], anyio.Event()

    class Meets(Lengths):
        async def score_trajectory(self, trajectory):
            waiting.append(self)
            if len(waiting) == len(CONVERSATIONS):
                together.set()
            await together.wait()
            if trajectory[-1][0].content == "xxx":
                raise ValueError("three letters")
            return float(len(trajectory[-1][0].content))

    function, results = as_reward_function(wrap(Meets())), {}

    async def scored(lengths):
        results[lengths] = await function(spoken(*lengths))

    with anyio.fail_after(SOON):
        async with anyio.create_task_group() as tasks:
            for lengths in CONVERSATIONS:
                tasks.start_soon(scored, lengths)
    failures = [each for each in results.values() if not each.is_score_valid]
    assert [each.score for each in failures] == [None]
    assert "ValueError: three letters" in failures[0].error
    for lengths, result in results.items():
        if result.is_score_valid:
            assert (base_rewards(result), result.score) == (list(lengths), lengths[-1])
    assert len(results) == len(set(map(id, waiting))) == len(CONVERSATIONS)


@pytest.mark.anyio
async def test_reward_function_rubric_nested_rubrics_do_not_deadlock():
    inner = as_reward_function(AsyncLengths())

    class Asks(AsyncLengths):
        async def score_trajectory(self, trajectory):
            await anyio.lowlevel.checkpoint()
            return (await inner(spoken(len(trajectory)))).score

    outer, scores = as_reward_function(Asks()), []

    async def scored(lengths):
        scores.append((await outer(spoken(*lengths))).score)

    with anyio.fail_after(SOON):
        async with anyio.create_task_group() as tasks:
            for lengths in CONVERSATIONS:
                tasks.start_soon(scored, lengths)
    assert sorted(scores) == [len(each) for each in CONVERSATIONS]


@pytest.mark.anyio
async def test_reward_function_rubric_a_failure_lets_the_next_task_in():
    class Picky(AsyncLengths):
        async def score_trajectory(self, trajectory):
            if len(trajectory) == 1:
                raise ValueError("too short")
            return await super().score_trajectory(trajectory)

    function = as_reward_function(Picky())
    assert "too short" in (await function(spoken(3))).error
    assert base_rewards(await function(spoken(3, 4))) == [3.0, 4.0]


def test_reward_function_rubric_a_failure_lets_the_next_thread_in():
    class Picky(Lengths):
        def score_trajectory(self, trajectory):
            if len(trajectory) == 1:
                raise ValueError("too short")
            return super().score_trajectory(trajectory)

    function = as_reward_function(Picky())
    assert "too short" in function(spoken(3)).error
    with ThreadPoolExecutor(1) as pool:
        assert base_rewards(pool.submit(function, spoken(3, 4)).result(SOON)) == [3.0, 4.0]


def test_reward_function_rubric_stateless_rubrics_are_scored_by_threads_concurrently():
    both = threading.Barrier(2, timeout=SOON)

    @as_reward_function
    def meets(action, observation):
        both.wait()
        return 1.0

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(meets, [CHAT[:2]] * 2))
    assert [each.score for each in results] == [1.0, 1.0]


@pytest.mark.anyio
async def test_reward_function_rubric_stateless_rubrics_are_scored_by_tasks_concurrently():
    inside, both = [], anyio.Event()

    @as_reward_function
    async def meets(action, observation):
        inside.append(action)
        if len(inside) == 2:
            both.set()
        await both.wait()
        return 1.0

    with anyio.fail_after(SOON):
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(meets, CHAT[:2])
    assert len(inside) == 2


def test_as_reward_function_numbers_steps_after_examples():
    result = as_reward_function(Words())(CHAT, first_turn=1)
    assert [(each.step_index, each.base_reward) for each in result.step_outputs] == [(1, 0.4)]


@pytest.mark.anyio
async def test_reward_function_rubric_of_an_async_tree_the_function_is_async():
    for tree in (AsyncWords(), WeightedSum([AsyncWords()], [1.0]), Guarded(AsyncWords())):
        function = as_reward_function(tree)
        assert function.is_async
        result = await function(CHAT)
        assert [each.base_reward for each in result.step_outputs] == [0.6, 0.4]


@pytest.mark.anyio
async def test_reward_function_rubric_a_sync_tree_may_be_called_inside_of_a_running_loop():
    function = as_reward_function(Words())
    assert not function.is_async
    assert function(CHAT).score == pytest.approx(1.0)


def test_reward_function_rubric_failure_of_the_rubric_is_not_zero():
    messages = [CHAT[0], CHAT[1], CHAT[2], {"role": "assistant", "content": ""}]
    result = as_reward_function(Fails())(messages)
    assert (result.score, result.is_score_valid, result.step_outputs) == (None, False, None)
    assert result.error == "step 1: ValueError: the text is empty"


@pytest.mark.parametrize("words", [Words, AsyncWords], ids=["sync", "async"])
def test_as_reward_function_keeps_the_components_of_a_tree_that_fails(words):
    messages = [*CHAT[:3], {"role": "assistant", "content": ""}]
    tree = WeightedSum([words(), Fails()], [0.5, 0.5])
    function = as_reward_function(tree)
    result = asyncio.run(function(messages)) if function.is_async else function(messages)
    assert (result.score, result.is_score_valid, result.step_outputs) == (None, False, None)
    assert result.error == "step 1: rubric 'rubric_1': ValueError: the text is empty"
    assert result.metrics == row_of(tree, messages)["components"]
    assert result.metrics["rubric_0"] == 0.6  # until it failed
    row = row_of(as_reward_function(tree), messages)
    assert (row["score"], row["step_rewards"], row["components"]) == (None, None, result.metrics)


def test_as_reward_function_numbers_the_failed_step_after_examples():
    messages = [*CHAT[:3], {"role": "assistant", "content": ""}]
    result = as_reward_function(Fails())(messages, first_turn=1)
    assert (result.error, result.metrics) == ("step 1: ValueError: the text is empty", {})


def test_as_reward_function_raises_what_the_rubric_raises_by_function():
    with pytest.raises(ValueError, match="the text is empty"):
        as_reward_function(Fails()).function([{"role": "assistant", "content": ""}])


def test_reward_function_rubric_failure_handled_by_a_guard_is_reported_beside_the_score(caplog):
    messages = [CHAT[0], CHAT[1], CHAT[2], {"role": "assistant", "content": ""}]
    result = as_reward_function(Guarded(Fails(), on_error="zero"))(messages)
    assert (result.score, result.is_score_valid) == (0.25, True)
    assert "the text is empty" in result.error
    assert result.error.startswith("step 1: ")
    assert "the text is empty" in caplog.text


def test_reward_function_rubric_a_conversation_without_a_turn_is_a_failure():
    result = as_reward_function(Words())(CHAT[:1])
    assert not result.is_score_valid
    assert "no assistant turn" in result.error


def test_reward_function_rubric_it_is_called_as_the_rubric_is():
    function = as_reward_function(Words())
    assert function.__name__ == "Words"
    assert function.__doc__ == Words.__doc__
    assert function.mode == "pointwise"
    assert as_reward_function(lambda action, observation: 0.5)(CHAT).score == 1.0


def test_a_reward_function_is_one_already():
    assert as_reward_function(answered) is answered
    assert as_reward_function(shortest) is shortest


@pytest.mark.parametrize("thing", [None, 3, "Words", Words, lambda action: 1.0], ids=range(5))
def test_reward_function_rubric_rejects_what_is_not_a_rubric(thing):
    with pytest.raises(RubricDefinitionError):
        as_reward_function(thing)


# Both ways


TREES = {
    "NumericAnswer": NumericAnswer,
    "Words": Words,
    "Discounted": lambda: Discounted(gamma=0.5),
    "Fails": Fails,
    "WeightedSum": lambda: WeightedSum([Words(), Discounted(gamma=0.5)], [0.25, 0.75]),
    "Sequential": lambda: Sequential(Gate(Words(), threshold=0.4), Fails()),
    "Guarded": lambda: Guarded(Words()),
    "async": lambda: WeightedSum([AsyncWords(), Words()], [0.5, 0.5]),
    "answered": lambda: as_rubric(answered),
    "stepwise": lambda: as_rubric(stepwise),
}
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(["system", "user", "assistant", "tool"]),
            "content": st.sampled_from(["", "A: 42", "one two three", "a b c d e", None]),
        }
    ),
    max_size=5,
).flatmap(
    lambda messages: st.integers(0, len(messages)).map(
        lambda at: [*messages[:at], {"role": "assistant", "content": "A: 42"}, *messages[at:]]
    )
)


@pytest.mark.parametrize("name", TREES)
@settings(max_examples=25)
@given(messages=MESSAGES, columns=st.sampled_from([{}, {"ground_truth": "42"}, {"level": 3}]))
def test_reward_function_rubric_there_and_back_a_rubric_scores_the_same(name, messages, columns):
    tree = TREES[name]
    row = row_of(tree(), messages, **columns)
    back = row_of(as_rubric(as_reward_function(tree())), messages, **columns)
    for key in ("score", "is_score_valid", "step_rewards"):
        assert back[key] == row[key]
    assert (back["error"] is None) == (row["error"] is None)


@settings(max_examples=25)
@given(messages=MESSAGES)
@pytest.mark.parametrize("function", [answered, stepwise], ids=["answered", "stepwise"])
def test_reward_function_rubric_back_and_there_a_function_scores_the_same(function, messages):
    result = function(messages, "42")
    back = as_reward_function(as_rubric(function))(messages, "42")
    assert (back.score, back.is_score_valid) == (result.score, result.is_score_valid)
    if result.step_outputs is not None:
        assert {each.step_index: each.base_reward for each in back.step_outputs} == {
            each.step_index: each.base_reward for each in result.step_outputs
        }


# Fingerprints


def test_as_reward_function_has_the_fingerprint_of_the_rubric():
    one, other = as_reward_function(RegexMatch("a")), as_reward_function(RegexMatch("b"))
    assert one.fingerprint == RegexMatch("a").fingerprint() != other.fingerprint


def test_reward_function_rubric_fingerprints_distinguish_functions():
    assert as_rubric(answered).fingerprint() == as_rubric(answered).fingerprint()
    assert as_rubric(answered).fingerprint() != as_rubric(stepwise).fingerprint()
    assert as_rubric(giving(output(0))).fingerprint() != as_rubric(giving(output(1))).fingerprint()


class EitherWay(Rubric):
    """A rubric that can be called in sync and in async code."""

    def forward(self, action, observation):
        return 0.25

    async def forward_async(self, action, observation):
        return 0.75


def test_as_reward_function_prefer_async_awaits_a_tree_that_can_be_called_either_way():
    tree = WeightedSum([EitherWay()], [1.0])
    assert as_reward_function(tree)(CHAT).score == 0.5
    function = as_reward_function(tree, prefer_async=True)
    assert function.is_async
    for each in (function, pickle.loads(pickle.dumps(function))):
        assert asyncio.run(each(CHAT)).score == 1.5


def test_as_reward_function_prefer_async_leaves_a_sync_tree_sync():
    function = as_reward_function(NumericAnswer(), prefer_async=True)
    assert function(CHAT, ground_truth="42").step_outputs[1].base_reward == 1.0
