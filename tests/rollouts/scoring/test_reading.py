"""read_lines, parse_line, read_rollouts: JSONL as people have it."""

import asyncio
import functools
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guerdon import NumericAnswer, reward_function
from guerdon.errors import InvalidArgumentError, RolloutError, RubricDefinitionError
from guerdon.rollouts import read_rollouts, score_rollouts
from guerdon.rollouts.scoring import reading
from guerdon.rollouts.scoring.reading import decode_line, parse_line, read_lines
from guerdon.types import Rollout

ROW = b'{"id": 1, "messages": [{"role": "assistant", "content": "x"}]}'
BOM = b"\xef\xbb\xbf"


def lines_of(data):
    return list(read_lines(io.BytesIO(data)))


# Lines


def test_read_lines_numbers_lines():
    assert lines_of(b"a\nb\nc\n") == [(1, b"a\n"), (2, b"b\n"), (3, b"c\n")]


def test_read_lines_of_an_empty_file_yields_nothing():
    assert lines_of(b"") == []


def test_read_lines_accepts_a_last_line_without_newline():
    assert lines_of(b"a\nb") == [(1, b"a\n"), (2, b"b")]


def test_read_lines_skips_and_counts_blank_lines():
    assert lines_of(b"\n  \na\n\t\r\n\nb\n \n") == [(3, b"a\n"), (6, b"b\n")]


def test_read_lines_splits_at_newlines_only():
    text = "a\u2028b\u0085c\x0bd\re\n".encode()
    assert lines_of(text) == [(1, text)]


def test_read_lines_cuts_off_a_line_that_is_too_long(monkeypatch):
    monkeypatch.setattr(reading, "MAX_LINE", 4)
    assert lines_of(b"abc\nabcdefghijklm\nxyz\n") == [(1, b"abc\n"), (2, b"abcde"), (3, b"xyz\n")]


@pytest.mark.parametrize("length", range(4, 20))
def test_read_lines_yields_the_line_after_a_long_one_whole(monkeypatch, length):
    monkeypatch.setattr(reading, "MAX_LINE", 4)
    assert lines_of(b"a" * length + b"\nxyz\n")[1:] == [(2, b"xyz\n")]
    assert len(lines_of(b"a" * length)) == 1


def test_read_lines_never_keeps_a_long_blank_line(monkeypatch):
    monkeypatch.setattr(reading, "MAX_LINE", 4)
    assert [len(line) <= 5 for _, line in lines_of(b" " * 1000 + b"\nxyz\n")] == [True, True]


# Rows


def test_parse_line_returns_a_rollout():
    assert parse_line(1, ROW + b"\n").id == 1


def test_parse_line_uses_the_line_number_as_id():
    assert parse_line(7, b'{"messages": [{"role": "assistant", "content": ""}]}\n').id == 7


@pytest.mark.parametrize("line", [ROW, ROW + b"\n", ROW + b"\r\n", b"  " + ROW + b"\t\n"])
def test_parse_line_ignores_surrounding_space(line):
    assert parse_line(2, line).id == 1


def test_parse_line_skips_a_byte_order_mark_in_the_first_line():
    assert parse_line(1, BOM + ROW).id == 1


def test_parse_line_rejects_a_byte_order_mark_elsewhere():
    with pytest.raises(RolloutError, match="the line is not valid JSON") as caught:
        parse_line(2, BOM + ROW)
    assert caught.value.line == 2


def test_parse_line_decodes_utf8():
    line = '{"id": "ß", "messages": [{"role": "assistant", "content": "四十二 🙂"}]}'.encode()
    rollout = parse_line(1, line)
    assert (rollout.id, rollout.steps[0][0].content) == ("ß", "四十二 🙂")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"not json",
        ROW + ROW,
        ROW[:-1],
        ROW.replace(b"1", b"NaN"),
        ROW.replace(b"1", b"Infinity"),
        ROW.replace(b"1", b"-Infinity"),
        ROW.replace(b"x", b"\xff\xfe"),
        ROW.replace(b'"x"', b"'x'"),
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"id": ' + b"9" * 10_000 + b"}",
        b"\x00",
    ],
)
def test_parse_line_rejects_invalid_json_with_its_line(line):
    with pytest.raises(RolloutError, match="the line is not valid JSON") as caught:
        parse_line(5, line)
    assert caught.value.line == 5


def test_parse_line_rejects_a_line_that_is_too_long(monkeypatch):
    monkeypatch.setattr(reading, "MAX_LINE", 10)
    with pytest.raises(RolloutError, match="the line has more than 10 bytes") as caught:
        parse_line(3, ROW)
    assert caught.value.line == 3


