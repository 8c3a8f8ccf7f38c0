"""State keys: what makes two steps the same state."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon import Message, StepData
from guerdon.errors import CreditError, InvalidArgumentError
from guerdon.rollouts.crediting import as_state_key, last_messages, whole_history
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


def test_state_key_last_is_the_message_before_the_step():
    first, second = steps(CHAT)
    key = as_state_key("last")
    assert key(first) == (("user", "A seat?"),)
    assert key(second) == (("user", "Fine."),)


def test_state_key_last_k_skips_the_assistant():
    first, second = steps(CHAT)
    key = as_state_key("last-2")
    assert key(second) == (("tool", "3A"), ("user", "Fine."))
    assert key(first) == (("system", "Be brief."), ("user", "A seat?"))


def test_state_key_last_k_returns_all_of_fewer_messages():
    assert as_state_key("last-9")(steps(CHAT)[1]) == (
        ("system", "Be brief."), ("user", "A seat?"), ("tool", "3A"), ("user", "Fine."),
    )  # fmt: skip


def test_state_key_history_contains_messages_and_tool_calls():
    first, second = steps(CHAT)
    assert as_state_key("history") is whole_history
    assert whole_history(first) == (("system", "Be brief.", ()), ("user", "A seat?", ()))
    assert whole_history(second) == (
        ("system", "Be brief.", ()),
        ("user", "A seat?", ()),
        ("assistant", "", (("seat", '{"row": 3}'),)),
        ("tool", "3A", ()),
        ("user", "Fine.", ()),
    )


@pytest.mark.parametrize("name", ["last", "last-2", "last-5", "history"])
def test_state_key_ignores_ids_of_tool_calls(name):
    key = as_state_key(name)
    assert [*map(key, steps(CHAT))] == [*map(key, steps(with_id(CHAT, "call_77")))]


@pytest.mark.parametrize("name", ["last", "last-2", "history"])
def test_state_key_ignores_the_step_and_what_follows(name):
    key = as_state_key(name)
    other = [*CHAT[:5], {"role": "assistant", "content": "No."}, {"role": "user", "content": "Oh."}]
    assert key(steps(CHAT)[1]) == key(steps(other)[1])


def test_state_key_history_distinguishes_the_assistants_actions():
    other = [*CHAT]
    other[2] = {"role": "assistant", "content": None, "tool_calls": [
        {**CALL, "function": {"name": "seat", "arguments": '{"row": 4}'}}]}  # fmt: skip
    assert whole_history(steps(other)[1]) != whole_history(steps(CHAT)[1])
    assert as_state_key("last-4")(steps(other)[1]) == as_state_key("last-4")(steps(CHAT)[1])


def test_state_key_is_empty_if_the_assistant_begins():
    chat = [{"role": "assistant", "content": "Hello!"}]
    assert [as_state_key(name)(steps(chat)[0]) for name in ("last", "last-3", "history")] == [
        ()
    ] * 3


def test_state_key_distinguishes_roles():
    chats = [[{"role": role, "content": "3A"}, {"role": "assistant", "content": ""}]
            for role in ("user", "tool")]  # fmt: skip
    assert as_state_key("last")(steps(chats[0])[0]) != as_state_key("last")(steps(chats[1])[0])


def test_state_key_compares_parts_by_content():
    def chat(part):
        return [{"role": "user", "content": [part]}, {"role": "assistant", "content": "x"}]

    key = as_state_key("last")
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


def test_state_key_accepts_malformed_calls():
    chat = [
        {"role": "assistant", "content": "", "tool_calls": [{}, {"function": None}]},
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": ""},
    ]
    hash(whole_history(steps(chat)[1]))


def test_state_key_accepts_arguments_that_are_not_text():
    chat = [
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1]}}}]},
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": ""},
    ]
    hash(whole_history(steps(chat)[1]))


@pytest.mark.parametrize("call", [{"function": "seat"}, {"function": ["seat"]}], ids=repr)
def test_state_key_accepts_a_function_that_is_not_an_object(call):
    chat = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": ""},
    ]
    hash(whole_history(steps(chat)[1]))


def test_state_key_without_a_turn_uses_the_last_turn():
    history = [Message.model_validate(each) for each in CHAT]
    step = StepData(system_step_index=0, resulting_messages_history=history)
    assert as_state_key("last")(step) == (("user", "Fine."),)


def test_state_key_without_an_assistant_turn_uses_all_messages():
    step = StepData(
        system_step_index=0, resulting_messages_history=[Message(role="user", content="A seat?")]
    )
    assert as_state_key("last")(step) == (("user", "A seat?"),)


@pytest.mark.parametrize("name", ["last", "last-3", "history"])
def test_state_key_rejects_a_step_without_messages(name):
    with pytest.raises(CreditError, match="it has no messages"):
        as_state_key(name)(StepData(system_step_index=0, observation_data="start"))


def test_state_key_counts_the_results_of_one_turn_once():
    history = [
        Message(role="user", content="Fly me."),
        Message(role="assistant", tool_calls=[{"id": "a"}, {"id": "b"}]),
        Message(role="tool", tool_call_id="a", content="A"),
        Message(role="tool", tool_call_id="b", content="B"),
        Message(role="assistant", content="Done."),
    ]
    step = StepData(
        system_step_index=0,
        step_info={"assistant_turn_index": 1},
        resulting_messages_history=history,
    )
    assert as_state_key("last")(step) == (("tool", "A"), ("tool", "B"))
    assert as_state_key("last-2")(step) == (("user", "Fly me."), ("tool", "A"), ("tool", "B"))


def test_state_key_of_a_truncated_history_uses_the_last_turn():
    step = StepData(
        system_step_index=7,
        step_info={"assistant_turn_index": 7},
        resulting_messages_history=[
            Message(role="user", content="Where?"), Message(role="assistant", content="Here.")
        ],
    )  # fmt: skip
    assert as_state_key("history")(step) == (("user", "Where?", ()),)


def test_state_key_returns_a_function_unchanged():
    def room(step):
        return step.observation_data

    assert as_state_key(room) is room


@pytest.mark.parametrize(
    "name",
    ["first", "Last", "", "last-", "last-0", "last--1", "last-x", "last-1.0", "last-²", "last 3",
     "last-" + "9" * 5000, None, 3, ["last"]],
    ids=lambda name: repr(name)[:12],
)  # fmt: skip
def test_state_key_rejects_an_unknown_name(name):
    with pytest.raises(InvalidArgumentError, match=r"'last', 'last-K' .*'history'"):
        as_state_key(name)


TEXT = st.text(max_size=3)
TURNS = st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=5)


@given(turns=TURNS, count=st.integers(1, 6))
def test_state_key_last_k_is_the_end_of_the_messages(turns, count):
    chat = []
    for asked, answered in turns:
        chat += [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]
    for number, step in enumerate(steps(chat)):
        questions = [asked for asked, _ in turns[: number + 1]]
        assert [text for _, text in last_messages(count)(step)] == questions[-count:]
        assert [text for _, text, _ in whole_history(step)] == [
            text for pair in turns[:number] for text in pair
        ] + [turns[number][0]]
