"""What environments show, as one result and as messages."""

from dataclasses import dataclass

import numpy as np
import pytest

from guerdon import Observation, StepResult
from guerdon.errors import InvalidObservationError
from guerdon.rollouts import observation_text
from guerdon.rollouts.playing.adapters import read_result
from guerdon.rollouts.playing.observations import answer_messages, content_of, first_messages
from guerdon.types import GenericObservation

CALL = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}

IMAGE = {"type": "image"}


class Board(Observation):
    observation: str = "a field of that name"


@dataclass
class Result:
    observation: object
    reward: float | None = None
    done: bool = False


# Results


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        pytest.param(
            Board(done=True, reward=0.5, metadata={"k": 1}),
            (0.5, True, {"k": 1}),
            id="observation",
        ),
        pytest.param(StepResult({"a": 1}, 0.5, True, {"k": 1}), (0.5, True, {"k": 1}), id="result"),
        pytest.param(
            Result({"metadata": {"k": 1}}, 1), (1.0, False, {"k": 1}), id="metadata within"
        ),
        pytest.param(Result({}, np.float32(0.5)), (0.5, False, {}), id="array's number"),
        pytest.param({"done": np.True_, "reward": False}, (0.0, True, {}), id="dict"),
        pytest.param(
            {"observation": {"a": 1}, "reward": None, "done": False}, (None, False, {}), id="wire"
        ),
    ],
)
def test_read_result_accepts_answers_of_every_kind(answer, result):
    read = read_result(answer, "step")
    assert (read.reward, read.done, read.metadata) == result


def test_read_result_keeps_a_field_called_observation():
    board = Board()
    assert read_result(board, "reset").observation is board
    dict_board = {"observation": "north", "exits": 2, "done": False}
    assert read_result(dict_board, "step").observation is dict_board


def test_read_result_accepts_text_as_observation():
    assert read_result("begin", "reset").observation == "begin"


@pytest.mark.parametrize("answer", [None, StepResult(None), {"done": "yes"}, {"done": None}])
def test_read_result_rejects_what_is_not_an_observation(answer):
    with pytest.raises(InvalidObservationError, match="step must return"):
        read_result(answer, "step")


# Messages


@pytest.mark.parametrize(
    ("observation", "text"),
    [
        pytest.param("plain", "plain", id="text"),
        pytest.param({"message": "m", "text": "t"}, "m", id="message first"),
        pytest.param({"message": "", "text": "t", "prompt": "p"}, "t", id="not an empty one"),
        pytest.param({"content": "c", "reward": 1}, "c", id="content"),
        pytest.param({"messages": ["a", "b"], "text": "t"}, "a\nb", id="texts"),
        pytest.param(
            {"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]},
            "a\nb",
            id="messages",
        ),
        pytest.param({"content": [{"type": "text", "text": "t"}]}, "t", id="text parts"),
        pytest.param({"content": [IMAGE]}, '{"content": [{"type": "image"}]}', id="other parts"),
        pytest.param(
            {"messages": [{"role": "user", "content": [IMAGE]}]},
            '{"messages": [{"role": "user", "content": [{"type": "image"}]}]}',
            id="messages with other parts",
        ),
        pytest.param({"text": 5, "done": True, "reward": 1}, '{"text": 5}', id="no text"),
        pytest.param(GenericObservation(a="ö", metadata={"b": 1}), '{"a": "ö"}', id="model"),
        pytest.param({"messages": [], "a": 1}, '{"messages": [], "a": 1}', id="no messages"),
    ],
)
def test_answer_messages_use_the_text_of_an_observation_or_its_json(observation, text):
    view = content_of(observation)
    [message] = answer_messages(view, [])
    assert (message.role, message.content) == ("user", text)
    answers = answer_messages(view, [CALL, {**CALL, "id": "b"}])
    assert [(each.role, each.tool_call_id, each.text) for each in answers] == [
        ("tool", "a", text),
        ("tool", "b", text),
    ]


def test_first_messages_begin_with_the_messages_of_the_environment():
    given = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "?"}]
    assert [each.to_openai() for each in first_messages({"messages": given})] == given
    assert first_messages("begin")[0].to_openai() == {"role": "user", "content": "begin"}


@pytest.mark.parametrize(
    "observation",
    [
        {"text": "7", "done": True, "reward": 1.0},
        {"messages": [{"role": "user", "content": "a"}, {"role": "tool", "content": "b"}]},
        {"messages": ["a", "b"], "text": "c"},
        {"text": "", "board": (1, 2), "metadata": {"k": 1}},
        Board(done=True, reward=0.5),
        "plain",
        3,
    ],
    ids=repr,
)
def test_observation_text_is_what_the_worker_shows(observation):
    [shown] = answer_messages(content_of(observation), [CALL])
    assert observation_text(observation) == shown.text