def test_parse_line_accepts_the_longest_line(monkeypatch):
    monkeypatch.setattr(reading, "MAX_LINE", len(ROW))
    assert [parse_line(*line).id for line in lines_of(ROW)] == [1]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=12,
)
ROLES = st.sampled_from(["assistant", "user", "tool", "robot"])
FIELDS = {
    "role": ROLES | JSON,
    "content": st.text(max_size=5) | JSON,
    "tool_calls": st.lists(st.dictionaries(st.text(max_size=5), JSON), max_size=2) | JSON,
    "name": JSON,
}
MESSAGES = st.lists(st.fixed_dictionaries({}, optional=FIELDS) | JSON, max_size=4) | JSON
ROWS = JSON | st.fixed_dictionaries({"messages": MESSAGES}, optional={"id": JSON, "group": JSON})


@given(row=ROWS, number=st.integers(1, 10**9))
def test_parse_line_of_any_json_returns_a_rollout_or_raises_with_its_line(row, number):
    rollout = error = None
    try:
        rollout = parse_line(number, json.dumps(row, allow_nan=False).encode())
    except RolloutError as raised:
        error = raised
    if error is not None:
        assert error.line == number
        assert str(error)
    else:
        assert isinstance(rollout, Rollout)
        assert len(rollout.steps) == sum(m["role"] == "assistant" for m in row["messages"])
        assert [m.to_openai() for m in rollout.messages] == row["messages"]


@given(line=st.binary(max_size=60))
def test_parse_line_of_any_bytes_returns_a_rollout_or_raises_with_its_line(line):
    with pytest.raises(RolloutError) as caught:
        parse_line(4, line)
    assert caught.value.line == 4


# read_rollouts


@pytest.mark.parametrize("kind", [bytes, bytes.decode])
def test_read_rollouts_reads_an_open_file(kind):
    data = [ROW + b"\n", b"\n", b'{"messages": [{"role": "assistant", "content": ""}]}\n']
    assert [rollout.id for rollout in read_rollouts(map(kind, data))] == [1, 3]


def test_read_rollouts_stops_at_a_broken_line_and_names_it():
    rollouts = read_rollouts([ROW, b"\n", b"{"])
    assert next(rollouts).id == 1
    with pytest.raises(RolloutError) as caught:
        next(rollouts)
    assert caught.value.line == 3


def test_read_rollouts_skips_a_byte_order_mark_in_text():
    assert [rollout.id for rollout in read_rollouts([(BOM + ROW).decode()])] == [1]


# Decoding lines


@pytest.mark.parametrize(
    ("line", "value"),
    [(b"3\n", 3), (b' {"a": [null]} \r\n', {"a": [None]}), (b"[]", []), (b'"\\ud800"', "\ud800")],
    ids=["number", "object", "list", "half"],
)
def test_decode_line_returns_any_json(line, value):
    assert decode_line(2, line) == value


@pytest.mark.parametrize(
    "line",
    [b"", b"{", b"\xff", b"NaN", b"{} {}", b"[" * 100_000, b"9" * 5000, BOM + b"{}"],
    ids=["empty", "broken", "bytes", "nan", "two", "deep", "huge", "mark"],
)
def test_decode_line_names_the_line_of_invalid_json(line):
    with pytest.raises(RolloutError, match="the line is not valid JSON") as caught:
        decode_line(7, line)
    assert caught.value.line == 7


def test_decode_line_skips_a_byte_order_mark_in_the_first_line_only():
    assert decode_line(1, BOM + b"{}") == {}


def test_decode_line_rejects_a_line_that_is_too_long(monkeypatch):
    monkeypatch.setattr(reading, "MAX_LINE", 4)
    assert decode_line(1, b"1234") == 1234
    with pytest.raises(RolloutError, match="more than 4 bytes"):
        decode_line(1, b"12345")


# Rows and arrays

PAIR = {"prompt": "6 × 7?", "completion": "A: 42", "answer": "42"}


