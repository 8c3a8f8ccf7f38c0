"""Rubrics over tool use: the same scores in an environment, its recording and a conversation."""

import asyncio
import copy
import json
import pickle
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon import (
    CallBudget,
    CalledTool,
    Gate,
    RewardConfig,
    RewardPipeline,
    RLRolloutWorker,
    Rollout,
    RubricScorer,
    ScriptedPolicy,
    Sequential,
    ToolCost,
    ToolEnvironment,
    ToolErrors,
    WeightedSum,
    tool,
)
from guerdon.config import build_rubrics
from guerdon.errors import InvalidArgumentError, MissingInputError, RewardConfigError
from guerdon.types import CallToolAction, CallToolObservation, CallToolsAction, SayAction


class Bookings(ToolEnvironment):
    """Flight bookings; the episode ends when the agent says bye."""

    def __init__(self, rubric=None):
        super().__init__(rubric=rubric or ToolErrors())

    def say(self, content):
        return None if content == "bye" else "Go on."

    @tool
    def book(self, flight: str, bags: int = 0) -> str:
        if not flight.startswith("HAT"):
            raise ValueError("there is no such flight")
        return "booked"


BOOK = ("book", {"flight": "HAT170", "bags": 1})
OTHER = ("book", {"flight": "HAT171"})
FAILS = ("book", {"flight": "X"})
UNKNOWN = ("fly", {})
INVALID = ("book", {"flight": 7})
END = "bye"


def action_of(turn):
    """A message, a call, or a list of calls, as an action."""
    if isinstance(turn, str):
        return SayAction(content=turn)
    if isinstance(turn, tuple):
        return CallToolAction(tool_name=turn[0], arguments=turn[1])
    return CallToolsAction(calls=[action_of(each) for each in turn])


def play(rubric, *turns):
    """Play an episode in an environment; return the rewards and the step rewards."""
    with Bookings(rubric) as environment:
        environment.reset()
        observations = [environment.step(action_of(each)) for each in (*turns, END)]
    return [each.reward for each in observations], observations[-1].metadata.get("step_rewards")


def conversation(*turns):
    """The same episode as messages in OpenAI's format, with errors as texts."""
    messages = [{"role": "user", "content": "Book a flight."}]
    with Bookings() as environment:
        environment.reset()
        for turn in (*turns, END):
            observation = environment.step(action_of(turn))
            if isinstance(turn, str):
                messages.append({"role": "assistant", "content": turn})
                continue
            calls = [turn] if isinstance(turn, tuple) else turn
            functions = [{"name": name, "arguments": json.dumps(given)} for name, given in calls]
            named = [{"id": f"c{n}", "function": each} for n, each in enumerate(functions)]
            messages.append({"role": "assistant", "tool_calls": named})
            for n, outcome in enumerate(getattr(observation, "results", [observation])):
                text = f"Error: {outcome.text}" if outcome.is_error else outcome.text
                messages.append({"role": "tool", "tool_call_id": f"c{n}", "content": text})
    return Rollout.from_row({"messages": messages})


def recording(*turns):
    """The same episode, recorded by a worker."""
    policy = ScriptedPolicy([action_of(each).model_dump() for each in (*turns, END)])
    record = RLRolloutWorker(Bookings, policy, max_steps=len(turns) + 1).run_sync()
    assert record.ended == "done", record.error
    return record.to_rollout()


def rewards_of(rubric, rollout):
    with RubricScorer(rubric) as scorer:
        row = scorer.score(rollout)
    assert row["is_score_valid"], row
    return row["score"], row["step_rewards"]


def reason_of(rubric, *turns):
    """The reason at the last step of the episode."""
    rollout = conversation(*turns)
    *before, last = rollout.steps
    for step in before:
        rubric(*step)
    return rubric.score(*last).reason


# CalledTool


