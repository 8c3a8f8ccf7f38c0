"""read_atif, to_atif: trajectories of Harbor's format as rollouts."""

import copy
import json

import pytest
from hypothesis import given

from guerdon.errors import InvalidArgumentError, RolloutError
from guerdon.rollouts import read_atif, to_atif
from guerdon.rollouts.formats.atif import atif_rows
from guerdon.types import Rollout
from tests.rollouts.formats.strategies import rows

TOOLS = [{"type": "function", "function": {"name": "look"}}]
DOCUMENT = {
    "schema_version": "ATIF-v1.7",
    "session_id": "run-1",
    "trajectory_id": "t-1",
    "agent": {"name": "seeker", "version": "2", "tool_definitions": TOOLS},
    "notes": "a try",
    "extra": {"host": "h"},
    "steps": [
        {"step_id": 1, "source": "system", "message": "Find it."},
        {"step_id": 2, "source": "user", "message": "The key?", "timestamp": "2030-01-01"},
        {"step_id": 3, "source": "agent", "message": "", "reasoning_content": "Hm.",
         "model_name": "tiny",
         "tool_calls": [{"tool_call_id": "c1", "function_name": "look",
                         "arguments": {"at": "door"}, "extra": {"cost": 1}}],
         "observation": {"results": [{"source_call_id": "c1", "content": "a mat"},
                                     {"content": "It rings."}]},
         "metrics": {"prompt_tokens": 2, "prompt_token_ids": [1, 2],
                     "completion_token_ids": [7, 8], "logprobs": [-0.5, -0.25]}},
        {"step_id": 4, "source": "agent", "message": "Under the mat.", "llm_call_count": 1},
    ],
}  # fmt: skip


def document():
    return copy.deepcopy(DOCUMENT)


def changed(number, **fields):
    given = document()
    given["steps"][number - 1] |= fields
    return given


# Reading


def test_read_atif_makes_a_message_of_each_step_and_result():
    rollout = read_atif(document())
    assert (rollout.id, [message.role for message in rollout.messages]) == (
        "t-1", ["system", "user", "assistant", "tool", "tool", "assistant"],
    )  # fmt: skip
    calls = rollout.messages[2]
    assert (calls.content, calls.reasoning_content) == ("", "Hm.")
    assert calls.tool_calls[0]["function"] == {"name": "look", "arguments": '{"at": "door"}'}
    assert [message.tool_call_id for message in rollout.messages[3:5]] == ["c1", None]


def test_read_atif_keeps_token_ids_and_logprobs_in_the_steps():
    first, second = read_atif(document()).to_step_data()
    assert (first.policy_logprobs, first.step_info["prompt_token_ids"]) == ([-0.5, -0.25], [1, 2])
    assert first.step_info["completion_token_ids"] == [7, 8]
    assert (second.policy_logprobs, second.step_info) == (None, {"assistant_turn_index": 1})


def test_read_atif_keeps_the_other_fields():
    rollout = read_atif(document())
    assert rollout.columns["tools"] == TOOLS
    assert rollout.columns["atif"] == {
        "schema_version": "ATIF-v1.7", "session_id": "run-1", "trajectory_id": "t-1",
        "agent": {"name": "seeker", "version": "2"}, "notes": "a try", "extra": {"host": "h"},
    }  # fmt: skip
    assert [message.get("atif") for message in rollout.messages] == [
        None, {"timestamp": "2030-01-01"},
        {"model_name": "tiny", "metrics": {"prompt_tokens": 2}}, None, None, {"llm_call_count": 1},
    ]  # fmt: skip


def test_read_atif_has_no_reward_for_an_unscored_rollout():
    assert read_atif(document()).columns["reward"] is None


def test_read_atif_reads_null_as_absent():
    given = changed(4, tool_calls=None, observation=None, metrics=None, extra=None)
    given |= {"trajectory_id": None, "session_id": None, "extra": None}
    rollout = read_atif(given)
    assert (rollout.id, "extra" in rollout.columns["atif"]) == (None, False)
    assert rollout.messages == read_atif(document()).messages


def test_read_atif_copied_agent_steps_are_examples():
    rollout = read_atif(changed(3, is_copied_context=True))
    assert (rollout.first_turn, len(rollout.steps)) == (1, 1)
    assert to_atif(rollout)["steps"][2]["is_copied_context"] is True


