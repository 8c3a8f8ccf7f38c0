"""read_openenv_trace, to_trace_entries, to_training_trace: traces of model calls as rollouts."""

import json

import pytest
from hypothesis import given

from guerdon.errors import InvalidArgumentError, RolloutError
from guerdon.rollouts import read_openenv_trace, to_trace_entries, to_training_trace
from guerdon.rollouts.formats.openenv_trace import trace_rows
from guerdon.types import Rollout
from tests.rollouts.formats.strategies import rows

USER = {"role": "user", "content": "Where is the key?"}
LOOKS = {
    "role": "assistant", "content": "",
    "tool_calls": [{"id": "c1", "type": "function",
                    "function": {"name": "look", "arguments": '{"at": "door"}'}}],
}  # fmt: skip
SEES = {"role": "tool", "tool_call_id": "c1", "content": "a mat"}
ANSWERS = {"role": "assistant", "content": "Under the mat."}
TOOLS = [{"type": "function", "function": {"name": "look"}}]
CALLS = [([USER], LOOKS, [1, 2], [7, 8]), ([USER, LOOKS, SEES], ANSWERS, [1, 2, 7, 8, 3], [9])]


def entry(messages, answer, prompt, sampled, number=0, **fields):
    return {
        "request": {"messages": messages, "tools": TOOLS},
        "response": {"choices": [{"message": answer, "finish_reason": "stop"}]},
        "prompt_token_ids": prompt,
        "completion_token_ids": sampled,
        "per_token_logps": [-0.5] * len(sampled),
        "loss_mask": [0] * len(prompt) + [1] * len(sampled),
        "metadata": {"node_id": f"n{number}", "model": "tiny"},
    } | fields


def entries(**fields):
    made = [entry(*call, number, **fields) for number, call in enumerate(CALLS)]
    return json.loads(json.dumps(made))


def training_trace():
    turns = [{"node_id": each["metadata"]["node_id"], **each} for each in entries()]
    return {"schema_version": 1, "turns": turns}


# Reading


def test_read_openenv_trace_makes_one_conversation_of_the_calls():
    [rollout] = read_openenv_trace(entries())
    assert [message.to_openai() for message in rollout.messages] == [USER, LOOKS, SEES, ANSWERS]
    assert rollout.columns["tools"] == TOOLS
    assert rollout.columns["call_metadata"] == [
        {"node_id": f"n{number}", "model": "tiny", "finish_reason": "stop"} for number in range(2)
    ]


def test_read_openenv_trace_keeps_token_ids_logprobs_and_masks_in_the_steps():
    [rollout] = read_openenv_trace(entries())
    steps = rollout.to_step_data()
    assert [step.policy_logprobs for step in steps] == [[-0.5, -0.5], [-0.5]]
    assert [step.step_info["completion_token_ids"] for step in steps] == [[7, 8], [9]]
    assert [step.step_info["prompt_token_ids"] for step in steps] == [[1, 2], [1, 2, 7, 8, 3]]
    assert [step.step_info["loss_mask"] for step in steps] == [[0, 0, 1, 1], [0] * 5 + [1]]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda: training_trace(),
        lambda: {"session_id": "s", "entries": entries()},
        lambda: {"schema_version": 1, "trace_entries": entries(), "turns": [{"turn": 0}]},
    ],
    ids=["TrainingTrace", "capture", "Harbor's contract"],
)
def test_read_openenv_trace_accepts_each_document(wrap):
    [found], [expected] = read_openenv_trace(wrap()), read_openenv_trace(entries())
    assert found.messages == expected.messages
    assert found.columns["turn_tokens"] == expected.columns["turn_tokens"]


def test_read_openenv_trace_keeps_the_columns_of_harbors_contract():
    contract = {"session_id": "s", "task_id": "t", "reward": 0.5, "trace_entries": entries()}
    [rollout] = read_openenv_trace(contract)
    assert (rollout.id, rollout.group, rollout.columns["reward"]) == ("s", "t", 0.5)


def test_read_openenv_trace_has_no_reward_for_an_unscored_rollout():
    for unscored in (entries(), entries(reward=None)):
        assert read_openenv_trace(unscored)[0].columns["reward"] is None
    assert read_openenv_trace(entries(reward=0.0))[0].columns["reward"] == 0.0


