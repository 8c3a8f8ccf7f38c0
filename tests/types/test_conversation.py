"""What is odd about a conversation."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.types import Message, conversation_problems


def call(name="add", arguments="{}", key="c1"):
    return {"id": key, "type": "function", "function": {"name": name, "arguments": arguments}}


def calls(*made):
    return Message(role="assistant", tool_calls=list(made))


def answer(key="c1"):
    return Message(role="tool", content="3", tool_call_id=key)


USER = Message(role="user", content="1 + 2?")
DONE = Message(role="assistant", content="3")


# Oddities


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [USER],
        [USER, DONE],
        [Message(role="system", content="Be brief."), USER, DONE],
        [USER, calls(call()), answer(), DONE],
        [USER, calls(call(key="c1"), call(key="c2")), answer("c2"), answer("c1"), DONE],
        [USER, Message(role="assistant", content="3", tool_calls=[])],
    ],
    ids=range(7),
)
def test_conversation_problems_is_empty_for_most_conversations(messages):
    assert conversation_problems(messages) == []


@pytest.mark.parametrize("before", [[], ["system"], ["developer"], ["system", "developer"]])
def test_conversation_problems_a_conversation_that_begins_with_the_assistant_is_odd(before):
    messages = [*(Message(role=role, content="x") for role in before), DONE, USER]
    assert conversation_problems(messages) == ["it begins with the assistant"]


def test_conversation_problems_an_unanswered_call_is_named_with_its_place():
    assert conversation_problems([USER, calls(call("book"))]) == [
        "1 of its tool calls have no result: book (messages[1])"
    ]


def test_conversation_problems_only_unanswered_calls_are_named():
    messages = [USER, calls(call("a", key="c1"), call("b", key="c2"), call("c", key="c3"))]
    assert conversation_problems([*messages, answer("c2")]) == [
        "2 of its tool calls have no result: a (messages[1]), c (messages[1])"
    ]


def test_conversation_problems_an_answer_to_another_call_does_not_count():
    assert conversation_problems([USER, calls(call()), answer("other")]) == [
        "messages[2] answers other, which was not called",
        "1 of its tool calls have no result: add (messages[1])",
    ]


def test_conversation_problems_two_calls_of_one_id_need_two_answers():
    twice = calls(call("add"), call("book"))
    assert conversation_problems([USER, twice, answer(), answer()]) == []
    assert conversation_problems([USER, twice, answer()]) == [
        "1 of its tool calls have no result: add (messages[1])"
    ]


def test_conversation_problems_arguments_that_are_not_an_object_are_reported():
    assert conversation_problems([USER, calls(call(arguments="[1, 2]")), answer()]) == [
        "messages[1]: the arguments of add are not a JSON object: it is list"
    ]


def test_conversation_problems_arguments_that_are_not_json_are_reported_with_the_place():
    [oddity] = conversation_problems([USER, calls(call("book", "{oops")), answer(), DONE])
    assert oddity.startswith("messages[1]: the arguments of book are not a JSON object: ")


def test_conversation_problems_arguments_that_are_nested_too_deep_are_reported():
    [oddity] = conversation_problems([USER, calls(call(arguments="[" * 100_000)), answer(), DONE])
    assert "are not a JSON" in oddity


@pytest.mark.parametrize(
    "made",
    [
        {},
        {"id": None},
        {"function": None},
        {"function": "add"},
        {"function": {}},
        {"function": {"name": None, "arguments": None}},
        {"function": {"name": 3, "arguments": {"a": 1}}},
        {"id": ["c1"]},
        {"id": {"a": 1}},
        {"id": "c1", "name": "add", "arguments": {}},
    ],
    ids=json.dumps,
)
def test_conversation_problems_calls_in_other_formats_are_named(made):
    assert conversation_problems([USER, calls(made)]) == [
        f"messages[1]: a tool call in a format that isn't read: {made!r}"
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["id", "function", "name", "arguments"]), inner)
    ),
    max_leaves=8,
)


@given(
    st.lists(
        st.builds(
            Message,
            role=st.sampled_from(["system", "user", "assistant", "tool"]),
            tool_call_id=st.none() | st.sampled_from(["c1", "c2"]),
            tool_calls=st.none()
            | st.lists(
                st.fixed_dictionaries({}, optional={"id": JSON, "function": JSON}), max_size=2
            ),
        ),
        max_size=4,
    )
)
def test_conversation_problems_never_raises(messages):
    assert all(type(each) is str and each for each in conversation_problems(messages))


def test_conversation_problems_accepts_white_space_around_arguments():
    messages = [USER, calls(call(arguments=' {"a": 1}\n')), answer()]
    assert conversation_problems(messages) == []