@pytest.mark.parametrize(
    ("rubric", "turns", "step_rewards"),
    [
        (CalledTool("book"), [BOOK], [1.0, 0.0]),
        (CalledTool("book"), ["Hm.", BOOK, BOOK], [0.0, 1.0, 0.0, 0.0]),
        (CalledTool("book"), [[UNKNOWN, BOOK], BOOK], [1.0, 0.0, 0.0]),
        (CalledTool("book"), [], [0.0]),
        (CalledTool("book"), [UNKNOWN], [0.0, 0.0]),
        (CalledTool("fly"), [UNKNOWN], [0.0, 0.0]),
        (CalledTool("book"), [FAILS, INVALID], [0.0, 0.0, 0.0]),
        (CalledTool("book", include_failed=True), [FAILS, BOOK], [1.0, 0.0, 0.0]),
        (CalledTool("fly", include_failed=True), ["Hm.", UNKNOWN], [0.0, 1.0, 0.0]),
        (CalledTool("book", {"bags": 1}), [OTHER, BOOK], [0.0, 1.0, 0.0]),
        (CalledTool("book", {"bags": 1.0, "flight": "HAT170"}), [BOOK], [1.0, 0.0]),
        (CalledTool("book", {"bags": True}), [BOOK], [0.0, 0.0]),
        (CalledTool("book", {"seat": None}), [BOOK], [0.0, 0.0]),
        (CalledTool("book", {}), [BOOK], [1.0, 0.0]),
    ],
)
def test_called_tool_scores_the_episode_and_rewards_the_step_of_the_call(
    rubric, turns, step_rewards
):
    score = sum(step_rewards)
    rewards, given = play(rubric, *turns)
    assert rewards == [0.0] * len(turns) + [score]
    assert given == step_rewards
    rubric.error_pattern = "^Error:"
    assert rewards_of(rubric, conversation(*turns)) == (score, step_rewards)


@pytest.mark.parametrize(
    ("turns", "reason"),
    [
        (["Hm.", UNKNOWN], "book was never called"),
        ([OTHER], "book: flight: 'HAT171', expected 'HAT170' (as the model wrote it)"),
        ([OTHER, FAILS], "book failed: execution_error: Error: there is no such flight"),
        ([BOOK], None),
    ],
)
def test_called_tool_explains_the_last_call_that_does_not_count(turns, reason):
    rubric = CalledTool("book", {"flight": "HAT170"}, error_pattern="^Error:")
    assert reason_of(rubric, *turns) == reason


def test_called_tool_explanation_is_bounded():
    rubric = CalledTool("book" * 100, {})
    assert len(reason_of(rubric, BOOK)) == 300


def test_called_tool_opens_a_gate_at_the_end():
    rubric = Sequential(Gate(CalledTool("book")), CallBudget(2))
    assert play(rubric, BOOK)[0] == [0.0, 1.0]
    assert play(copy.deepcopy(rubric), UNKNOWN)[0] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((7,), {}, "`name` must be of type str, got 7"),
        (("book", ["flight"]), {}, "`arguments` must be of type dict, got "),
        (("book",), {"include_failed": 1}, "`include_failed` must be of type bool, got 1"),
        (("book",), {"error_pattern": "("}, "`error_pattern` must be a regular expression"),
        (("book",), {"error_pattern": 7}, "`error_pattern` must be of type str, got 7"),
    ],
)
def test_called_tool_invalid_arguments_are_refused(arguments, options, message):
    with pytest.raises(InvalidArgumentError, match=message):
        CalledTool(*arguments, **options)


# ToolErrors


@pytest.mark.parametrize(
    ("turn", "share", "any_error"),
    [
        ("Hm.", 1.0, 1.0),
        ([], 1.0, 1.0),
        (BOOK, 1.0, 1.0),
        (FAILS, 0.0, 0.0),
        ([BOOK, FAILS], 0.5, 0.0),
        ([BOOK, FAILS, BOOK, BOOK], 0.75, 0.0),
        ([FAILS, UNKNOWN, INVALID], 0.0, 0.0),
    ],
)
def test_tool_errors_scores_each_step(turn, share, any_error):
    assert play(ToolErrors(), turn)[0] == [share, 1.0]
    assert play(ToolErrors(share=False), turn)[0] == [any_error, 1.0]
    rubric = ToolErrors(error_pattern="^Error:")
    assert rewards_of(rubric, conversation(turn)) == (share + 1.0, [share, 1.0])