def test_read_openenv_trace_takes_the_reward_that_one_entry_has():
    given = entries()
    given[1]["reward"] = 0.25
    assert read_openenv_trace(given)[0].columns["reward"] == 0.25


def test_read_openenv_trace_makes_a_rollout_of_each_session_of_the_harness():
    given = [*entries(), *entries()]
    for one, name in zip(given, "aabb", strict=True):
        one["metadata"]["harness_session_id"] = name
    given = [given[place] for place in (0, 2, 3, 1)]
    assert [(each.id, len(each.steps)) for each in read_openenv_trace(given)] == [
        ("a", 2),
        ("b", 2),
    ]


def test_read_openenv_trace_turns_before_the_first_call_are_examples():
    [rollout] = read_openenv_trace(entries()[1:])
    assert (rollout.first_turn, len(rollout.steps)) == (1, 1)
    assert len(rollout.columns["turn_tokens"]) == 1


def test_read_openenv_trace_a_turn_without_an_entry_has_no_tokens():
    again = {"role": "user", "content": "Sure?"}
    last = entry([USER, LOOKS, SEES, ANSWERS, again], {"content": "Yes."}, [1], [2], 2)
    [rollout] = read_openenv_trace([entries()[0], last])
    tokens = [step.step_info.get("completion_token_ids") for step in rollout.to_step_data()]
    assert tokens == [[7, 8], None, [2]]
    assert [len(to_trace_entries(rollout)), rollout.columns["call_metadata"][1]] == [3, None]


def test_read_openenv_trace_accepts_other_forms_of_the_same_message():
    given = entries()
    given[0]["response"]["choices"][0]["message"] |= {
        "content": None, "reasoning_content": "Hm.",
        "tool_calls": [{"id": "call_0", "function": {"name": "look", "arguments": {"at": "door"}}}],
    }  # fmt: skip
    given[1]["request"]["messages"][0]["content"] = [{"type": "text", "text": USER["content"]}]
    [rollout] = read_openenv_trace(given)
    assert rollout.messages[1].reasoning_content == "Hm."
    assert rollout.messages[1].tool_calls == LOOKS["tool_calls"]


@pytest.mark.parametrize(
    ("messages", "match"),
    [
        ([{**USER, "content": "?"}, LOOKS, SEES], r"entry 0: messages\[0\] must be .*'Where"),
        ([USER, ANSWERS, SEES], r"messages\[1\] must be \('assistant', '', \[\('look'"),
        ([USER], r"messages\[1\] must be .*, got no message"),
    ],
    ids=["another question", "another answer", "a retry"],
)
def test_read_openenv_trace_names_the_message_at_which_the_calls_diverge(messages, match):
    given = entries()
    given[1]["request"]["messages"] = messages
    with pytest.raises(RolloutError, match=r"entry 1: its request doesn't continue.*" + match):
        read_openenv_trace(given)


def broken(place, **fields):
    given = entries()
    given[place] |= fields
    return given


@pytest.mark.parametrize(
    ("document", "match"),
    [
        ("trace", "a trace must be a list of entries, or an object"),
        ({"turns": {}}, "a trace must be a list of entries, or an object"),
        ([], "at least one entry"),
        ({"schema_version": 2, "turns": []}, "schema_version must be 1, got 2"),
        ([7], "entry 0: Input should be a valid dict"),
        (broken(1, request=None), "entry 1: request: "),
        (broken(1, request={"messages": [{"role": "pilot"}]}), r"entry 1: request.messages\[0\]"),
        (broken(0, response={"choices": []}), "entry 0: response.choices: List should have at"),
        (broken(0, response={"choices": [{"message": USER}]}), "must be of the assistant"),
        (broken(1, completion_token_ids=[1, -1]), "entry 1: completion_token_ids.1: "),
        (broken(1, completion_token_ids=[True]), "entry 1: completion_token_ids.0: "),
        (broken(1, completion_token_ids=[1, 2]), "entry 1: .*1 log-probabilities for 2 sampled"),
        (broken(1, per_token_logps=[0.5]), "entry 1: logprobs.0: .* less than or equal to 0"),
        (broken(1, per_token_logps=[float("nan")]), "entry 1: logprobs.0: .* finite"),
        (broken(1, loss_mask=[0, 1]), "must have 5 [+] 1 entries, for prompt and completion"),
        (broken(1, loss_mask=[1] * 6), "must be 0 in the prompt, got 1 at 0"),
        (broken(1, reward="1"), "entry 1: reward: Input should be a valid number"),
        (broken(1, reward=float("nan")), "entry 1: reward: .* finite"),
        (broken(0, metadata={"guerdon": {"columns": 3}}), r"entry 0: metadata.guerdon: columns: "),
    ],
)  # fmt: skip
def test_read_openenv_trace_names_what_is_invalid(document, match):
    with pytest.raises(RolloutError, match=match):
        read_openenv_trace(document)


