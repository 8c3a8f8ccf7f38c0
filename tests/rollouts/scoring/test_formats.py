"""Formats: recordings of tau-bench, and documents, as lines of rollouts."""

import io
import json

import pytest

from guerdon.errors import InvalidArgumentError, RolloutError
from guerdon.rollouts.scoring import reading
from guerdon.rollouts.scoring.parquet import read_parquet
from guerdon.rollouts.scoring.reading import (
    FORMATS,
    parse_line,
    read_batches,
    read_documents,
    read_lines,
    read_tau_bench,
)

TRAJ = [
    {"role": "system", "content": "Policy."},
    {"role": "user", "content": "A seat?"},
    {"role": "assistant", "content": "3A."},
]
TASK = {"user_id": "u", "actions": [{"name": "book", "kwargs": {}}], "outputs": []}


def record(task_id=3, trial=0, **fields):
    return {
        "task_id": task_id, "trial": trial, "reward": 1.0, "info": {"task": TASK}, "traj": TRAJ,
    } | fields  # fmt: skip


def read(records):
    data = records if isinstance(records, bytes) else json.dumps(records).encode()
    return list(read_tau_bench(io.BytesIO(data)))


def rows(records):
    return [json.loads(line) for _, line in read(records)]


def test_read_tau_bench_converts_a_record_to_a_rollout():
    [(number, line)] = read([record(task_id=3, trial=1)])
    assert number == 1
    rollout = parse_line(number, line)
    assert (rollout.id, rollout.group, len(rollout.messages)) == ("3-1", 3, 3)
    assert rollout.columns["ground_truth"] == TASK


def test_read_tau_bench_keeps_the_other_columns():
    [row] = rows([record(reward=0.5, extra={"a": 1})])
    assert (row["reward"], row["trial"], row["extra"], row["info"]) == (
        0.5, 0, {"a": 1}, {"task": TASK},
    )  # fmt: skip
    assert "traj" not in row


def test_read_tau_bench_groups_the_trials_of_a_task_and_keeps_their_numbers():
    given = [record(task, trial) for trial in range(2) for task in (7, 5, 6)]
    found = read(given)
    assert [number for number, _ in found] == [1, 4, 2, 5, 3, 6]
    assert [json.loads(line)["id"] for _, line in found] == [
        "7-0", "7-1", "5-0", "5-1", "6-0", "6-1",
    ]  # fmt: skip


def test_read_tau_bench_distinguishes_tasks_by_type():
    found = rows([record(1), record("1"), record(1), record("1")])
    assert [row["group"] for row in found] == [1, 1, "1", "1"]


@pytest.mark.parametrize("info", [None, [], "x", {}, {"task": None}], ids=repr)
def test_read_tau_bench_has_no_ground_truth_for_a_record_without_a_task(info):
    [row] = rows([record(info=info)])
    assert row["ground_truth"] is None
    assert row["group"] == 3


def test_read_tau_bench_numbers_a_record_without_an_id():
    found = read([{"traj": TRAJ}, {"task_id": 3, "traj": TRAJ}])
    assert [parse_line(*line).id for line in found] == [1, "3"]
    assert [parse_line(*line).group for line in found] == [None, 3]


@pytest.mark.parametrize("other", [None, 3, "x", [], [1]], ids=repr)
def test_read_tau_bench_passes_on_what_is_not_a_record(other):
    found = read([record(1), other, record(2)])
    assert sorted(number for number, _ in found) == [1, 2, 3]
    [broken] = [line for line in found if line[0] == 2]
    with pytest.raises(RolloutError, match="a rollout must be an object") as caught:
        parse_line(*broken)
    assert caught.value.line == 2


@pytest.mark.parametrize(
    "traj",
    [None, [], {}, "x", [{"role": "user", "content": "?"}], [{"role": "robot"}], [3]],
    ids=repr,
)
def test_read_tau_bench_keeps_the_id_of_a_record_with_an_invalid_conversation(traj):
    [line] = read([record(traj=traj)])
    with pytest.raises(RolloutError) as caught:
        parse_line(*line)
    assert (caught.value.row["id"], caught.value.row["group"]) == ("3-0", 3)


def test_read_tau_bench_passes_on_a_record_with_nan():
    data = json.dumps([record(1), record(2)]).replace('"reward": 1.0', '"reward": NaN', 1)
    first, second = read(data.encode())
    with pytest.raises(RolloutError, match="NaN is not valid JSON"):
        parse_line(*first)
    assert parse_line(*second).id == "2-0"


