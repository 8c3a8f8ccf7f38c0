"""The log of a run: whole lines, each once, and a cursor for each tracker."""

import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guerdon import RewardLogger
from guerdon.tracking import log as module
from guerdon.tracking.log import Cursor, RewardLog


@pytest.fixture
def log(tmp_path):
    log = RewardLog(tmp_path, max_bytes=1 << 20)
    yield log
    log.close()


def read_all(cursor):
    found = []
    while lines := cursor.read():
        found += lines
        cursor.advance(lines)
    return b"".join(found)


def test_cursor_reads_lines_of_the_log_in_order(log):
    cursor = Cursor.open(log.path, "kept")
    assert cursor.read() == []
    log.append(b"1\n2\n")
    log.append(b"3\n")
    assert cursor.read(1) == [b"1\n"]
    assert read_all(cursor) == b"1\n2\n3\n"
    assert cursor.waiting() == 0
    cursor.close()


def test_cursor_continues_after_the_lines_it_advanced(log):
    log.append(b"1\n2\n3\n")
    first = Cursor.open(log.path, "kept")
    first.advance(first.read(1))
    first.close()
    second = Cursor.open(log.path, "kept")
    assert read_all(second) == b"2\n3\n"
    second.close()
    new = Cursor.open(log.path, "new")
    assert read_all(new) == b"1\n2\n3\n"
    new.close()


def test_cursor_is_locked_by_one_owner(log):
    first = Cursor.open(log.path, "kept")
    assert Cursor.open(log.path, "kept") is None
    first.close()
    second = Cursor.open(log.path, "kept")
    assert second is not None
    second.close()


def test_cursor_leaves_a_line_without_its_end(log):
    log.append(b"1\n")
    cursor = Cursor.open(log.path, "kept")
    with open(log.path, "ab") as file:
        file.write(b"2")
    assert read_all(cursor) == b"1\n"
    cursor.close()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"") + b"\n")),
    st.integers(1, 20),
    st.lists(st.integers(0, 5)),
)
def test_cursor_returns_each_line_once_whatever_the_batch_size(tmp_path, lines, batch, limits):
    folder = tmp_path / os.urandom(8).hex()
    log = RewardLog(folder, max_bytes=1 << 20)
    for line in lines:
        log.append(line)
    cursor, found = Cursor.open(log.path, "kept"), b""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BATCH_BYTES", batch)
        for limit in limits:
            some = cursor.read(limit)
            cursor.advance(some)
            found += b"".join(some)
        assert found + read_all(cursor) == b"".join(lines)
    cursor.close()
    log.close()


@pytest.mark.parametrize("torn", [b"2", b"x" * 95])
def test_append_removes_a_line_without_its_end(log, monkeypatch, torn):
    monkeypatch.setattr(module, "BATCH_BYTES", 10)
    log.append(b"1\n")
    with open(log.path, "ab") as file:
        file.write(torn)  # another process, killed while it wrote
    log.append(b"3\n")
    assert log.path.read_bytes() == b"1\n3\n"


def test_append_that_fails_half_way_leaves_nothing(log, monkeypatch):
    write_all = module.write_all

    def half(file, data):
        write_all(file, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    log.append(b"1\n")
    with monkeypatch.context() as patch:
        patch.setattr(module, "write_all", half)
        with pytest.raises(OSError, match="No space"):
            log.append(b"2\n3\n4\n")
    assert log.path.read_bytes() == b"1\n"


@pytest.mark.parametrize("how", ["moved", "removed"])
def test_append_and_cursor_follow_a_log_that_is_rotated(log, how):
    log.append(b"1\n")
    cursor = Cursor.open(log.path, "kept")
    if how == "moved":
        log.path.rename(log.path.with_name("old.jsonl"))
    else:
        log.path.unlink()
    log.append(b"2\n")
    log.append(b"3\n")
    assert log.path.read_bytes() == b"2\n3\n"
    assert read_all(cursor) == b"1\n2\n3\n"
    cursor.close()


def test_append_keeps_lines_of_other_programs(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "rewards.jsonl").write_text('not json\n[1]\n{"other": 1}\n')
    with RewardLogger("jsonl", path=tmp_path, run_name="run") as logger:
        logger.log_step(1, 0, 1.0, {})
    lines = (folder / "rewards.jsonl").read_text().splitlines()
    assert lines[:3] == ["not json", "[1]", '{"other": 1}']
    assert json.loads(lines[3])["step"] == 1


def test_append_returns_false_at_the_maximum_size(tmp_path):
    log = RewardLog(tmp_path, max_bytes=5)
    assert log.append(b"12\n")
    assert not log.append(b"34\n")
    assert log.path.read_bytes() == b"12\n"
    assert log.has_room(2)
    assert not log.has_room(3)
    log.close()
