"""Rows as other libraries write them: their conversation and their ground truth."""

import pytest

from guerdon import Rollout
from guerdon.errors import RolloutError
from guerdon.types.columns import texts_of

USER = {"role": "user", "content": "6 × 7?"}
ANSWER = {"role": "assistant", "content": "42"}


class Array(list):
    """An array of numpy, as pandas has in its cells."""

    def tolist(self):
        return list(self)


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "6 × 7?", "completion": "42"},
        {"prompt": "6 × 7?", "response": "42"},
        {"question": "6 × 7?", "response": "42"},
        {"query": "6 × 7?", "response": "42"},
        {"input": "6 × 7?", "output": "42"},
        {"prompt": [USER], "completion": [ANSWER]},
        {"prompt": [USER], "completion": "42"},
        {"prompt": "6 × 7?", "completion": [ANSWER]},
        {"prompt": [USER], "completion": ANSWER},
        {"prompt": Array([USER]), "completion": Array([ANSWER])},
        {"messages": Array([USER, ANSWER])},
        {"messages": None, "prompt": "6 × 7?", "completion": "42", "response": None},
        {"messages": [USER, ANSWER], "prompt": "another", "completion": "a reference"},
        {"conversations": [{"from": "human", "value": "6 × 7?"}, {"from": "gpt", "value": "42"}]},
        {"conversations": [USER, ANSWER]},
        {"conversations": [USER, {"role": "assistant", "value": "42"}]},
    ],
)
def test_rollout_from_row_reads_the_conversation_of_other_columns(row):
    rollout = Rollout.from_row({**row, "answer": "42"}, line=7)
    assert [(each.role, each.text) for each in rollout.messages] == [
        ("user", "6 × 7?"),
        ("assistant", "42"),
    ]
    assert (rollout.id, rollout.columns["answer"], len(rollout.steps)) == (7, "42", 1)


def test_rollout_from_row_names_the_keys_of_an_answer_without_content():
    for answer in {"role": "assistant", "value": "42"}, {"role": "assistant", "text": "42"}:
        keys = ", ".join(answer)
        with pytest.raises(RolloutError, match=rf"messages\[1\] lacks `content`; it has {keys}"):
            Rollout.from_row({"messages": [USER, answer]})
    for field in {"content": None}, {"refusal": "No."}, {"reasoning_content": "Hm"}:
        Rollout.from_row({"messages": [USER, {"role": "assistant", **field}]})


def test_rollout_from_row_reads_a_completion_without_a_prompt():
    rollout = Rollout.from_row({"completion": ""})
    assert [(each.role, each.text) for each in rollout.messages] == [("assistant", "")]


def test_rollout_from_row_counts_the_turns_of_a_prompt_as_examples():
    row = {"prompt": [USER, ANSWER, USER], "completion": [ANSWER, USER, ANSWER]}
    assert [action.turn for action, _ in Rollout.from_row(row).steps] == [1, 2]
    assert Rollout.from_row({**row, "first_turn": 2}).first_turn == 2


def test_rollout_from_row_reads_the_roles_of_sharegpt():
    turns = [
        {"from": "human", "value": "Weather?"},
        {"from": "function_call", "value": "weather()"},
        {"from": "observation", "value": "sunny"},
        {"from": "gpt", "value": "Sunny.", "weight": 1},
    ]
    rollout = Rollout.from_row({"system": "Be brief.", "conversations": turns})
    roles = [message.role for message in rollout.messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant"]
    assert rollout.messages[-1]["weight"] == 1


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": 1, "text": "x"}, "`prompt` and `completion` .* its columns are id, text$"),
        ({"prompt": "6 × 7?"}, "its columns are prompt$"),
        ({"prompt": "a", "completion": 42}, "`completion` must be a text or messages, got 42"),
        ({"prompt": 3, "completion": "a"}, "`prompt` must be a text or messages, got 3"),
        ({"prompt": "a", "completion": [USER]}, "no assistant turn to score"),
        ({"prompt": "a", "completions": ["b", "c"]}, "its columns are prompt, completions$"),
        ({"conversations": [{"from": "bot", "value": "a"}]}, "`from` must be one of .* got 'bot'"),
        ({"conversations": [{"from": "gpt", "content": ""}]}, r"conversations\[0\] has no `value`"),
        ({"conversations": [{"from": "human", "value": "a"}]}, "no assistant turn to score"),
        ({"conversations": 3}, "`conversations` must be a text or messages"),
    ],
)
def test_rollout_from_row_names_the_columns_that_are_there(row, message):
    with pytest.raises(RolloutError, match=message):
        Rollout.from_row(row)


def test_rollout_from_row_takes_the_ground_truth_from_a_column():
    row = {"messages": [USER, ANSWER], "answer": "42", "reward_model": {"ground_truth": "43"}}

    def truth(column):
        return Rollout.from_row(row, ground_truth=column).columns["ground_truth"]

    assert (truth("answer"), truth("reward_model.ground_truth")) == ("42", "43")
    assert "ground_truth" not in row
    for name in ("anser", "reward_model.truth", "answer.x"):
        with pytest.raises(RolloutError, match=f"no column '{name}'; the columns are messages, an"):
            truth(name)


@pytest.mark.parametrize(
    ("row", "texts"),
    [
        ({"prompt": "a", "completion": "b"}, ("a", "b")),
        ({"completion": "b"}, ("", "b")),
        ({"prompt": [USER], "completion": "b"}, None),
        ({"prompt": "a", "completion": [ANSWER]}, None),
        ({"messages": [USER, ANSWER]}, None),
    ],
)
def test_texts_of(row, texts):
    assert texts_of(row) == texts