def test_read_tau_bench_of_an_empty_array_yields_nothing():
    assert read([]) == []
    assert read(b" [ ] \n") == []


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "the file is not valid JSON"),
        (b"[{]", "the file is not valid JSON"),
        (b"\xff\xfe\xfd", "the file is not valid JSON"),
        (b'{"task_id": 1}\n{"task_id": 2}\n', "the file is not valid JSON"),
        (b'{"task_id": 1}', "an array of records, got dict"),
        (b"null", "an array of records, got NoneType"),
        (b"3", "an array of records, got int"),
        (b"[" * 100_000, "the file is not valid JSON"),
    ],
    ids=["empty", "broken", "bytes", "lines", "object", "null", "number", "deep"],
)
def test_read_tau_bench_rejects_what_is_not_an_array(data, match):
    with pytest.raises(RolloutError, match=match):
        read(data)


def test_read_tau_bench_accepts_deep_nesting():
    for depth in (500, 900):
        nested = b'[{"task_id": ' + b"[" * depth + b"]" * depth + b', "traj": []}]'
        assert len(read(nested)) == 1


def test_read_tau_bench_rejects_a_file_that_is_too_large(monkeypatch):
    monkeypatch.setattr(reading, "MAX_FILE", 100)
    assert read(b" " * 98 + b"[]") == []
    with pytest.raises(RolloutError, match="must have at most 100 bytes"):
        read(b" " * 99 + b"[]")


@pytest.mark.parametrize(
    "data", [b"\xef\xbb\xbf" + json.dumps([record()]).encode(),
             json.dumps([record()]).encode("utf-16")], ids=["mark", "utf-16"],
)  # fmt: skip
def test_read_tau_bench_accepts_other_encodings_and_line_ends(data):
    [line] = read(data)
    assert parse_line(*line).id == "3-0"


def test_read_tau_bench_keeps_text_unchanged():
    text = "é 6 × 7 \u2028 \x00 🎲"
    [line] = read([record(traj=[{"role": "assistant", "content": text}])])
    assert b"\n" not in line
    assert parse_line(*line).messages[0].text == text


def test_read_tau_bench_accepts_lone_surrogates():
    parts = [{"type": "text", "text": "\ud800"}]
    [line] = read([record(traj=[{"role": "assistant", "content": parts}], task_id="\udfff")])
    assert parse_line(*line).messages[0].text == "\ud800"
    assert parse_line(*line).group == "\udfff"


def test_read_batches_knows_its_formats():
    readers = {"jsonl": read_lines, "tau-bench": read_tau_bench, "parquet": read_parquet}
    assert readers.items() <= FORMATS.items()
    assert set(FORMATS) - set(readers) == {"openenv-trace", "atif"}
    with pytest.raises(InvalidArgumentError, match="or 'atif', got 'csv'"):
        read_batches(io.BytesIO(), "-", format="csv", together=False)


# Documents


def rows_of(document):
    return [{"id": each} for each in document["ids"]]


def ids(data):
    return [(number, json.loads(line)["id"]) for number, line in documents(data)]


def documents(data):
    return list(read_documents(io.BytesIO(data), rows_of))


@pytest.mark.parametrize(
    "data",
    [
        b'{"ids": [1, 2, 3]}',
        b'{\n "ids": [1,\n 2, 3]\n}\n',
        b'\xef\xbb\xbf{"ids": [1]}\n\n{"ids": [2, 3]}\n',
    ],
    ids=["one line", "several lines", "a document a line"],
)
def test_read_documents_numbers_the_rollouts(data):
    assert ids(data) == [(1, 1), (2, 2), (3, 3)]


def test_read_documents_of_an_empty_file_yields_nothing():
    assert documents(b"") == []


def test_read_documents_passes_on_a_line_that_is_not_json():
    lines = documents(b'{"ids": [1]}\n{"ids": \n{"ids": [2]}\n')
    assert lines[1] == (2, b'{"ids": \n')
    assert [number for number, _ in lines] == [1, 2, 3]


def test_read_documents_rejects_a_file_that_is_not_json():
    with pytest.raises(RolloutError, match="the file is not valid JSON"):
        documents(b'{"ids": \n[')


def test_read_documents_rejects_a_document_that_is_too_large(monkeypatch):
    monkeypatch.setattr(reading, "MAX_FILE", 20)
    with pytest.raises(RolloutError, match="a document must have at most 20 bytes"):
        documents(b'{\n"ids": [' + b"1," * 20 + b"1]}")


def test_read_documents_passes_on_a_line_that_is_too_long(monkeypatch):
    monkeypatch.setattr(reading, "MAX_LINE", 14)
    assert ids(b'{"ids": [1]}\n') == [(1, 1)]
    [(number, line)] = documents(b'{"ids": [1, 2, 3, 4]}\n')
    assert (number, len(line)) == (1, 15)
