"""Rollout.from_row: a recorded conversation as steps."""

import copy
import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon import RegexMatch
from guerdon.errors import MissingInputError, RolloutError
from guerdon.types import Message, Rollout

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


def test_rollout_each_assistant_turn_is_a_step():
    rollout = rollout_of(user("1"), assistant("a"), user("2"), assistant("b"), assistant("c"))
    assert [action.content for action, _ in rollout.steps] == ["a", "b", "c"]
    assert [action.turn for action, _ in rollout.steps] == [0, 1, 2]


def test_rollout_only_the_last_step_is_done():
    rollout = rollout_of(assistant("a"), user("2"), assistant("b"), user("bye"))
    assert [observation.done for _, observation in rollout.steps] == [False, True]


def test_rollout_what_follows_a_turn_is_its_observation():
    rollout = rollout_of(
        user("q"), assistant(None, tool_calls=[CALL]), tool("1"), tool("2"), user("go"),
        assistant("b"), user("thanks"), user("bye"),
    )  # fmt: skip
    assert [
        [message.text for message in observation.metadata["messages"]]
        for _, observation in rollout.steps
    ] == [["1", "2", "go"], ["thanks", "bye"]]


def test_rollout_turns_that_follow_each_other_have_nothing_between_them():
    rollout = rollout_of(assistant("a"), assistant("b"))
    assert [o.metadata["messages"] for _, o in rollout.steps] == [[], []]


def test_rollout_metadata_contains_every_column():
    row = {"id": 1, "group": "g", "ground_truth": "42", "model": {"size": 7}}
    row["messages"] = [assistant("a")]
    rollout = Rollout.from_row(row)
    assert rollout.steps[0][1].metadata == {**row, "messages": []}
    assert rollout.columns == row


def test_rollout_steps_do_not_share_their_metadata():
    rollout = rollout_of(assistant("a"), assistant("b"), ground_truth="42")
    rollout.steps[0][1].metadata["ground_truth"] = "spoilt"
    assert rollout.steps[1][1].metadata["ground_truth"] == "42"


def test_rollout_nothing_was_scored_when_it_was_recorded():
    assert rollout_of(assistant("a")).steps[0][1].reward is None


def test_rollout_the_action_knows_its_text_and_its_place():
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
    [
        (None, ""),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
        ([], ""),
    ],
)
def test_rollout_the_content_of_an_action_is_always_text(content, text):
    ((action, _),) = rollout_of(assistant(content)).steps
    assert action.content == text


def test_rollout_a_turn_without_content_is_a_turn():
    ((action, _),) = rollout_of({"role": "assistant", "tool_calls": [CALL]}).steps
    assert (action.content, action.tool_calls) == ("", [CALL])


def test_rollout_tool_calls_of_null_are_an_empty_list():
    ((action, _),) = rollout_of(assistant("a", tool_calls=None)).steps
    assert action.tool_calls == []


# Names


def test_rollout_a_rollout_has_the_id_and_group_of_its_row():
    rollout = rollout_of(assistant("a"), id="q7", group=3)
    assert (rollout.id, rollout.group) == ("q7", 3)


def test_rollout_without_an_id_the_line_is_the_id():
    rollout = Rollout.from_row({"messages": [assistant("a")]}, line=12)
    assert (rollout.id, rollout.group) == (12, None)


# Rows that are no rollouts


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([], "a rollout must be an object with 'messages', got list"),
        ("x", "a rollout must be an object with 'messages', got str"),
        (None, "a rollout must be an object with 'messages', got NoneType"),
        ({}, "a rollout needs `messages`, or `prompt` and `completion` .*; its columns are $"),
        ({"id": 1, "text": "x"}, "its columns are id, text$"),
        ({"messages": []}, r"`messages` must be a non-empty list .* got \[\]"),
        ({"messages": "hi"}, "`messages` must be a non-empty list .* got 'hi'"),
        ({"messages": {"role": "user"}}, "`messages` must be a non-empty list"),
        ({"messages": [user("q")]}, r"no assistant turn to score, only the roles \['user'\]"),
        ({"messages": [user("q"), tool("1")]}, r"only the roles \['tool', 'user'\]"),
        ({"messages": [user("q"), {"role": "robot"}]}, r"messages\[1\]\.role: .*'robot'"),
        ({"messages": [assistant("a"), {"content": "x"}]}, r"messages\[1\]\.role: Field required"),
        ({"messages": [assistant("a"), "x"]}, r"messages\[1\]: .*'x'"),
        ({"messages": [assistant(3)]}, r"messages\[0\]\.content.*not 3"),
        ({"messages": [assistant("a", tool_calls="x")]}, r"messages\[0\]\.tool_calls: .*'x'"),
    ],
)
def test_rollout_from_row_rejects_an_invalid_row_with_the_reason(row, message):
    with pytest.raises(RolloutError, match=message) as caught:
        Rollout.from_row(row, line=3)
    assert caught.value.line == 3


