"""Parsing messages of clients and writing answers, for any input."""

import asyncio
import json
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon import Observation, State
from guerdon.envs import ServerLimits
from guerdon.envs.server.protocol import (
    ErrorCode,
    ProtocolError,
    error_frame,
    observation_json,
    parse_message,
    state_json,
)
from guerdon.envs.server.sessions import SessionManager
from guerdon.errors import InvalidObservationError
from tests.envs.server.worlds import SOON, Echo, Say, counted

CODES = {"INVALID_JSON", "UNKNOWN_TYPE", "VALIDATION_ERROR"}

texts = st.text(st.characters(codec="utf-8"), max_size=20)
numbers = st.one_of(
    st.integers(-10, 10),
    st.integers(),
    st.integers(min_value=10**30, max_value=10**60),
    st.floats(allow_nan=False, allow_infinity=False),
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=12,
)
kinds = st.one_of(st.sampled_from(["reset", "step", "state", "close", "mcp", "Reset", ""]), values)
resets = st.fixed_dictionaries(
    {}, optional={"seed": st.one_of(numbers, values), "episode_id": values, "self": values}
)
steps = st.fixed_dictionaries(
    {}, optional={"text": st.one_of(texts, values), "loud": values, "metadata": values}
)
calls = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.one_of(st.just("2.0"), values),
        "id": values,
        "method": st.one_of(st.sampled_from(["tools/list", "tools/call"]), values),
        "params": values,
    },
)
messages = st.one_of(
    values,
    st.fixed_dictionaries(
        {"type": kinds}, optional={"data": st.one_of(resets, steps, calls, values), "id": values}
    ),
)
json_texts = messages.map(json.dumps)
broken = st.builds(
    lambda text, cut, junk: text[:cut] + junk,
    json_texts,
    st.integers(0, 40),
    st.text(string.printable, max_size=5),
)


# Any message has one answer


def session_of(events):
    """Send events to a session, and return what it sent."""

    async def play():
        world = counted()
        manager = SessionManager(world, Say, ServerLimits())
        incoming, sent = iter([{"type": "websocket.connect"}, *events]), []

        async def receive():
            return next(incoming, {"type": "websocket.disconnect", "code": 1005})

        async def send(event):
            sent.append(event)

        async with asyncio.timeout(SOON):
            await manager({"type": "websocket"}, receive, send)
        assert not manager.sessions
        manager.close()
        assert world.made == world.closed == 1
        return sent

    sent = asyncio.run(play())
    assert sent.pop(0) == {"type": "websocket.accept"}
    return sent


def no_constant(name):
    raise AssertionError(f"{name} is no JSON")


def is_close(text):
    try:
        message = json.loads(text)
    except (ValueError, TypeError):
        return False
    return (
        isinstance(message, dict)
        and message.get("type") == "close"
        and set(message) <= {"type", "data"}
    )


@settings(max_examples=100)
@given(st.lists(st.one_of(json_texts, json_texts, broken, st.binary(max_size=9)), max_size=8))
def test_session_answers_each_message_once_or_closes(frames):
    events = [
        {"type": "websocket.receive", "text" if isinstance(each, str) else "bytes": each}
        for each in frames
    ]
    sent = session_of(events)
    answered = frames
    closing = [n for n, each in enumerate(frames) if is_close(each)]
    if closing:
        answered = frames[: closing[0]]
        last = sent.pop()
        assert (last["type"], last["code"]) == ("websocket.close", 1000)
    assert [event["type"] for event in sent] == ["websocket.send"] * len(answered)
    for event in sent:
        answer = json.loads(event["text"], parse_constant=no_constant)
        assert set(answer) == {"type", "data"}
        assert answer["type"] in ("observation", "state", "mcp", "error")
        if answer["type"] == "error":
            assert answer["data"]["code"] in CODES


@given(st.one_of(st.text(max_size=60), broken, json_texts, st.binary(max_size=60)))
def test_parse_message_returns_a_message_or_raises(text):
    problem = None
    try:
        request = parse_message(text)
    except ProtocolError as raised:
        problem = raised
    if problem is not None:
        assert problem.code in CODES
        assert problem.message
        json.loads(error_frame(problem))
    else:
        message = json.loads(text)
        assert request.type == message["type"]
        assert request.data == message.get("data")


# What is written

worlds = st.dictionaries(texts, values, max_size=4)


class Shown(Observation):
    text: str = ""
    anything: object = None


@given(texts, values, worlds, st.floats(allow_nan=False, allow_infinity=False), st.booleans())
def test_observation_json_round_trips(text, anything, metadata, reward, done):
    observation = Shown(text=text, anything=anything, metadata=metadata, reward=reward, done=done)
    sent = json.loads(observation_json(observation), parse_constant=no_constant)
    assert sent["reward"] == reward
    assert sent["done"] is done
    assert sent["observation"] == {"text": text, "anything": anything, "metadata": metadata}
    assert sent.get("metadata", {}) == metadata
    assert set(sent) <= {"observation", "reward", "done", "metadata"}


def test_observation_json_puts_reward_and_done_beside_the_observation():
    sent = json.loads(observation_json(Shown(reward=1, done=True, metadata={"reward": 5})))
    assert sent == {
        "observation": {"text": "", "anything": None, "metadata": {"reward": 5}},
        "reward": 1.0,
        "done": True,
        "metadata": {"reward": 5},
    }
    assert isinstance(sent["reward"], float)


def test_state_json_contains_all_fields():
    sent = json.loads(state_json(State(episode_id="e", step_count=2, level=3)))
    assert sent == {"episode_id": "e", "step_count": 2, "level": 3}


def test_observation_json_rejects_nan_by_name():
    with pytest.raises(InvalidObservationError, match=r"Shown has nan at anything\.a\[1\],"):
        observation_json(Shown(anything={"a": [0.0, float("nan")]}))
    with pytest.raises(InvalidObservationError, match="State has -inf at best"):
        state_json(State(best=float("-inf")))


def test_observation_json_rejects_deep_nesting():
    deep = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(InvalidObservationError):
        observation_json(Shown(anything=deep))


def test_observation_json_rejects_a_circle():
    loop = []
    loop.append(loop)
    with pytest.raises(InvalidObservationError, match="anything"):
        observation_json(Shown(anything=loop))


def test_error_frame_contains_code_and_message():
    text = error_frame(
        ProtocolError(ErrorCode.SESSION_ERROR, "gone \ud800", since={1, 2}.__class__)
    )
    data = json.loads(text)["data"]
    assert (data["code"], data["message"]) == ("SESSION_ERROR", "gone \ud800")


def test_echo_types():
    assert (Echo.action_type, Echo.state_type) == (Say, State)
