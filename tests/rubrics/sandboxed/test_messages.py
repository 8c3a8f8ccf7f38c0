"""What is sent, and what comes back: also from a worker that lies."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon.errors import InvalidArgumentError
from guerdon.rubrics.sandboxed import messages as wire
from guerdon.rubrics.sandboxed.messages import (
    MAX_DEPTH,
    VERSION,
    check_messages,
    read_call,
    read_reply,
    write_call,
    write_refusal,
    write_reply,
)
from guerdon.types import EvaluateResult, Message, StepOutput
from guerdon.types.message import read_messages

ANY_TEXT = st.text(st.characters(), max_size=6)  # lone surrogates among them
KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
MESSAGES = st.lists(
    st.builds(
        lambda role, content, extra: Message(role=role, content=content, **extra),
        st.sampled_from(["user", "assistant", "tool"]),
        ANY_TEXT | st.none() | st.lists(st.dictionaries(KEYS, JSON, max_size=2), max_size=2),
        st.dictionaries(st.sampled_from(["step_id", "cache"]), JSON, max_size=2),
    ),
    max_size=3,
)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
RESULTS = st.builds(
    EvaluateResult,
    score=FINITE,
    reason=st.none() | ANY_TEXT,
    metrics=st.dictionaries(KEYS, JSON, max_size=2),
    step_outputs=st.none()
    | st.lists(st.builds(StepOutput, step_index=st.integers(0, 9), base_reward=FINITE)),
)


@settings(max_examples=60)
@given(st.lists(MESSAGES, max_size=2), JSON, st.dictionaries(KEYS, JSON, max_size=2))
def test_read_call_returns_what_was_written(rollouts, ground_truth, others):
    call = read_call(write_call(rollouts, ground_truth, others))
    assert [[each.to_openai() for each in one] for one in call.rollouts] == [
        [each.to_openai() for each in one] for one in rollouts
    ]
    assert (call.ground_truth, call.others) == (ground_truth, others)


@settings(max_examples=60)
@given(st.lists(RESULTS, max_size=3))
def test_read_reply_returns_what_was_written(results):
    assert read_reply(write_reply(results), len(results)) == results


@pytest.mark.parametrize("others", [{"\ud800": 1}, {"a\udfff": None}])
def test_write_call_refuses_a_name_that_utf8_cannot_encode(others):
    with pytest.raises(InvalidArgumentError, match=r"the name .* can't be encoded as UTF-8"):
        write_call([], None, others)


def test_write_reply_refuses_a_metric_name_that_utf8_cannot_encode():
    [result] = read_reply(write_reply([EvaluateResult(score=1, metrics={"\ud800": 2})]), 1)
    assert not result.is_score_valid
    assert "has the key" in result.error
    assert "which can't be encoded as UTF-8" in result.error


def test_read_call_returns_tuples_as_lists():
    call = read_call(write_call([], (1, (2,)), {"most": math.inf, "none": math.nan}))
    assert call.ground_truth == [1, [2]]
    assert call.others["most"] == math.inf
    assert math.isnan(call.others["none"])


def test_read_reply_returns_nan_metrics():
    [result] = read_reply(write_reply([EvaluateResult(score=1, metrics={"a": math.nan})]), 1)
    assert math.isnan(result.metrics["a"])


def test_read_call_accepts_the_maximum_depth():
    value = 0
    for _ in range(MAX_DEPTH):
        value = [value]
    assert read_call(write_call([], value, {})).ground_truth == value
    [result] = read_reply(write_reply([EvaluateResult(score=1, metrics={"a": value[0]})]), 1)
    assert result.metrics["a"] == value[0]


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ({"content": [{"type": "image", "data": b"1"}]}, "m[1].content[0]['data'] is b'1' (bytes)"),
        ({"content": "", "cache": {1}}, "m[1]['cache'] is {1} (set)"),
        ({"tool_calls": [{"id": {1: 2}}]}, "m[1].tool_calls[0]['id'] has the key 1 (int)"),
    ],
    ids=["part", "extra", "call"],
)
def test_check_messages_names_what_json_cannot_represent(field, expected):
    messages = read_messages([{"role": "user", "content": "a"}, {"role": "assistant", **field}])
    with pytest.raises(InvalidArgumentError) as caught:
        check_messages(messages, "m")
    assert str(caught.value).startswith(expected)


def test_write_call_refuses_a_message_without_validation():
    odd = Message.model_construct({"role", "content"}, role="user", content=3j)
    with pytest.raises(InvalidArgumentError, match=r"^m\[0\].content is 3j \(complex\)"):
        check_messages([odd], "m")
    odd = Message.model_construct({"role", "content"}, role=object(), content="")
    with pytest.raises(InvalidArgumentError, match=r"the messages can't be sent to a sandbox"):
        write_call([[odd]])


def test_read_call_returns_lone_surrogates():
    messages = [Message(role="user", content="a\ud800b", step_id="\udfff")]
    call = read_call(write_call([messages], {"\ud800": "\udc00"}))
    assert call.rollouts == [messages]
    assert call.ground_truth == {"\ud800": "\udc00"}


# What comes back may be anything


def reply(**fields):
    return json.dumps({"version": VERSION, "results": [{"score": 1.0}], **fields}).encode()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "EOF while parsing"),
        (reply()[:-9], "EOF while parsing"),
        (b"[]", "should be an object"),
        (b"\xff\xfe", "Invalid JSON"),
        (b"[" * 100_000, "recursion limit exceeded"),
        (b'"\\ud800' + b"[" * 100_000, "answer is not JSON"),
        (b'["\\ud800", ' + b"[" * 100_000, "answer is not JSON"),
        (reply(version="guerdon-call/2"), "version is 'guerdon-call/2'; this guerdon uses 'gue"),
        (b'{"results": []}', "version: Field required"),
        (reply(results=[]), "has 0 results for 1 rollouts"),
        (reply(results=[{"score": 1.0}] * 2), "has 2 results for 1 rollouts"),
        (reply(results={"score": 1.0}), "results: Input should be a valid"),
        (
            reply(results=[{"score": "1.0"}]),
            "results.0.score: a score is a finite float, not '1.0'",
        ),
        (reply(results=[{"score": math.nan}]), "score is a finite float, not nan"),
        (reply(results=[{"score": "1"}]), "score is a finite float, not '1'"),
        (
            reply(results=[{"score": None, "is_score_valid": True}]),
            "a valid result requires a score",
        ),
        (reply(results=[{"score": 1.0, "is_score_valid": "yes"}]), "is_score_valid: Input should"),
        (reply(results=[{"score": 1.0, "more": 2}]), "results.0.more: Extra inputs"),
        (reply(more=1), "more: Extra inputs"),
        (reply(results=[{"score": 1.0, "reason": 4}]), "results.0.reason: Input should be"),
        (reply(results=[], refused="no"), "it refused the call: no"),
    ],
    ids=lambda value: None if isinstance(value, bytes) else value[:25].replace(" ", "-"),
)
def test_read_reply_refuses_an_invalid_answer(data, expected):
    with pytest.raises(InvalidArgumentError) as caught:
        read_reply(data, 1)
    assert expected in str(caught.value)
    assert len(str(caught.value)) < 300


@given(st.binary(max_size=60))
def test_read_reply_survives_arbitrary_bytes(data):
    with pytest.raises(InvalidArgumentError):
        read_reply(data, 1)


def test_read_reply_does_not_parse_a_long_answer(monkeypatch):
    monkeypatch.setattr(wire, "MAX_REPLY", 10)
    with pytest.raises(InvalidArgumentError, match=r"has 58 bytes; at most 10 are read"):
        read_reply(reply(), 1)


@pytest.mark.parametrize("version", ["guerdon-call/2", 1, None])
def test_read_call_names_both_versions(version):
    job = json.dumps({"version": version, "rollouts": []}).encode()
    with pytest.raises(InvalidArgumentError) as caught:
        read_call(job)
    assert f"its version is {version!r}; this guerdon uses {VERSION!r}" in str(caught.value)


def test_read_reply_raises_the_reason_of_a_refusal():
    with pytest.raises(InvalidArgumentError, match="it refused the call: no such luck"):
        read_reply(write_refusal("no such luck"), 1)


# Results that can't be sent


def test_write_reply_keeps_results_beside_an_invalid_one():
    odd = EvaluateResult(score=1, metrics={"found": {"tags": {3}}})
    step = StepOutput(step_index=0, base_reward=1.0, metrics={"at": b"1"})
    results = [odd, EvaluateResult(score=0.5), EvaluateResult(score=1, step_outputs=[step])]
    first, second, third = read_reply(write_reply(results), 3)
    assert first.error == (
        "RewardFunctionError: metrics['found']['tags'] is {3} (set); "
        "a result contains what JSON can represent"
    )
    assert (first.score, first.is_score_valid, second.score) == (None, False, 0.5)
    assert "step_outputs[0].metrics['at'] is b'1' (bytes)" in third.error


def test_write_reply_refuses_a_result_without_validation():
    odd = EvaluateResult.model_construct(score=1.0, reason=object(), metrics={})
    first, second = read_reply(write_reply([odd, EvaluateResult(score=0.5)]), 2)
    assert first.error.startswith("RewardFunctionError: the result can't be written as JSON")
    assert second.score == 0.5


def test_write_reply_keeps_results_beside_a_long_one(monkeypatch):
    monkeypatch.setattr(wire, "MAX_REPLY", 64_000)
    long = EvaluateResult(score=1, reason="x" * 100_000)
    first, second = read_reply(write_reply([long, EvaluateResult(score=0.5)]), 2)
    assert "the answer is too long: 100," in first.error
    assert "of at most 64,000" in first.error
    assert second.score == 0.5


def test_write_reply_refuses_results_that_are_too_long_together(monkeypatch):
    monkeypatch.setattr(wire, "MAX_REPLY", 64_000)
    many = [EvaluateResult(score=1, reason="x" * 500)] * 200
    results = read_reply(write_reply(many), 200)
    assert {result.is_score_valid for result in results} == {False}