def test_read_openenv_trace_rejects_different_rewards_in_one_rollout():
    given = entries(reward=1.0)
    given[1]["reward"] = 0.0
    with pytest.raises(RolloutError, match=r"entry 1: `reward` .* 1.0 in entry 0, got 0.0"):
        read_openenv_trace(given)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda turn: turn.pop("loss_mask"), "entry 1: loss_mask: Field required"),
        (lambda turn: turn.pop("node_id"), "entry 1: node_id: Field required"),
        (lambda turn: turn.update(node_id="n0"), "entry 1: `node_id` 'n0' is there twice"),
        (lambda turn: turn.update(prompt_token_ids=[]), "entry 1: prompt_token_ids: "),
    ],
)
def test_read_openenv_trace_requires_all_fields_of_a_training_turn(change, match):
    trace = training_trace()
    change(trace["turns"][1])
    with pytest.raises(RolloutError, match=match):
        read_openenv_trace(trace)


def test_trace_rows_reads_lists_of_documents_and_reports_an_invalid_one():
    documents = [{"session_id": "s", "entries": []}, training_trace(), entries()]
    first, *others = trace_rows(documents)
    assert first == {
        "id": "s", "ended": "invalid", "error": "a trace must have at least one entry",
    }  # fmt: skip
    assert [len(row["messages"]) for row in others] == [4, 4]


# Writing


@given(rows())
def test_to_trace_entries_and_read_openenv_trace_are_inverse(row):
    written = json.loads(json.dumps(to_trace_entries(Rollout.from_row(row))))
    [rollout] = read_openenv_trace(written)
    found = dict(rollout.columns)
    metadata = found.pop("call_metadata")
    assert found == row
    assert [each["node_id"] for each in metadata] == [
        f"turn-{action.turn}" for action, _ in rollout.steps
    ]
    assert to_trace_entries(rollout) == written


@given(rows(whole=True))
def test_to_training_trace_and_read_openenv_trace_are_inverse(row):
    written = json.loads(json.dumps(to_training_trace(Rollout.from_row(row))))
    [rollout] = read_openenv_trace(written)
    assert rollout.columns["reward"] == row["reward"]
    assert {name: rollout.columns[name] for name in row} == row
    assert to_training_trace(rollout) == written


def test_to_trace_entries_repeats_the_reward_in_each_entry():
    for reward in (0.5, 0.0, None):
        [rollout] = read_openenv_trace(entries(reward=reward))
        assert [each["reward"] for each in to_trace_entries(rollout)] == [reward, reward]


def test_to_trace_entries_writes_what_was_read():
    [rollout] = read_openenv_trace(entries(reward=None))
    written = to_trace_entries(rollout)
    for found, expected in zip(written, entries(reward=None), strict=True):
        for name in ("guerdon", "finish_reason"):
            found["metadata"].pop(name, None)
        assert found == expected


def test_to_training_trace_requires_the_tokens_of_each_turn():
    rollout = Rollout.from_row({"messages": [USER, ANSWERS]})
    with pytest.raises(InvalidArgumentError, match="turn 0 has no 'prompt_token_ids'"):
        to_training_trace(rollout)


@pytest.mark.parametrize("metadata", [[], [3], {"node_id": "a"}])
def test_to_trace_entries_requires_metadata_for_each_turn(metadata):
    rollout = Rollout.from_row({"messages": [USER, ANSWERS], "call_metadata": metadata})
    with pytest.raises(InvalidArgumentError, match="`call_metadata` must be a list with an object"):
        to_trace_entries(rollout)