@pytest.mark.parametrize(
    ("types", "score"),
    [
        (["execution_error"], 0.75),
        (["tool_not_found", "invalid_args"], 0.5),
        (["timeout"], 1.0),
        (None, 0.25),
    ],
)
def test_tool_errors_counts_the_given_types(types, score):
    assert play(ToolErrors(types), [BOOK, FAILS, UNKNOWN, INVALID])[0][0] == score


def test_tool_errors_explains_the_first_error():
    step = conversation([BOOK, FAILS, FAILS]).steps[0]
    score = ToolErrors(error_pattern="^Error:").score(*step)
    assert score.reason == (
        "2 of 3 calls failed: book: execution_error: Error: there is no such flight"
    )
    assert ToolErrors().score(*step).reason is None


def test_tool_errors_minus_one_is_a_penalty():
    def one(action, observation):
        return 1.0

    penalty = WeightedSum([one, ToolErrors()], weights=[-0.5, 0.5])
    assert play(penalty, BOOK, "Hm.", [BOOK, FAILS])[0] == [0.0, 0.0, -0.25, 0.0]


@pytest.mark.parametrize(
    ("types", "options", "message"),
    [
        (["timeuot"], {}, r"`error_types` must be .*; did you mean 'timeout'\?"),
        ("timeout", {}, "`error_types` must be a list, got 'timeout'"),
        (None, {"share": None}, "`share` must be of type bool, got None"),
        (None, {"error_pattern": "["}, "`error_pattern` must be a regular expression"),
    ],
)
def test_tool_errors_invalid_arguments_are_refused(types, options, message):
    with pytest.raises(InvalidArgumentError, match=message):
        ToolErrors(types, **options)


# CallBudget


@pytest.mark.parametrize(
    ("rubric", "turns", "score"),
    [
        (CallBudget(2), ["Hm."], 1.0),
        (CallBudget(2), [BOOK, FAILS], 1.0),
        (CallBudget(2), [[BOOK, UNKNOWN], INVALID], 0.0),
        (CallBudget(0), [BOOK], 0.0),
        (CallBudget(1, zero_at=5), [[BOOK] * 1], 1.0),
        (CallBudget(1, zero_at=5), [[BOOK] * 2], 0.75),
        (CallBudget(1, zero_at=5), [[BOOK] * 4], 0.25),
        (CallBudget(1, zero_at=5), [[BOOK] * 9], 0.0),
    ],
)
def test_call_budget_scores_the_number_of_calls_of_the_episode(rubric, turns, score):
    rewards, step_rewards = play(rubric, *turns)
    assert rewards == [0.0] * len(turns) + [score]
    assert step_rewards == pytest.approx([score * 0.99**n for n in range(len(turns), -1, -1)])
    assert rewards_of(rubric, conversation(*turns))[0] == score


def test_call_budget_explains_how_many_calls_there_were():
    assert reason_of(CallBudget(1, zero_at=4), BOOK, [BOOK] * 2) == "3 calls, wanted at most 1"
    assert reason_of(CallBudget(3), BOOK, [BOOK] * 2) is None


def test_call_budget_counts_from_zero_after_a_reset():
    rubric = CallBudget(1)
    with Bookings(rubric) as environment:
        for _ in range(3):
            environment.reset()
            environment.step(action_of(BOOK))
            assert environment.step(action_of(END)).reward == 1.0


@pytest.mark.parametrize(
    ("limit", "options", "message"),
    [
        (-1, {}, "`max_calls` must be an integer >= 0, got -1"),
        (True, {}, "`max_calls` must be an integer >= 0, got True"),
        (3, {"zero_at": 3}, "`zero_at` must be an integer >= 4, got 3"),
        (3, {"zero_at": 0.5}, "`zero_at` must be an integer >= 1"),
        (3, {"gamma": 2}, r"`gamma` must be in \[0, 1\], got 2"),
    ],
)
def test_call_budget_invalid_arguments_are_refused(limit, options, message):
    with pytest.raises(InvalidArgumentError, match=message):
        CallBudget(limit, **options)


