"""State keys: what makes two steps the same state."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon import Message, StepData
from guerdon.errors import CreditError, InvalidArgumentError
from guerdon.rollouts.keys import last_messages, state_key, whole_history
from guerdon.types import Rollout

CALL = {"id": "c1", "type": "function", "function": {"name": "seat", "arguments": '{"row": 3}'}}
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "A seat?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "3A"},
    {"role": "user", "content": "Fine."},
    {"role": "assistant", "content": "Done."},
    {"role": "user", "content": "Bye."},
]


def steps(chat):
    return Rollout.from_row({"messages": chat}).to_step_data()


def with_id(chat, name):
    """The same conversation with another identifier of its tool call."""
    return json.loads(json.dumps(chat).replace("c1", name))


def test_the_last_key_is_what_was_said_before_the_step():
    first, second = steps(CHAT)
    key = state_key("last")
    assert key(first) == (("user", "A seat?"),)
    assert key(second) == (("user", "Fine."),)


def test_the_last_k_are_those_that_are_not_the_assistants():
    first, second = steps(CHAT)
    key = state_key("last-2")
    assert key(second) == (("tool", "3A"), ("user", "Fine."))
    assert key(first) == (("system", "Be brief."), ("user", "A seat?"))


def test_where_there_are_fewer_all_of_them_count():
    assert state_key("last-9")(steps(CHAT)[1]) == (
        ("system", "Be brief."), ("user", "A seat?"), ("tool", "3A"), ("user", "Fine."),
    )  # fmt: skip


def test_the_history_is_all_before_the_step_with_the_tools_that_were_called():
    first, second = steps(CHAT)
    assert state_key("history") is whole_history
    assert whole_history(first) == (("system", "Be brief.", ()), ("user", "A seat?", ()))
    assert whole_history(second) == (
        ("system", "Be brief.", ()),
        ("user", "A seat?", ()),
        ("assistant", "", (("seat", '{"row": 3}'),)),
        ("tool", "3A", ()),
        ("user", "Fine.", ()),
    )


@pytest.mark.parametrize("name", ["last", "last-2", "last-5", "history"])
def test_identifiers_of_tool_calls_do_not_matter(name):
    key = state_key(name)
    assert [*map(key, steps(CHAT))] == [*map(key, steps(with_id(CHAT, "call_77")))]


@pytest.mark.parametrize("name", ["last", "last-2", "history"])
def test_what_the_step_itself_says_and_what_follows_do_not_matter(name):
    key = state_key(name)
    other = [*CHAT[:5], {"role": "assistant", "content": "No."}, {"role": "user", "content": "Oh."}]
    assert key(steps(CHAT)[1]) == key(steps(other)[1])


def test_the_history_tells_apart_what_the_assistant_did():
    other = [*CHAT]
    other[2] = {"role": "assistant", "content": None, "tool_calls": [
        {**CALL, "function": {"name": "seat", "arguments": '{"row": 4}'}}]}  # fmt: skip
    assert whole_history(steps(other)[1]) != whole_history(steps(CHAT)[1])
    assert state_key("last-4")(steps(other)[1]) == state_key("last-4")(steps(CHAT)[1])


def test_a_conversation_that_begins_with_the_assistant_has_an_empty_key():
    chat = [{"role": "assistant", "content": "Hello!"}]
    assert [state_key(name)(steps(chat)[0]) for name in ("last", "last-3", "history")] == [()] * 3


def test_who_said_it_matters():
    said = [[{"role": role, "content": "3A"}, {"role": "assistant", "content": ""}]
            for role in ("user", "tool")]  # fmt: skip
    assert state_key("last")(steps(said[0])[0]) != state_key("last")(steps(said[1])[0])


def test_parts_are_compared_by_content():
    def chat(part):
        return [{"role": "user", "content": [part]}, {"role": "assistant", "content": "x"}]

    key = state_key("last")
    one, same, other = (
        key(steps(chat(part))[0])
        for part in (
            {"type": "text", "text": "A"},
            {"text": "A", "type": "text"},
            {"type": "text", "text": "B"},
        )
    )
    assert one == same != other
    hash(one)


def test_calls_that_are_none_have_a_key_all_the_same():
    chat = [
        {"role": "assistant", "content": "", "tool_calls": [{}, {"function": None}]},
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": ""},
    ]
    hash(whole_history(steps(chat)[1]))


def test_arguments_that_are_no_text_have_a_key_all_the_same():
    chat = [
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1]}}}]},
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": ""},
    ]
    hash(whole_history(steps(chat)[1]))


@pytest.mark.parametrize("call", [{"function": "seat"}, {"function": ["seat"]}], ids=repr)
def test_a_function_that_is_no_object_has_a_key_all_the_same(call):
    chat = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": ""},
    ]
    hash(whole_history(steps(chat)[1]))


def test_a_step_that_says_no_turn_is_the_last_turn_of_its_history():
    history = [Message.model_validate(each) for each in CHAT]
    step = StepData(system_step_index=0, resulting_messages_history=history)
    assert state_key("last")(step) == (("user", "Fine."),)


def test_a_step_without_an_assistant_turn_is_known_by_all_that_was_said():
    step = StepData(
        system_step_index=0, resulting_messages_history=[Message(role="user", content="A seat?")]
    )
    assert state_key("last")(step) == (("user", "A seat?"),)


@pytest.mark.parametrize("name", ["last", "last-3", "history"])
def test_a_step_without_messages_has_no_state(name):
    with pytest.raises(CreditError, match="it has no messages"):
        state_key(name)(StepData(system_step_index=0, observation_data="start"))


def test_answers_to_the_calls_of_one_turn_are_one():
    said = [
        Message(role="user", content="Fly me."),
        Message(role="assistant", tool_calls=[{"id": "a"}, {"id": "b"}]),
        Message(role="tool", tool_call_id="a", content="A"),
        Message(role="tool", tool_call_id="b", content="B"),
        Message(role="assistant", content="Done."),
    ]
    step = StepData(
        system_step_index=0,
        step_info={"assistant_turn_index": 1},
        resulting_messages_history=said,
    )
    assert state_key("last")(step) == (("tool", "A"), ("tool", "B"))
    assert state_key("last-2")(step) == (("user", "Fly me."), ("tool", "A"), ("tool", "B"))


def test_of_a_history_that_is_cut_off_the_last_turn_is_the_steps_own():
    step = StepData(
        system_step_index=7,
        step_info={"assistant_turn_index": 7},
        resulting_messages_history=[
            Message(role="user", content="Where?"), Message(role="assistant", content="Here.")
        ],
    )  # fmt: skip
    assert state_key("history")(step) == (("user", "Where?", ()),)


def test_a_function_is_a_key_already():
    def room(step):
        return step.observation_data

    assert state_key(room) is room


@pytest.mark.parametrize(
    "name",
    ["first", "Last", "", "last-", "last-0", "last--1", "last-x", "last-1.0", "last-²", "last 3",
     "last-" + "9" * 5000, None, 3, ["last"]],
    ids=lambda name: repr(name)[:12],
)  # fmt: skip
def test_what_is_no_state_key_is_refused_with_those_that_there_are(name):
    with pytest.raises(InvalidArgumentError, match=r"'last', 'last-K' .*'history'"):
        state_key(name)


TEXT = st.text(max_size=3)
TURNS = st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=5)


@given(turns=TURNS, count=st.integers(1, 6))
def test_the_last_k_are_the_end_of_what_was_said(turns, count):
    chat = []
    for asked, answered in turns:
        chat += [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]
    for number, step in enumerate(steps(chat)):
        said = [asked for asked, _ in turns[: number + 1]]
        assert [text for _, text in last_messages(count)(step)] == said[-count:]
        assert [text for _, text, _ in whole_history(step)] == [
            text for pair in turns[:number] for text in pair
        ] + [turns[number][0]]
