"""Policies that need no model: scripts and replays."""

import asyncio
import json

import pytest

from guerdon import Action, Message, Rollout, StepData
from guerdon.errors import InvalidArgumentError, PolicyError
from guerdon.rollouts.playing.policies import (
    AgentPolicy,
    PolicyOutput,
    ReplayPolicy,
    ScriptedPolicy,
    action_of,
    calls_of,
)
from guerdon.rollouts.playing.record import RolloutRecord
from guerdon.types import ToolAction


class Move(Action):
    column: int


def conversation(*roles):
    return [Message(role=role, content="…") for role in roles]


def decide(policy, observation=None, messages=None):
    return asyncio.run(policy.get_action(observation, None, messages=messages))


def called(name, arguments, id="c1"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


LOOK = {"type": "call_tool", "tool_name": "look", "arguments": {"at": "door"}}


# Outputs


def test_policy_output_is_a_tuple_of_four():
    message = Message(role="assistant", content="3!")
    output = PolicyOutput({"column": 3}, "3!", [-0.1], 0.5, message=message)
    assert output == ({"column": 3}, "3!", [-0.1], 0.5)
    assert output.message is message
    assert (output.action, output.raw_output, output.logprobs, output.value_estimate) == output


def test_policy_output_message_and_info_are_not_in_the_tuple():
    output = PolicyOutput({"column": 3}, info={"finish_reason": "stop"})
    assert output == ({"column": 3}, "", None, None)
    assert output.info == {"finish_reason": "stop"}
    assert PolicyOutput({}).info is None


@pytest.mark.parametrize("policy", [ScriptedPolicy([]), ScriptedPolicy(["a"])], ids=["0", "1"])
def test_scripted_policy_is_an_agent_policy(policy):
    assert isinstance(policy, AgentPolicy)


# Scripts


@pytest.mark.parametrize(
    ("entry", "action", "raw"),
    [
        pytest.param({"column": 3}, {"column": 3}, '{"column": 3}', id="dict"),
        pytest.param(Move(column=3), Move(column=3), '{"column": 3}', id="model"),
        pytest.param("hi", {"type": "message", "content": "hi"}, "hi", id="text"),
        pytest.param(
            {"type": "message", "content": "hi"},
            {"type": "message", "content": "hi"},
            "hi",
            id="message",
        ),
        pytest.param(LOOK, LOOK, "", id="call"),
        pytest.param(7, 7, "7", id="number"),
        pytest.param(PolicyOutput(7, "seven"), 7, "seven", id="output"),
        pytest.param(
            lambda seen: {"column": seen}, {"column": "o"}, '{"column": "o"}', id="call it"
        ),
    ],
)
def test_scripted_policy_accepts_any_entry_as_an_action(entry, action, raw):
    output = decide(ScriptedPolicy([entry]), "o", [])
    assert output == (action, raw, None, None)


def test_scripted_policy_turn_is_the_number_of_assistant_messages():
    policy = ScriptedPolicy(["a", "b", "c"])
    for _ in range(2):  # it has no state
        assert decide(policy, None, conversation("user", "assistant", "user")).raw_output == "b"
    assert decide(policy, None, conversation("user")).raw_output == "a"


def test_scripted_policy_without_messages_counts_its_calls():
    policy = ScriptedPolicy(["a", "b"])
    assert [decide(policy).raw_output for _ in range(2)] == ["a", "b"]


def test_scripted_policy_first_turn_skips_examples():
    policy = ScriptedPolicy(["a"], first_turn=1)
    assert decide(policy, None, conversation("user", "assistant", "user")).raw_output == "a"


def test_scripted_policy_error_at_the_end_names_the_turn():
    with pytest.raises(PolicyError, match="the script has 2 turns, and no turn 2"):
        decide(ScriptedPolicy(["a", "b"]), None, conversation("assistant", "assistant"))


@pytest.mark.parametrize("script", ["hello", {"column": 3}, 5, None])
def test_scripted_policy_rejects_what_is_not_a_list(script):
    with pytest.raises(InvalidArgumentError, match="`actions` must be a list"):
        ScriptedPolicy(script)


def test_scripted_policy_rejects_a_negative_first_turn():
    with pytest.raises(InvalidArgumentError, match="`first_turn` must be"):
        ScriptedPolicy([], first_turn=-1)


# Replays

SAID = [
    {"role": "user", "content": "?"},
    {"role": "assistant", "content": None, "tool_calls": [called("look", '{"at": "door"}')]},
    {"role": "tool", "content": "open", "tool_call_id": "c1"},
    {"role": "assistant", "content": "It's open.", "name": "bob"},
]


@pytest.mark.parametrize(
    "recording",
    [SAID, [Message(**each) for each in SAID], Rollout.from_row({"messages": SAID})],
    ids=["dicts", "messages", "rollout"],
)
def test_replay_policy_replays_a_conversation(recording):
    policy = ReplayPolicy(recording)
    first = decide(policy, None, conversation("user"))
    assert first == (LOOK, "", None, None)
    assert first.message.to_openai() == SAID[1]
    second = decide(policy, None, conversation("user", "assistant"))
    assert second.action == {"type": "message", "content": "It's open."}
    assert second.message.to_openai() == SAID[3]


def step(turn, action, **fields):
    return StepData(
        system_step_index=fields.pop("index", turn),
        action_taken=action,
        step_info={"assistant_turn_index": turn},
        **fields,
    )


def test_replay_policy_replays_all_fields_of_steps():
    reported = {"raw_policy_output": "3!", "policy_logprobs": [-0.5], "policy_value_estimate": 0.25}
    steps = [step(1, {"column": 3}, index=0, **reported), step(2, {"column": 4}, index=1)]
    policy = ReplayPolicy(steps)
    assert decide(policy, None, conversation("assistant")) == ({"column": 3}, "3!", [-0.5], 0.25)
    assert decide(policy, None, conversation("assistant", "assistant")).action == {"column": 4}
    with pytest.raises(PolicyError, match="the recording has 2 turns"):
        decide(policy, None, conversation(*["assistant"] * 3))


def test_replay_policy_replays_a_record():
    record = RolloutRecord("a", steps=[step(0, {"column": 3})])
    assert decide(ReplayPolicy(record), None, []).action == {"column": 3}


@pytest.mark.parametrize(
    ("recording", "message"),
    [
        pytest.param([], "no assistant turn", id="nothing"),
        pytest.param(SAID[:1], "no assistant turn", id="only a user"),
        pytest.param("hello", "a recording must be a Rollout", id="text"),
        pytest.param(5, "a recording must be a Rollout", id="number"),
        pytest.param([{"role": "robot"}], r"the recording\[0\].role: .*robot", id="no message"),
        pytest.param(
            [step(0, 1), step(2, 1)], "must be consecutive turns", id="a turn is left out"
        ),
        pytest.param([step(0, 1), SAID[1]], "a recording must consist of", id="mixed"),
        pytest.param(RolloutRecord("a"), "no assistant turn", id="empty record"),
    ],
)
def test_replay_policy_rejects_invalid_recordings(recording, message):
    with pytest.raises(InvalidArgumentError, match=message):
        ReplayPolicy(recording)


# Actions of messages


def message(*calls, content=None):
    return Message(role="assistant", content=content, tool_calls=list(calls))


def test_action_of_several_calls_is_one_action():
    action = action_of(message(called("a", "{}"), called("b", '{"x": 1}', id="c2")))
    assert action["type"] == "call_tools"
    assert [call["arguments"] for call in action["calls"]] == [{}, {"x": 1}]
    assert calls_of(ToolAction.model_validate(action).calls[1]) == [
        {**action["calls"][1], "arguments_error": "", "metadata": {}}
    ]


@pytest.mark.parametrize("nothing", ["", None], ids=["empty", "null"])
def test_action_of_a_call_without_arguments_has_an_empty_dict(nothing):
    action = action_of(message(called("a", nothing)))
    assert action == {"type": "call_tool", "tool_name": "a", "arguments": {}}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        pytest.param('{"x": ', "not valid JSON", id="cut off"),
        pytest.param('{"x": NaN}', "not valid JSON", id="NaN"),
        pytest.param("[1]", "must be a JSON object, got list", id="list"),
        pytest.param("null", "must be a JSON object, got NoneType", id="null"),
        pytest.param("[" * 100_000, "not valid JSON", id="deep"),
    ],
)
def test_action_of_invalid_arguments_has_the_error_instead(arguments, problem):
    action = action_of(message(called("a", arguments)))
    assert (action["tool_name"], action["arguments"]) == ("a", {})
    assert problem in action["arguments_error"]
    json.dumps(action)