# All of them

ALL = [
    CalledTool("book", {"flight": "HAT170"}, include_failed=True, error_pattern="^Error:"),
    ToolErrors(share=False, error_pattern="^Error:"),
    CallBudget(2, zero_at=7, gamma=0.5),
]
# Each with another configuration.
CHANGED = [CalledTool("book", {"flight": "X"}), ToolErrors(["timeout"]), CallBudget(3, zero_at=7)]
calls = st.sampled_from([BOOK, OTHER, FAILS, UNKNOWN, INVALID])
turns = st.lists(st.just("Hm.") | calls | st.lists(calls, min_size=1, max_size=3), max_size=4)


@given(turns)
def test_tool_use_scores_are_those_of_the_recorded_conversation(turns):
    for rubric in ALL:
        rewards, step_rewards = play(rubric, *turns)
        score, recorded = rewards_of(rubric, conversation(*turns))
        assert score == sum(rewards)
        assert recorded == (step_rewards or rewards)


def test_tool_use_scores_are_those_of_the_episode_that_a_worker_recorded():
    turns = ["Hm.", UNKNOWN, [BOOK, FAILS], INVALID, OTHER]
    rollout = recording(*turns)
    for rubric in (*ALL, ToolErrors(), ToolErrors(["tool_not_found"]), CalledTool("fly")):
        rewards, step_rewards = play(rubric, *turns)
        score, recorded = rewards_of(rubric, rollout)
        assert score == sum(rewards)
        assert recorded == (step_rewards or rewards)


@pytest.mark.parametrize("rubric", ALL, ids=lambda rubric: type(rubric).__name__)
def test_tool_use_rubrics_refuse_actions_without_tool_calls(rubric):
    rubric.reset()
    with pytest.raises(MissingInputError, match="has no tool calls"):
        rubric({"content": "text"}, {"done": True})
    rubric.reset()


@pytest.mark.parametrize("rubric", ALL, ids=lambda rubric: type(rubric).__name__)
def test_tool_use_rubrics_are_awaited_in_async_trees(rubric):
    *_, step = conversation("Hm.").steps
    rubric.reset()
    assert asyncio.run(rubric.evaluate(*step)) in (0.0, 1.0)


@pytest.mark.parametrize(
    ("rubric", "changed"), [*zip(ALL, CHANGED, strict=True)], ids=["called", "errors", "budget"]
)
def test_tool_use_rubrics_keep_their_state_in_dicts_and_pickles(rubric, changed):
    rubric.reset()
    again = pickle.loads(pickle.dumps(rubric))
    assert again.fingerprint() == rubric.fingerprint() != changed.fingerprint()
    state = json.loads(json.dumps(rubric.state_dict()))
    changed = copy.deepcopy(changed)
    changed.load_state_dict(state)
    assert changed.fingerprint() == rubric.fingerprint()
    assert play(again, BOOK, FAILS) == play(changed, BOOK, FAILS) == play(rubric, BOOK, FAILS)
    rubric.reset()
    assert rubric.fingerprint() == changed.fingerprint()


REWARD = """
schema_version: "1.0"
per_turn:
  - name: errors
    rubric: guerdon.rubrics.ToolErrors
    weight: 0.1
    config: {error_types: [tool_not_found, execution_error], share: false, error_pattern: "^Error:"}
episode_end:
  - name: booked
    rubric: guerdon.rubrics.CalledTool
    config: {name: book, arguments: {flight: HAT170}, error_pattern: "^Error:"}
  - name: budget
    rubric: guerdon.rubrics.CallBudget
    weight: 0.5
    config: {max_calls: 1, zero_at: 3}
"""