def test_read_atif_keeps_content_parts():
    parts = [{"type": "text", "text": "See:"},
             {"type": "image", "source": {"media_type": "image/png", "path": "a.png"}}]  # fmt: skip
    rollout = read_atif(changed(2, message=parts))
    assert rollout.messages[1].content == parts
    assert to_atif(rollout)["steps"][1]["message"] == parts


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (7, "the document: Input should be a valid dict"),
        ({"steps": []}, "agent: Field required"),
        (document() | {"steps": []}, "steps: List should have at least 1 item"),
        (document() | {"schema_version": "ATIF-v2.0"}, "schema_version: String should match"),
        (changed(4, step_id=5), "step_id 4: steps are numbered from 1, got 5"),
        (changed(4, step_id="4"), "step_id 4: step_id: Input should be a valid integer"),
        (changed(4, source="tool"), "step_id 4: source: .* got 'tool'"),
        (changed(4, message=None), "step_id 4: message"),
        (changed(2, tool_calls=[]), "step_id 2: `tool_calls` belongs to agent steps, not to"),
        (changed(4, tool_calls=[{"tool_call_id": "c2", "function_name": "f", "arguments": "{}"}]),
         "step_id 4: tool_calls.0.arguments: "),
        (changed(4, observation={"results": [{"source_call_id": "c1"}]}),
         r"step_id 4: observation.results.0.source_call_id must be a call of this step, \[\]"),
        (changed(3, metrics={"completion_token_ids": [1.5]}),
         "step_id 3: metrics: completion_token_ids.0: "),
        (changed(3, metrics={"completion_token_ids": [1], "logprobs": []}),
         "step_id 3: metrics: .*0 log-probabilities for 1 sampled"),
        (changed(4, is_copied_context=True), "step_id 4: an agent step with is_copied_context"),
    ],
)  # fmt: skip
def test_read_atif_names_the_step_that_is_invalid(given, match):
    with pytest.raises(RolloutError, match=match):
        read_atif(given)


def test_atif_rows_reads_a_list_of_documents_and_reports_an_invalid_one():
    first, second = atif_rows([changed(4, step_id=5), document()])
    assert (first["id"], first["ended"], "step_id 4: " in first["error"]) == (
        "t-1",
        "invalid",
        True,
    )
    assert second["id"] == "t-1"


# Writing


def test_to_atif_writes_what_was_read():
    written = to_atif(read_atif(document()))
    assert written["extra"].pop("guerdon") == {"id": "t-1", "reward": None}
    assert written == document()


@given(rows())
def test_to_atif_and_read_atif_are_inverse(row):
    written = json.loads(json.dumps(to_atif(Rollout.from_row(row))))
    rollout = read_atif(written)
    assert {name: each for name, each in rollout.columns.items() if name != "atif"} == row
    assert to_atif(rollout) == written


@given(rows())
def test_to_atif_uses_no_field_that_atif_does_not_have(row):
    written = to_atif(Rollout.from_row(row))
    assert set(written) <= {"schema_version", "agent", "trajectory_id", "steps", "extra"}
    known = {"step_id", "source", "message", "reasoning_content", "tool_calls", "observation",
             "metrics", "is_copied_context", "extra"}  # fmt: skip
    for number, step in enumerate(written["steps"], start=1):
        assert set(step) <= known
        assert step["step_id"] == number
        assert isinstance(step["message"], str | list)
        metrics = set(step.get("metrics", ()))
        assert metrics <= {"prompt_token_ids", "completion_token_ids", "logprobs", "extra"}
        for call in step.get("tool_calls", ()):
            assert set(call) == {"tool_call_id", "function_name", "arguments"}
            assert isinstance(call["arguments"], dict)
        for result in step.get("observation", {}).get("results", ()):
            assert set(result) <= {"source_call_id", "content", "extra"}


def test_to_atif_keeps_the_reward_in_extra():
    rollout = Rollout.from_row({"reward": 0.5, "messages": [{"role": "assistant", "content": "x"}]})
    assert to_atif(rollout)["extra"] == {"guerdon": {"reward": 0.5}}
    assert read_atif(to_atif(rollout)).columns["reward"] == 0.5


SAYS = {"role": "assistant", "content": "x"}


@pytest.mark.parametrize(
    ("messages", "match"),
    [
        ([{"role": "tool", "content": "", "tool_call_id": "c1"}, SAYS], r"messages\[0\] answers"),
        ([SAYS, {"role": "tool", "content": "", "tool_call_id": "c1"}],
         r"messages\[1\] answers the call 'c1', which the message before doesn't make"),
        ([{"role": "function", "content": ""}, SAYS], r"messages\[0\] answers the call None"),
        ([{**SAYS, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}],
         r"messages\[0\].tool_calls\[0\] must have an id and the name"),
    ],
)  # fmt: skip
def test_to_atif_rejects_messages_that_have_no_place(messages, match):
    with pytest.raises(InvalidArgumentError, match=match):
        to_atif(Rollout.from_row({"messages": messages}))