def test_rollout_error_shortens_long_values():
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
def test_rollout_deep_nesting_is_an_error_like_any_other(messages):
    with pytest.raises(RolloutError) as caught:
        Rollout.from_row({"messages": messages}, line=3)
    assert caught.value.line == 3


def test_rollout_deep_nesting_beside_the_messages_does_no_harm():
    assert len(rollout_of(assistant("a"), extra=nested(5000)).steps) == 1


# Steps by name


def test_rollout_messages_may_have_a_step_id():
    rollout = rollout_of(
        user("q"), assistant("a", step_id="think"), assistant("b"), assistant("c", step_id="say")
    )
    assert [action.step_id for action, _ in rollout.steps] == ["think", None, "say"]


@pytest.mark.parametrize("name", [None, 0, 1.5, ["s"], {"a": 1}, True])
def test_rollout_step_id_is_none_unless_it_is_a_string(name):
    rollout = rollout_of(assistant("a", step_id=name))
    assert rollout.to_step_data()[0].step_info == {"assistant_turn_index": 0}


def test_rollout_turns_before_the_first_are_examples_and_no_steps():
    rollout = rollout_of(user("e"), assistant("x"), user("q"), assistant("a"), first_turn=1)
    [(action, observation)] = rollout.steps
    assert (action.content, action.turn, observation.done) == ("a", 1, True)
    [step] = rollout.to_step_data()
    assert step.step_info == {"assistant_turn_index": 1}
    assert step.observation_data == "q"


@pytest.mark.parametrize("first", [-1, 2, 10**9, 1.5, float("nan"), "1", True, [1]])
def test_rollout_rejects_a_first_turn_out_of_range(first):
    with pytest.raises(RolloutError, match="`first_turn` must be"):
        rollout_of(user("q"), assistant("a"), assistant("b"), first_turn=first)


@pytest.mark.parametrize(("first", "count"), [(None, 2), (0, 2), (1, 1), (1.0, 1)])
def test_rollout_a_first_turn_may_be_missing_or_a_whole_float(first, count):
    assert len(rollout_of(assistant("a"), assistant("b"), first_turn=first).steps) == count


@pytest.mark.parametrize(
    ("columns", "failure"),
    [
        ({}, None),
        ({"ended": "done", "error": "x"}, None),
        ({"ended": "error", "error": "reset: OSError: down"}, "reset: OSError: down"),
        ({"ended": "error"}, "unknown"),
    ],
    ids=range(4),
)
def test_rollout_failure_is_the_error_of_the_episode(columns, failure):
    problem = rollout_of(assistant("a"), **columns).failure
    assert problem == (failure and f"the episode ended with an error: {failure}")


def test_rollout_the_steps_are_the_same_however_often_they_are_asked_for():
    rollout = rollout_of(user("q"), assistant("a"))
    assert rollout.steps is rollout.steps


def test_rollout_a_rollout_is_copied_and_pickled_with_its_steps():
    rollout = rollout_of(user("q"), assistant("a"), id="q7")
    for again in (copy.deepcopy(rollout), pickle.loads(pickle.dumps(rollout))):
        assert again == rollout
        assert again.steps == rollout.steps


# StepData