def test_tool_use_rubrics_are_built_from_a_reward_file():
    turns = [[BOOK, FAILS], "Hm."]
    with RewardPipeline(RewardConfig.from_yaml(REWARD)) as pipeline:
        rewards, step_rewards = play(pipeline.make(), *turns)
        assert rewards == pytest.approx([0.0, 0.1, 1.35])
        score, recorded = rewards_of(pipeline.make(), conversation(*turns))
        assert score == pytest.approx(1.45)
        assert recorded == pytest.approx(step_rewards)


def test_tool_use_mistakes_in_a_reward_file_are_reported():
    config = RewardConfig.from_yaml(
        REWARD.replace("zero_at: 3", "zero_at: 1").replace("_not_", "_")
    )
    with pytest.raises(
        RewardConfigError, match="`zero_at` must be an integer >= 2, got 1"
    ) as raised:
        build_rubrics(config)
    assert "`error_types` must be" in str(raised.value)


def test_tool_cost_is_what_the_calls_of_the_step_cost():
    step = CallToolAction(tool_name="look"), CallToolObservation(tool_name="look")
    assert ToolCost()(*step) == 0.0
    step[1].metadata["tool_cost"] = 0.5
    assert ToolCost()(*step) == 0.5
    assert ToolCost(0.2)(*step) == 0.2
    assert ToolCost(0.2).score_range == (0.0, 0.2)


def test_tool_cost_refuses_a_recording_and_an_invalid_maximum():
    with pytest.raises(MissingInputError, match="the cost of calls is known in a ToolEnvironment"):
        ToolCost()(SimpleNamespace(content="", tool_calls=[]), None)
    with pytest.raises(InvalidArgumentError, match="`maximum` must be"):
        ToolCost(0)


class Seats(ToolEnvironment):
    """Books seats."""

    def __init__(self, rubric):
        super().__init__(rubric=rubric)

    @tool
    def reserve(self, seats: int, cabin: str = "economy", names: list[str] | None = None) -> str:
        if names:
            names.clear()
        if seats > 9:
            raise ValueError("too many")
        return "reserved"

    @tool(ends=True)
    def stop(self) -> None: ...


@pytest.mark.parametrize(
    ("given", "wanted", "score"),
    [
        ({"seats": "2"}, {"seats": 2}, 1.0),
        ({"seats": "2"}, {"seats": 2, "cabin": "economy", "names": None}, 1.0),
        ({"seats": 2.0, "cabin": "business"}, {"seats": 2, "cabin": "business"}, 1.0),
        ({"seats": 2, "names": ["ann"]}, {"names": ["ann"]}, 1.0),
        ({"seats": "2"}, {"seats": "2"}, 0.0),
        ({"seats": "2"}, {"cabin": "business"}, 0.0),
        ({"seats": "two"}, {"seats": "two"}, 0.0),
        ({"seats": 2}, {"seats": 3}, 0.0),
    ],
)
@pytest.mark.parametrize("several", [False, True])
def test_called_tool_compares_what_the_tool_received(given, wanted, score, several):
    call = CallToolAction(tool_name="reserve", arguments=given)
    with Seats(CalledTool("reserve", wanted)) as environment:
        environment.reset()
        environment.step(CallToolsAction(calls=[call]) if several else call)
        assert environment.step(CallToolAction(tool_name="stop")).reward == score


def test_called_tool_compares_what_a_tool_that_failed_received():
    rubric = CalledTool("reserve", {"seats": 10, "cabin": "economy"}, include_failed=True)
    with Seats(rubric) as environment:
        environment.reset()
        observation = environment.step(
            CallToolAction(tool_name="reserve", arguments={"seats": "10"})
        )
        assert (
            observation.model_dump().keys()
            == CallToolObservation(tool_name="x").model_dump().keys()
        )
        assert environment.step(CallToolAction(tool_name="stop")).reward == 1.0


def test_tool_cost_range_is_that_of_its_maximum():
    rubric = ToolCost(2.0)
    assert (ToolCost.score_range, rubric.score_range) == ((0.0, 1.0), (0.0, 2.0))
    rubric.maximum = 3.0
    assert rubric.score_range == (0.0, 3.0)
