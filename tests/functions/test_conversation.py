"""Conversations: taken as messages, and what is odd about one."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon.errors import RewardFunctionError
from guerdon.functions.conversation import as_messages, oddities
from guerdon.models import Message


def call(name="add", arguments="{}", key="c1"):
    return {"id": key, "type": "function", "function": {"name": name, "arguments": arguments}}


def calls(*made):
    return Message(role="assistant", tool_calls=list(made))


def answer(key="c1"):
    return Message(role="tool", content="3", tool_call_id=key)


USER = Message(role="user", content="1 + 2?")
DONE = Message(role="assistant", content="3")


# Messages


@pytest.mark.parametrize("kind", [list, tuple])
def test_dicts_become_messages(kind):
    given = [{"role": "user", "content": "1 + 2?"}, {"role": "assistant", "content": "3"}]
    messages = as_messages(kind(given))
    assert type(messages) is list
    assert all(type(message) is Message for message in messages)
    assert [message.to_openai() for message in messages] == given


@pytest.mark.parametrize("kind", [list, tuple])
def test_messages_are_taken_as_they_are_in_a_list_of_their_own(kind):
    given = kind([USER, DONE])
    messages = as_messages(given)
    assert messages is not given
    assert messages[0] is USER
    assert messages[1] is DONE


def test_messages_and_dicts_may_be_mixed():
    messages = as_messages([USER, {"role": "assistant", "content": "3"}])
    assert messages == [USER, DONE]


def test_no_messages_are_a_conversation():
    assert as_messages([]) == []


@pytest.mark.parametrize("thing", [None, "hi", 3, {"role": "user"}, USER, iter([USER])])
def test_what_is_no_list_is_refused(thing):
    with pytest.raises(RewardFunctionError, match=r"it takes a list of messages \{role, "):
        as_messages(thing)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([{"role": "robot"}], r"messages\[0\]\.role: .*not 'robot'"),
        ([USER, {"content": "x"}], r"messages\[1\]\.role: Field required"),
        ([USER, DONE, "x"], r"messages\[2\]: .*not 'x'"),
        ([{"role": "user", "content": 3}], r"messages\[0\]\.content.*not 3"),
        ([None], r"messages\[0\]: .*not None"),
    ],
    ids=range(5),
)
def test_a_message_that_is_none_is_named(messages, message):
    with pytest.raises(RewardFunctionError, match=message):
        as_messages(messages)


def test_the_error_begins_with_what_the_conversation_is_called():
    with pytest.raises(RewardFunctionError, match=r"^rollouts_messages\[3\] is 5; it takes"):
        as_messages(5, "rollouts_messages[3]")
    with pytest.raises(RewardFunctionError, match=r"^rollouts_messages\[3\]\[0\]: "):
        as_messages(["x"], "rollouts_messages[3]")


def test_a_long_value_is_not_told_in_full():
    with pytest.raises(RewardFunctionError) as caught:
        as_messages("x" * 10_000)
    assert len(str(caught.value)) < 300


def test_deep_nesting_is_an_error_like_any_other():
    deep = {}
    for _ in range(5000):
        deep = {"a": deep}
    with pytest.raises(RewardFunctionError):
        as_messages([{"role": deep}])


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
        [USER, calls(call(arguments="[1, 2]")), answer()],
        [USER, Message(role="assistant", content="3", tool_calls=[])],
    ],
    ids=range(8),
)
def test_most_conversations_have_nothing_odd(messages):
    assert oddities(messages) == []


@pytest.mark.parametrize("before", [[], ["system"], ["developer"], ["system", "developer"]])
def test_a_conversation_that_begins_with_the_assistant_is_odd(before):
    messages = [*(Message(role=role, content="x") for role in before), DONE, USER]
    assert oddities(messages) == ["it begins with the assistant"]


def test_a_call_that_nobody_answered_is_named_with_its_place():
    assert oddities([USER, calls(call("book"))]) == [
        "nobody answered 1 of its tool calls: book (messages[1])"
    ]


def test_only_the_calls_that_nobody_answered_are_named():
    messages = [USER, calls(call("a", key="c1"), call("b", key="c2"), call("c", key="c3"))]
    assert oddities([*messages, answer("c2")]) == [
        "nobody answered 2 of its tool calls: a (messages[1]), c (messages[1])"
    ]


def test_an_answer_to_another_call_is_no_answer():
    assert oddities([USER, calls(call()), answer("other")]) == [
        "nobody answered 1 of its tool calls: add (messages[1])"
    ]


def test_arguments_that_are_no_json_are_told_with_the_place():
    [oddity] = oddities([USER, calls(call("book", "{oops")), answer(), DONE])
    assert oddity.startswith("messages[1]: the arguments of book are no JSON: ")


def test_arguments_that_are_nested_too_deep_are_told():
    [oddity] = oddities([USER, calls(call(arguments="[" * 100_000)), answer(), DONE])
    assert "are no JSON" in oddity


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
    ],
    ids=json.dumps,
)
def test_calls_of_any_shape_do_no_harm(made):
    [oddity] = oddities([USER, calls(made)])
    assert oddity.startswith("nobody answered 1 of its tool calls: ")
    assert oddity.endswith("(messages[1])")


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
def test_whatever_the_conversation_oddities_are_text(messages):
    assert all(type(each) is str and each for each in oddities(messages))