def test_rollout_each_turn_becomes_a_step_with_what_led_to_it_and_what_came_of_it():
    rollout = rollout_of(
        user("q"), assistant(None, tool_calls=[CALL]), tool("1"), assistant("b"), user("thanks")
    )
    first, second = rollout.to_step_data()
    assert (first.system_step_index, second.system_step_index) == (0, 1)
    assert (first.observation_data, second.observation_data) == ("q", "1")
    assert first.action_taken == {"role": "assistant", "content": None, "tool_calls": [CALL]}
    assert second.action_taken == assistant("b")
    assert (first.raw_policy_output, second.raw_policy_output) == ("", "b")
    assert (first.is_done, second.is_done) == (False, True)
    assert [m.text for m in first.resulting_messages_history] == ["q", "", "1"]
    assert second.resulting_messages_history == rollout.messages
    assert first.base_reward is first.advantage is first.return_to_go is None


def test_rollout_a_conversation_that_begins_with_the_assistant_has_nothing_before_it():
    first, second = rollout_of(assistant("a"), assistant("b")).to_step_data()
    assert (first.observation_data, second.observation_data) == (None, "a")


def test_rollout_the_step_info_names_the_turn_and_what_else_is_known():
    rollout = rollout_of(assistant("a", step_id="s"), assistant("b"), group="g")
    first, second = rollout.to_step_data()
    assert first.step_info == {"assistant_turn_index": 0, "step_id": "s", "group": "g"}
    assert second.step_info == {"assistant_turn_index": 1, "group": "g"}
    [alone] = rollout_of(assistant("a")).to_step_data()
    assert alone.step_info == {"assistant_turn_index": 0}


def test_rollout_steps_can_be_changed_without_changing_the_rollout():
    rollout = rollout_of(user("q"), assistant("a", tool_calls=[CALL]))
    [step] = rollout.to_step_data()
    step.base_reward = 0.5
    step.step_info["more"] = 1
    step.resulting_messages_history.clear()
    step.action_taken["tool_calls"].clear()
    [again] = rollout.to_step_data()
    assert again.base_reward is None
    assert again.step_info == {"assistant_turn_index": 0}
    assert len(again.resulting_messages_history) == len(rollout.messages) == 2
    assert again.action_taken["tool_calls"] == [CALL]


TEXT = {"type": "text", "text": "Look:"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:,"}}


def test_rollout_steps_read_text_parts_as_text_and_keep_other_parts():
    rollout = rollout_of(
        {"role": "user", "content": [TEXT, IMAGE]},
        {"role": "assistant", "content": [TEXT, {"type": "text", "text": "a cat"}]},
        {"role": "user", "content": [TEXT]},
        {"role": "assistant", "content": [TEXT, IMAGE]},
        {"role": "user", "content": []},
        {"role": "assistant", "content": []},
    )
    contents = [action.content for action, _ in rollout.steps]
    assert contents == ["Look:\na cat", [TEXT, IMAGE], ""]
    assert json.loads(str(rollout.steps[1][0])) == [TEXT, IMAGE]
    steps = rollout.to_step_data()
    assert [step.observation_data for step in steps] == [[TEXT, IMAGE], "Look:", ""]
    assert [step.raw_policy_output for step in steps] == ["Look:\na cat", "Look:", ""]


def test_rollout_turn_without_a_text_is_refused_by_a_rubric_that_reads_text():
    rollout = rollout_of({"role": "assistant", "content": [IMAGE]})
    with pytest.raises(MissingInputError, match=r"'content' has no text part"):
        RegexMatch("Look")(*rollout.steps[0])
    with_text = rollout_of({"role": "assistant", "content": [TEXT, IMAGE]})
    assert RegexMatch("Look")(*with_text.steps[0]) == 1.0


@given(
    st.lists(
        st.tuples(st.sampled_from(["system", "user", "assistant", "tool"]), st.text(max_size=5)),
        max_size=6,
    ),
    st.text(max_size=5),
)
def test_rollout_steps_cut_the_conversation_where_the_next_turn_begins(before, last):
    given = [*before, ("assistant", last)]
    rollout = rollout_of(*({"role": role, "content": text} for role, text in given))
    steps = rollout.to_step_data()
    turns = [place for place, (role, _) in enumerate(given) if role == "assistant"]
    assert [step.system_step_index for step in steps] == list(range(len(turns)))
    assert [step.is_done for step in steps] == [False] * (len(turns) - 1) + [True]
    assert [len(step.resulting_messages_history) for step in steps] == [*turns[1:], len(given)]
    assert [step.raw_policy_output for step in steps] == [given[place][1] for place in turns]
    assert [action.history for action, _ in rollout.steps] == [
        rollout.messages[:place] for place in turns
    ]
