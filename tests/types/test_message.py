"""Message: OpenAI's chat format in and out, with a dict's look."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from guerdon.errors import InvalidArgumentError
from guerdon.types import Message
from guerdon.types.message import read_messages

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=6,
)
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:,"}}


@pytest.mark.parametrize(
    "given",
    [
        {"role": "user", "content": "6 × 7?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "assistant", "tool_calls": [CALL]},
        {"role": "assistant", "content": "", "tool_calls": None},
        {"role": "tool", "content": "42", "tool_call_id": "c1"},
        {"role": "function", "content": "42", "name": "add"},
        {"role": "user", "content": [{"type": "text", "text": "What is this?"}, IMAGE]},
        {"role": "user", "content": []},
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": "Be brief.", "name": "ops"},
        {"role": "assistant", "content": "42", "reasoning_content": "6 × 7"},
        {"role": "assistant", "content": "42", "logprobs": {"content": [{"token": "4"}]}},
        {"role": "assistant", "content": "42", "refusal": None, "audio": None, "annotations": []},
    ],
)
def test_message_to_openai_returns_what_was_read(given):
    assert Message.model_validate(given).to_openai() == given


@given(extra=st.dictionaries(st.text(min_size=1, max_size=12), JSON, max_size=4))
def test_message_unknown_fields_survive_whatever_they_are_called(extra):
    known = {"name", "content", "role", "tool_calls", "tool_call_id", "reasoning_content"}
    given = {"role": "user", "content": "x"} | {k: v for k, v in extra.items() if k not in known}
    message = Message.model_validate(given)
    assert message.to_openai() == given
    assert json.loads(json.dumps(message.to_openai())) == given


@given(key=st.text(min_size=1, max_size=12), value=JSON)
def test_message_unknown_fields_are_found_by_their_key(key, value):
    if key in Message.model_fields:
        return
    message = Message.model_validate({"role": "user", "content": "x", key: value})
    assert key in message
    assert message[key] == value
    assert message.get(key) == value


@pytest.mark.parametrize("key", ["text", "get", "copy", "json", "to_openai", "model_extra", "_id"])
def test_message_a_field_that_is_called_like_a_method_is_found_by_its_key(key):
    message = Message.model_validate({"role": "user", "content": "x", key: 7})
    assert message[key] == 7
    assert message.get(key) == 7
    assert message.to_openai() == {"role": "user", "content": "x", key: 7}


@pytest.mark.parametrize("role", ["robot", "User", "", None, 3, ["user"]])
def test_message_rejects_unknown_roles(role):
    with pytest.raises(ValidationError, match="role"):
        Message.model_validate({"role": role, "content": "x"})


def test_message_rejects_a_missing_role():
    with pytest.raises(ValidationError, match="role"):
        Message.model_validate({"content": "x"})


@pytest.mark.parametrize("content", [3, 1.5, True, {"text": "x"}, ["x"], [None]])
def test_message_content_that_is_neither_text_nor_parts_is_refused(content):
    with pytest.raises(ValidationError, match="content"):
        Message.model_validate({"role": "user", "content": content})


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("hi", "hi"),
        ("", ""),
        (None, ""),
        ([], ""),
        ([{"type": "text", "text": "a"}, IMAGE, {"type": "text", "text": "b"}], "a\nb"),
        ([IMAGE], ""),
        ([{"type": "text", "text": None}], ""),
    ],
)
def test_message_the_text_is_that_of_all_text_parts(content, text):
    assert Message.model_validate({"role": "user", "content": content}).text == text


THINKING = {"type": "thinking", "thinking": "3 * 6", "signature": "s"}


@pytest.mark.parametrize(
    ("fields", "text", "reasoning"),
    [
        ({"content": "<think>3 * 6</think>\n\nA: 18"}, "A: 18", "3 * 6"),
        ({"content": "3 * 6</think>A: 18"}, "A: 18", "3 * 6"),
        ({"content": "<think>3 * 6"}, "", "3 * 6"),
        ({"content": [THINKING, {"type": "text", "text": "A: 18"}]}, "A: 18", "3 * 6"),
        ({"content": [THINKING]}, "", "3 * 6"),
        ({"content": [{"type": "redacted_thinking", "data": "x"}]}, "", ""),
        ({"content": [{"type": "reasoning_text", "text": "3 * 6"}]}, "", "3 * 6"),
        ({"content": [{"type": "reasoning", "summary": [{"text": "3 * 6"}]}]}, "", "3 * 6"),
        ({"content": [{"reasoningContent": {"reasoningText": {"text": "3"}}}]}, "", "3"),
        ({"content": [{"text": "3 * 6", "thought": True}, {"text": "A: 18"}]}, "A: 18", "3 * 6"),
        ({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "3"}]}]}, "", "3"),
        ({"content": [{"type": "output_text", "text": "A: 18"}]}, "A: 18", ""),
        ({"content": "A: 18", "reasoning_content": "3 * 6"}, "A: 18", "3 * 6"),
        ({"content": "A: 18", "reasoning": "3 * 6"}, "A: 18", "3 * 6"),
        ({"content": "A: 18"}, "A: 18", ""),
        ({"content": None}, "", ""),
    ],
)
def test_message_keeps_reasoning_apart_from_the_text(fields, text, reasoning):
    message = Message.model_validate({"role": "assistant", **fields})
    assert (message.text, message.reasoning) == (text, reasoning)
    assert message.content == fields["content"]
    assert message.to_openai() == {"role": "assistant", **fields}


def test_message_the_text_of_others_has_no_reasoning():
    message = Message(role="user", content="Write <think>, then the answer.")
    assert (message.text, message.reasoning) == ("Write <think>, then the answer.", "")


def test_message_a_message_without_content_has_no_text():
    assert Message(role="assistant").text == ""


def test_message_behaves_like_a_dict_of_the_given_fields():
    message = Message.model_validate({"role": "user", "content": None, "cache": True})
    assert (message["role"], message["content"], message["cache"]) == ("user", None, True)
    assert ("content" in message, "cache" in message, "name" in message) == (True, True, False)
    assert message.get("name") is None
    assert message.get("name", "Ann") == "Ann"
    assert message.get("content", "other") is None
    with pytest.raises(KeyError, match="name"):
        message["name"]


def test_message_its_fields_are_attributes():
    message = Message.model_validate({"role": "user", "content": "x", "cache": True})
    assert (message.role, message.content, message.cache, message.name) == ("user", "x", True, None)


# There and back


TEXT = st.text(max_size=9)
PARTS = st.lists(
    st.fixed_dictionaries({"type": st.just("text"), "text": TEXT})
    | st.fixed_dictionaries({"type": st.just("image_url"), "image_url": JSON})
    | st.dictionaries(TEXT, JSON, max_size=2),
    max_size=3,
)
CALLS = st.lists(
    st.fixed_dictionaries(
        {"id": TEXT, "type": st.just("function")},
        optional={
            "function": st.fixed_dictionaries({"name": TEXT, "arguments": TEXT}),
            "index": st.integers(0, 9),
        },
    ),
    max_size=2,
)
ROLES = ["system", "developer", "user", "assistant", "tool", "function"]
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(ROLES)},
    optional={
        "content": st.none() | TEXT | PARTS,
        "name": st.none() | TEXT,
        "tool_call_id": st.none() | TEXT,
        "tool_calls": st.none() | CALLS,
        "reasoning_content": st.none() | TEXT,
        "refusal": st.none() | TEXT,
        "annotations": st.lists(JSON, max_size=2),
        "audio": JSON,
        "text": JSON,
    },
)


@given(MESSAGES)
def test_message_round_trips_any_fields(given):
    before = json.dumps(given)
    message = Message.model_validate(given)
    assert message.to_openai() == given
    assert Message.model_validate(message.to_openai()) == message
    assert json.dumps(given) == before


@given(MESSAGES)
def test_message_a_message_goes_through_json_without_loss_and_without_gain(given):
    message = Message.model_validate(given)
    for text in (message.model_dump_json(), json.dumps(message.to_openai())):
        again = Message.model_validate_json(text)
        assert again == message
        assert again.to_openai() == given


def test_message_what_went_out_is_no_part_of_the_message():
    message = Message(role="assistant", content=[dict(IMAGE)], tool_calls=[CALL])
    given = message.to_openai()
    given["content"].clear()
    given["tool_calls"][0]["function"]["name"] = "other"
    assert message.content == [IMAGE]
    assert message.tool_calls == [CALL]


def test_message_is_immutable():
    message = Message(role="user", content="x")
    with pytest.raises(ValidationError, match="frozen"):
        message.content = "y"
    assert message.to_openai() == {"role": "user", "content": "x"}
    assert message.model_copy(update={"content": "y"}).text == "y"


def test_message_a_message_may_be_dumped_in_parts():
    message = Message.model_validate({"role": "user", "content": None, "cache": True})
    assert message.model_dump(include={"role"}) == {"role": "user"}
    assert message.model_dump(exclude={"role"}) == {"content": None, "cache": True}
    assert message.model_dump(exclude_none=True) == {"role": "user", "cache": True}


def test_message_has_a_json_schema():
    assert {"role", "content"} <= Message.model_json_schema()["properties"].keys()
    assert Message.model_json_schema(mode="serialization")


# Lists of them

USER = Message(role="user", content="1 + 2?")
DONE = Message(role="assistant", content="3")


@pytest.mark.parametrize("kind", [list, tuple])
def test_message_dicts_become_messages(kind):
    given = [{"role": "user", "content": "1 + 2?"}, {"role": "assistant", "content": "3"}]
    messages = read_messages(kind(given))
    assert type(messages) is list
    assert all(type(message) is Message for message in messages)
    assert [message.to_openai() for message in messages] == given


@pytest.mark.parametrize("kind", [list, tuple])
def test_read_messages_returns_a_new_list_of_the_same_messages(kind):
    given = kind([USER, DONE])
    messages = read_messages(given)
    assert messages is not given
    assert messages[0] is USER
    assert messages[1] is DONE


def test_read_messages_accepts_messages_and_dicts():
    messages = read_messages([USER, {"role": "assistant", "content": "3"}])
    assert messages == [USER, DONE]


def test_message_no_messages_are_a_conversation():
    assert read_messages([]) == []


@pytest.mark.parametrize("thing", [None, "hi", 3, {"role": "user"}, USER, iter([USER])])
def test_read_messages_rejects_what_is_not_a_list(thing):
    with pytest.raises(InvalidArgumentError, match=r"must be a list of messages \{role, "):
        read_messages(thing)


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
def test_read_messages_names_an_invalid_message(messages, message):
    with pytest.raises(InvalidArgumentError, match=message):
        read_messages(messages)


def test_read_messages_error_begins_with_the_name_of_the_conversation():
    with pytest.raises(InvalidArgumentError, match=r"`rollouts_messages\[3\]` must be .* got 5"):
        read_messages(5, "rollouts_messages[3]")
    with pytest.raises(InvalidArgumentError, match=r"^rollouts_messages\[3\]\[0\]: "):
        read_messages(["x"], "rollouts_messages[3]")


def test_read_messages_shortens_long_values():
    with pytest.raises(InvalidArgumentError) as caught:
        read_messages("x" * 10_000)
    assert len(str(caught.value)) < 300


def test_message_deep_nesting_is_an_error_like_any_other():
    deep = {}
    for _ in range(5000):
        deep = {"a": deep}
    with pytest.raises(InvalidArgumentError):
        read_messages([{"role": deep}])
