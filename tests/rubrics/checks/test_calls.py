"""The calls of a step, in an environment and in a recording."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon import Rollout
from guerdon.errors import InvalidArgumentError, MissingInputError
from guerdon.rollouts.playing.observations import answer_messages, content_of
from guerdon.rubrics.checks.calls import StepCall, calls_of_step
from guerdon.types import (
    CallToolAction,
    CallToolObservation,
    CallToolsAction,
    CallToolsObservation,
    ListToolsAction,
    ListToolsObservation,
    SayAction,
    SayObservation,
    ToolError,
    ToolOutcome,
    ToolResult,
)

LOOK = CallToolAction(tool_name="look", arguments={"at": "door"})
TIMEOUT = ToolError(error_type="timeout", message="too slow")
FAILED = ToolResult(content=[{"type": "text", "text": "it is dark"}], is_error=True)


def recorded_call(name="look", arguments='{"at": "door"}', **fields):
    return {"function": {"name": name, "arguments": arguments}, **fields}


def recorded(calls, *answers, goes_on=True):
    """The first step of a recording whose first turn has these calls and answers."""
    messages = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "tool_calls": calls},
        *({"role": "tool", **each} for each in answers),
    ]
    if goes_on:
        messages.append({"role": "assistant", "content": "Done."})
    return Rollout.from_row({"messages": messages}).steps[0]


# Environments


@pytest.mark.parametrize(
    ("outcome", "error", "text"),
    [
        ({}, None, ""),
        ({"result": ToolResult(content=[{"type": "text", "text": "a door"}])}, None, "a door"),
        ({"result": FAILED}, "execution_error", "it is dark"),
        ({"error": TIMEOUT}, "timeout", "too slow"),
    ],
)
def test_calls_of_step_has_the_outcome_of_a_call(outcome, error, text):
    expected = StepCall("look", {"at": "door"}, error, text)
    assert calls_of_step(LOOK, CallToolObservation(tool_name="look", **outcome)) == [expected]
    two = CallToolsObservation(results=[ToolOutcome(tool_name="look", **outcome)] * 2)
    assert calls_of_step(CallToolsAction(calls=[LOOK] * 2), two) == [expected] * 2


def test_calls_of_step_is_empty_without_a_call():
    assert calls_of_step(SayAction(content="Hm."), SayObservation(messages=[])) == []
    assert calls_of_step(ListToolsAction(), ListToolsObservation(tools=[])) == []
    assert calls_of_step(CallToolsAction(calls=[]), CallToolsObservation(results=[])) == []
    assert calls_of_step(*recorded([])) == []


@pytest.mark.parametrize(
    ("action", "observation", "message"),
    [
        ("text", None, r"the action \(str\) has no tool calls: it must be a ToolAction, or"),
        ({"tool_calls": "look"}, None, r"the action \(dict\) has no tool calls"),
        ({"tool_calls": ["look"]}, None, "has no tool calls"),
        (LOOK, SayObservation(messages=[]), "an outcome for each of the 1 calls of the action"),
        (CallToolsAction(calls=[LOOK] * 2), CallToolsObservation(results=[]), "2 calls .* got 0"),
    ],
)
def test_calls_of_step_other_actions_and_observations_are_refused(action, observation, message):
    with pytest.raises(MissingInputError, match=message):
        calls_of_step(action, observation)


# Recordings


def test_calls_of_step_answers_belong_to_calls_by_id():
    calls = [recorded_call("a", id="1"), recorded_call("b", id="2"), recorded_call("c", id="1")]
    answers = [
        {"tool_call_id": "2", "content": "of b"},
        {"tool_call_id": "1", "content": "of a"},
        {"tool_call_id": "1", "content": "of c"},
    ]
    found = calls_of_step(*recorded(calls, *answers))
    assert [each.text for each in found] == ["of a", "of b", "of c"]


def test_calls_of_step_answers_without_the_id_of_a_call_belong_to_calls_in_order():
    calls = [recorded_call("a"), recorded_call("b", id="2"), recorded_call("c", id=3)]
    answers = [
        {"content": "of a"},
        {"tool_call_id": "2", "content": "of b"},
        {"tool_call_id": "unknown", "content": [{"type": "text", "text": "of c"}]},
    ]
    found = calls_of_step(*recorded(calls, *answers))
    assert [each.text for each in found] == ["of a", "of b", "of c"]


def test_calls_of_step_answers_with_names_belong_to_the_calls_of_these_names():
    calls = [recorded_call("a", id="1"), recorded_call("b", id="2")]
    of_a, of_b = {"name": "a", "content": "of a"}, {"name": "b", "content": "of b"}
    for answers in [of_b, of_a], [of_b | {"tool_call_id": "9"}, of_a | {"tool_call_id": "8"}]:
        found = calls_of_step(*recorded(calls, *answers))
        assert [call.text for call in found] == ["of a", "of b"]
    found = calls_of_step(*recorded(calls, of_b))
    assert [call.error for call in found] == ["transport_error", None]


def test_calls_of_step_an_answer_to_no_call_is_refused():
    calls, answer = [recorded_call("a", id="1")], {"tool_call_id": "9", "content": "ok"}
    with pytest.raises(MissingInputError, match="no call has the result 'ok'"):
        calls_of_step(*recorded(calls, answer))


def test_calls_of_step_a_call_without_an_answer_has_failed_unless_the_recording_ends_there():
    calls = [recorded_call(id="1"), recorded_call(id="2")]
    answer = {"tool_call_id": "1", "content": "a door"}
    assert [each.error for each in calls_of_step(*recorded(calls))] == ["transport_error"] * 2
    ends = recorded(calls, goes_on=False)
    assert [each.error for each in calls_of_step(*ends)] == [None, None]
    ends = recorded(calls, answer, goes_on=False)
    assert [each.error for each in calls_of_step(*ends)] == [None, "transport_error"]


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        ('{"at": "door"}', {"at": "door"}),
        ({"at": "door"}, {"at": "door"}),
        ("", {}),
        (None, {}),
        ("{", None),
        ("[1]", None),
        ('{"a": NaN}', None),
        ("[" * 10**5, None),
        (7, None),
    ],
)
def test_calls_of_step_reads_arguments_of_recordings(arguments, read):
    step = recorded([recorded_call(arguments=arguments)], {"content": "a door"})
    [call] = calls_of_step(*step)
    error = "invalid_args" if read is None else None
    assert (call.arguments, call.error) == (read or {}, error)


@pytest.mark.parametrize("call", [{}, {"function": None}, {"function": {"name": None}}])
def test_calls_of_step_refuses_calls_without_a_name(call):
    with pytest.raises(MissingInputError, match="has a tool call in a format that isn't read"):
        calls_of_step(*recorded([call], {"content": "?"}))


def test_calls_of_step_a_call_with_an_empty_name_has_failed():
    [call] = calls_of_step(*recorded([recorded_call("")], {}))
    assert call == StepCall("", {}, "tool_not_found", "the call has no name")


@pytest.mark.parametrize(
    ("answer", "pattern", "error"),
    [
        ({"content": "Error: dark"}, None, None),
        ({"content": "Error: dark"}, "^Error:", "execution_error"),
        ({"content": "No Error: here"}, "^Error:", None),
        ({"content": "dark", "is_error": True}, None, "execution_error"),
        ({"content": "light", "is_error": False}, None, None),
        ({"content": '{"tool_name": "x", "n": 1}', "is_error": True}, None, "execution_error"),
        ({"content": '{"results": []}'}, None, None),
        ({"content": '{"results": 3}'}, None, None),
        ({"content": '{"results": [3]}'}, None, None),
        ({"content": '{"tool_name": "'}, None, None),
        ({"content": '{"tool_name": 1, "result": 2, "error": 3}'}, None, None),
    ],
)
def test_calls_of_step_error_pattern_and_is_error_mark_errors_of_recordings(answer, pattern, error):
    [call] = calls_of_step(*recorded([recorded_call()], answer), error_pattern=pattern)
    assert (call.error, call.text) == (error, answer["content"])


def test_calls_of_step_error_pattern_must_be_valid():
    step = recorded([recorded_call()], {"content": ""})
    with pytest.raises(InvalidArgumentError, match="`error_pattern` must be a regular expression"):
        calls_of_step(*step, error_pattern="(")


texts = st.text(max_size=20)
outcomes = st.one_of(
    st.builds(ToolOutcome, tool_name=st.just("look")),
    st.builds(
        lambda text, failed: ToolOutcome(
            tool_name="look",
            result=ToolResult(content=[{"type": "text", "text": text}], is_error=failed),
        ),
        texts,
        st.booleans(),
    ),
    st.builds(
        lambda text: ToolOutcome(
            tool_name="look", error=ToolError(error_type="invalid_args", message=text)
        ),
        texts,
    ),
)


@given(st.lists(st.tuples(st.dictionaries(texts, texts, max_size=2), outcomes), max_size=4))
def test_calls_of_step_is_the_same_for_a_step_and_its_recording(made):
    calls = [CallToolAction(tool_name="look", arguments=arguments) for arguments, _ in made]
    observation = CallToolsObservation(results=[outcome for _, outcome in made])
    played = calls_of_step(CallToolsAction(calls=calls), observation)

    # As RLRolloutWorker records them.
    messages = [recorded_call(arguments=json.dumps(each.arguments)) for each in calls]
    answers = answer_messages(content_of(observation), messages) if messages else []
    again = calls_of_step(*recorded(messages, *(each.to_openai() for each in answers)))
    assert again == played