class Dataset:
    """Rows as a `datasets.Dataset` yields them."""

    def __init__(self, *rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __iter__(self):
        yield from self.rows

    def __getitem__(self, key):
        return self.rows[key]


class DataFrame:
    def __init__(self, *rows):
        self.rows = rows

    def iterrows(self):
        return enumerate(self.rows)

    def to_dict(self, orient):
        return [dict(row) for row in self.rows] if orient == "records" else None


def array(text):
    return [line + "\n" for line in text.split("\n")]


@pytest.mark.parametrize(
    "rows",
    [
        [PAIR, PAIR],
        iter([PAIR, PAIR]),
        Dataset(PAIR, PAIR),
        DataFrame(PAIR, PAIR),
        [json.dumps(PAIR), "\n", json.dumps(PAIR).encode()],
        [json.dumps([PAIR, PAIR])],
        array(json.dumps([PAIR, PAIR], indent=2)),
        [BOM + json.dumps([PAIR, PAIR]).encode()],
        [Rollout.from_row(PAIR, line=1), Rollout.from_row(PAIR, line=2)],
    ],
    ids=lambda value: type(value).__name__,
)
def test_read_rollouts_reads_rows_of_any_container(rows):
    rollouts = list(read_rollouts(rows, ground_truth="answer"))
    assert [rollout.columns["ground_truth"] for rollout in rollouts] == ["42", "42"]
    assert rollouts[0].id == 1
    assert [len(rollout.messages) for rollout in rollouts] == [2, 2]


@pytest.mark.parametrize("rows", ["rollouts.jsonl", {"train": [PAIR]}, b"{}"])
def test_read_rollouts_refuses_what_has_no_rows(rows):
    with pytest.raises(InvalidArgumentError, match="expected rows or lines"):
        list(read_rollouts(rows))
    with pytest.raises(InvalidArgumentError, match="expected a Rollout, a dict or a line, got 3"):
        list(read_rollouts([3]))


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("before", [b"", BOM, b"\n \n"])
def test_read_lines_reads_the_entries_of_an_array(indent, before):
    file = io.BytesIO(before + json.dumps([PAIR, 3], indent=indent).encode())
    assert [(number, json.loads(line)) for number, line in read_lines(file)] == [(1, PAIR), (2, 3)]


def test_read_lines_refuses_an_array_that_is_cut_off():
    with pytest.raises(RolloutError, match="the file is not valid JSON"):
        list(read_lines(io.BytesIO(b'[{"id": 1},\n{"id"')))


def test_score_rollouts_a_row_that_cannot_be_read_fails_alone():
    rows = [PAIR, {"prompt": "6 × 7?", "answer": "42"}, {**PAIR, "answer": None}, PAIR]
    for reward in (NumericAnswer(), reward_function(lambda rollouts_messages: [1.0])):
        scored = list(score_rollouts(reward, rows, ground_truth="answer"))
        assert [row["score"] for row in scored][:2] == [1.0, None]
        assert "its columns are prompt" in scored[1]["error"]
    assert "no column 'x'" in next(score_rollouts(NumericAnswer(), rows, ground_truth="x"))["error"]


def right(messages, ground_truth=None):
    """The last turn has the answer."""
    return float(messages[-1].text == f"A: {ground_truth}")


class Right:
    def __call__(self, messages, ground_truth=None):
        return right(messages, ground_truth)

    def method(self, messages, ground_truth=None):
        return right(messages, ground_truth)


async def right_async(messages, ground_truth=None):
    return right(messages, ground_truth)


@pytest.mark.parametrize(
    "reward",
    [
        right,
        right_async,
        functools.partial(right),
        Right(),
        Right().method,
        lambda messages, ground_truth: right(messages, ground_truth),
        lambda rollouts_messages, ground_truths: list(map(right, rollouts_messages, ground_truths)),
        lambda action, observation: action.content == "A: 42",
    ],
)
def test_score_rollouts_takes_a_plain_function(reward):
    assert [row["score"] for row in score_rollouts(reward, [PAIR], ground_truth="answer")] == [1.0]


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (Right, "Right is a class; instantiate it"),
        ("reward.py:right", "is not a rubric"),
        (lambda conversation: 1.0, "names its first parameter `messages`"),
        (lambda completions, **kwargs: [1.0], r"from_trl\("),
        (lambda completion, answer: 1.0, r"from_verifiers\("),
        (None, "is not a rubric"),
    ],
)
def test_score_rollouts_refuses_what_is_no_reward_with_what_to_do(reward, message):
    with pytest.raises(RubricDefinitionError, match=message):
        list(score_rollouts(reward, [PAIR]))


def test_score_rollouts_scores_async_rewards_in_a_notebook():
    async def cell():
        rows = score_rollouts(right_async, [PAIR] * 40, ground_truth="answer")
        return [row["score"] for row in rows]

    assert asyncio.run(cell()) == [1.0] * 40
