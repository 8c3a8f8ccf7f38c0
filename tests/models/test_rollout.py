"""Rollout.from_row: a recorded conversation as steps."""

import pytest

from guerdon.errors import RolloutError
from guerdon.models import Message, Rollout

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def tool(text):
    return {"role": "tool", "content": text, "tool_call_id": "c1"}


def rollout_of(*messages, **columns):
    return Rollout.from_row({"messages": list(messages), **columns})


# Steps


def test_each_assistant_turn_is_a_step():
    rollout = rollout_of(user("1"), assistant("a"), user("2"), assistant("b"), assistant("c"))
    assert [action.content for action, _ in rollout.steps] == ["a", "b", "c"]
    assert [action.turn for action, _ in rollout.steps] == [0, 1, 2]


def test_only_the_last_step_is_done():
    rollout = rollout_of(assistant("a"), user("2"), assistant("b"), user("bye"))
    assert [observation.done for _, observation in rollout.steps] == [False, True]


def test_what_follows_a_turn_is_its_observation():
    rollout = rollout_of(
        user("q"), assistant(None, tool_calls=[CALL]), tool("1"), tool("2"), user("go"),
        assistant("b"), user("thanks"), user("bye"),
    )  # fmt: skip
    assert [
        [message.text for message in observation.metadata["messages"]]
        for _, observation in rollout.steps
    ] == [["1", "2", "go"], ["thanks", "bye"]]


def test_turns_that_follow_each_other_have_nothing_between_them():
    rollout = rollout_of(assistant("a"), assistant("b"))
    assert [o.metadata["messages"] for _, o in rollout.steps] == [[], []]


def test_the_metadata_holds_every_column():
    row = {"id": 1, "group": "g", "ground_truth": "42", "model": {"size": 7}}
    row["messages"] = [assistant("a")]
    rollout = Rollout.from_row(row)
    assert rollout.steps[0][1].metadata == {**row, "messages": []}
    assert rollout.columns == row


def test_steps_do_not_share_their_metadata():
    rollout = rollout_of(assistant("a"), assistant("b"), ground_truth="42")
    rollout.steps[0][1].metadata["ground_truth"] = "spoilt"
    assert rollout.steps[1][1].metadata["ground_truth"] == "42"


def test_nothing_was_scored_when_it_was_recorded():
    assert rollout_of(assistant("a")).steps[0][1].reward is None


def test_the_action_knows_its_text_and_its_place():
    rollout = rollout_of(user("q"), assistant("a"), user("r"), assistant("b", tool_calls=[CALL]))
    (first, _), (second, _) = rollout.steps
    assert (first.content, first.message, first.tool_calls) == ("a", "a", [])
    assert (second.content, second.message, second.tool_calls) == ("b", "b", [CALL])
    assert [message.text for message in first.history] == ["q"]
    assert [message.text for message in second.history] == ["q", "a", "r"]
    assert second.raw is rollout.messages[3]
    assert isinstance(second.raw, Message)


@pytest.mark.parametrize(
    ("content", "text"),
    [(None, ""), ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab"), ([], "")],
)
def test_the_content_of_an_action_is_always_text(content, text):
    ((action, _),) = rollout_of(assistant(content)).steps
    assert action.content == text


def test_a_turn_without_content_is_a_turn():
    ((action, _),) = rollout_of({"role": "assistant", "tool_calls": [CALL]}).steps
    assert (action.content, action.tool_calls) == ("", [CALL])


def test_tool_calls_that_are_null_are_none():
    ((action, _),) = rollout_of(assistant("a", tool_calls=None)).steps
    assert action.tool_calls == []


# Names


def test_a_rollout_has_the_id_and_group_of_its_row():
    rollout = rollout_of(assistant("a"), id="q7", group=3)
    assert (rollout.id, rollout.group) == ("q7", 3)


def test_without_an_id_the_line_is_the_id():
    rollout = Rollout.from_row({"messages": [assistant("a")]}, line=12)
    assert (rollout.id, rollout.group) == (12, None)


# Rows that are no rollouts


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([], "a rollout is an object with 'messages', not list"),
        ("x", "a rollout is an object with 'messages', not str"),
        (None, "a rollout is an object with 'messages', not NoneType"),
        ({}, "the rollout has no messages; .* not None"),
        ({"messages": []}, r"the rollout has no messages; .* not \[\]"),
        ({"messages": "hi"}, "the rollout has no messages; .* not 'hi'"),
        ({"messages": {"role": "user"}}, "the rollout has no messages; "),
        ({"messages": [user("q")]}, r"no assistant turn to score; its roles are \['user'\]"),
        ({"messages": [user("q"), tool("1")]}, r"its roles are \['tool', 'user'\]"),
        ({"messages": [user("q"), {"role": "robot"}]}, r"messages\[1\]\.role: .*'robot'"),
        ({"messages": [assistant("a"), {"content": "x"}]}, r"messages\[1\]\.role: Field required"),
        ({"messages": [assistant("a"), "x"]}, r"messages\[1\]: .*'x'"),
        ({"messages": [assistant(3)]}, r"messages\[0\]\.content.*not 3"),
        ({"messages": [assistant("a", tool_calls="x")]}, r"messages\[0\]\.tool_calls: .*'x'"),
    ],
)
def test_a_row_that_is_no_rollout_is_refused_and_says_why(row, message):
    with pytest.raises(RolloutError, match=message) as caught:
        Rollout.from_row(row, line=3)
    assert caught.value.line == 3


def test_a_long_value_is_not_told_in_full():
    with pytest.raises(RolloutError) as caught:
        Rollout.from_row({"messages": "x" * 10_000})
    assert len(str(caught.value)) < 300


def nested(depth):
    value = {}
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "messages",
    [nested(5000), [nested(5000)], [{"role": nested(5000)}]],
)
def test_deep_nesting_is_an_error_like_any_other(messages):
    with pytest.raises(RolloutError) as caught:
        Rollout.from_row({"messages": messages}, line=3)
    assert caught.value.line == 3


def test_deep_nesting_beside_the_messages_does_no_harm():
    assert len(rollout_of(assistant("a"), extra=nested(5000)).steps) == 1
