"""RowWriter and read_finished: whole lines, and a run that can go on."""

import json
import os

import pytest

from guerdon.errors import RolloutError, ScoringError
from guerdon.rollouts.scoring.result_rows import RowWriter, read_finished


def line(id, fingerprint="f"):
    row = {
        "id": id, "group": None, "score": 1.0, "is_score_valid": True, "components": {},
        "step_rewards": [1.0], "error": None, "fingerprint": fingerprint,
    }  # fmt: skip
    return json.dumps(row).encode() + b"\n"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "scored.jsonl"


@pytest.fixture
def finished(path):
    """Reads a file with this data: rows, bytes, last id, all ids."""

    def finished(data, fingerprint="f"):
        path.write_bytes(data)
        found = list(read_finished(str(path), fingerprint))
        last, size = (found[-1][0]["id"], found[-1][1]) if found else (None, 0)
        return len(found), size, last, [row["id"] for row, _ in found]

    return finished


# Writing


def test_row_writer_writes_lines_in_order(path):
    with RowWriter(str(path)) as writer:
        writer.write(b"a\n")
        writer.write(b"b\nc\n")
    assert path.read_bytes() == b"a\nb\nc\n"


def test_row_writer_replaces_an_existing_file(path):
    path.write_bytes(b"old\n" * 100)
    with RowWriter(str(path)) as writer:
        writer.write(b"new\n")
    assert path.read_bytes() == b"new\n"


def test_row_writer_keeps_the_given_number_of_bytes(path):
    path.write_bytes(b"a\nb\nhalf a li")
    with RowWriter(str(path), keep=4) as writer:
        writer.write(b"c\n")
    assert path.read_bytes() == b"a\nb\nc\n"


def test_row_writer_refuses_a_file_that_another_one_writes(path):
    with RowWriter(str(path)) as first:
        first.write(b"a\n")
        with pytest.raises(ScoringError, match=rf"process {os.getpid()}, .* is writing to this"):
            RowWriter(str(path))
        first.write(b"b\n")
    assert path.read_bytes() == b"a\nb\n"
    with RowWriter(str(path), keep=4) as second:
        second.write(b"c\n")
    assert path.read_bytes() == b"a\nb\nc\n"


def test_row_writer_without_a_path_writes_nothing():
    with RowWriter(None) as writer:
        writer.write(b"a\n")


@pytest.mark.parametrize("name", ["absent/scored.jsonl", "."])
def test_row_writer_names_a_file_that_can_not_be_written(tmp_path, name):
    with pytest.raises(ScoringError, match=r"can't write .*: (No such file|Is a directory)"):
        RowWriter(str(tmp_path / name))


def test_row_writer_suggests_resume_on_a_full_disk():
    message = r"No space left.*free some space and continue"
    with RowWriter("/dev/full") as writer, pytest.raises(ScoringError, match=message):
        writer.write(b"a\n")


def test_row_writer_keeps_an_existing_file_until_the_first_line(path):
    path.write_bytes(b"old\n")
    with RowWriter(str(path)) as writer:
        writer.write(b"")
    assert path.read_bytes() == b"old\n"


# Reading what is finished


def test_read_finished_of_a_missing_file_yields_nothing(path):
    assert list(read_finished(str(path), "f")) == []


def test_read_finished_of_an_empty_file_yields_nothing(finished):
    assert finished(b"") == (0, 0, None, [])


def test_read_finished_counts_rows(finished):
    data = line("a") + line("b")
    assert finished(data) == (2, len(data), "b", ["a", "b"])


@pytest.mark.parametrize("cut", range(1, len(line("b"))))
def test_read_finished_skips_an_incomplete_last_line(finished, cut):
    assert finished(line("a") + line("b")[:-cut]) == (1, len(line("a")), "a", ["a"])


def test_read_finished_rejects_another_reward(finished):
    with pytest.raises(RolloutError, match="scored by reward g, but this reward is f") as caught:
        finished(line("a") + line("b", "g"))
    assert caught.value.line == 2


@pytest.mark.parametrize(
    "other", [b"x\n", b"[]\n", b"3\n", b'"text"\n', b"null\n", b'{"id": 1}\n', b"\n", b"\xff\n"]
)
def test_read_finished_rejects_lines_that_are_not_result_rows(finished, other):
    with pytest.raises(RolloutError, match="lines that are not result rows") as caught:
        finished(line("a") + other)
    assert caught.value.line == 2


@pytest.mark.parametrize("other", [b"precious notes", b"x", b'[{"id": 1', b"\xff"])
def test_read_finished_rejects_an_incomplete_line_that_can_not_be_a_row(finished, path, other):
    with pytest.raises(RolloutError, match="lines that are not result rows"):
        finished(other)


def test_read_finished_rejects_a_row_without_a_score(finished):
    with pytest.raises(RolloutError, match="lines that are not result rows"):
        finished(b'{"id": 1, "fingerprint": "f"}\n')


def test_read_finished_accepts_rows_of_functions_and_of_credit(finished):
    row = json.loads(line("a"))
    more = {"reason": None, "notes": ["odd"], "steps": [{"step_index": 0, "advantage": 0.5}]}
    data = b"".join(
        json.dumps(row | {name: more[name] for name in names}).encode() + b"\n"
        for names in (("reason", "notes"), ("steps",), ("reason", "notes", "steps"))
    )
    assert finished(data)[:2] == (3, len(data))


def test_read_finished_rejects_unknown_keys(finished):
    row = json.loads(line("a")) | {"advantage": 0.5}
    with pytest.raises(RolloutError, match="lines that are not result rows"):
        finished(json.dumps(row).encode() + b"\n")


def test_read_finished_yields_the_size_up_to_each_row(path):
    path.write_bytes(line("a") + line("bb") + line("c")[:-3])
    sizes = [size for _, size in read_finished(str(path), "f")]
    assert sizes == [len(line("a")), len(line("a") + line("bb"))]


def test_read_finished_reads_one_row_at_a_time(path):
    path.write_bytes(line("a") + b"precious notes\n")
    rows = read_finished(str(path), "f")
    assert next(rows)[0]["id"] == "a"
    with pytest.raises(RolloutError):
        next(rows)


def test_read_finished_rejects_what_is_not_a_file(tmp_path):
    with pytest.raises(RolloutError, match="is not a regular file"):
        list(read_finished(str(tmp_path), "f"))
