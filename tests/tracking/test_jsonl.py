"""The file of JSON lines: each record once, whatever happened to who wrote it."""

import json

import pytest

from guerdon.tracking import JsonlTracker, RewardLogger, TrackedRecord, TrackedRun
from guerdon.tracking import jsonl as module


def record(number):
    line = json.dumps({"id": f"s-{number}", "step": number}).encode() + b"\n"
    return TrackedRecord(f"s-{number}", "step", 0.0, number, line=line)


@pytest.fixture
def run(tmp_path):
    return TrackedRun("id", "run", "project", tmp_path)


@pytest.fixture
def steps(tmp_path):
    file = tmp_path / "rewards.jsonl"
    return lambda: [json.loads(line)["step"] for line in file.read_bytes().splitlines()]


def opened(run):
    tracker = JsonlTracker()
    tracker.open(run)
    return tracker


def test_environments_are_a_field(tmp_path):
    with RewardLogger("jsonl", path=tmp_path, run_name="run") as logger:
        for name in ("a", "b"):
            logger.log_step(1, 0, 1.0, {"x": 1.0}, name)
    file = tmp_path / "run" / "rewards.jsonl"
    found = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(row["step"], row["env_id"]) for row in found] == [(1, "a"), (1, "b")]


def test_a_record_that_comes_again_is_written_once(run, steps):
    first = opened(run)
    first.write([record(1), record(2)])
    first.close()
    second = opened(run)
    second.write([record(2), record(3)])
    second.close()
    assert steps() == [1, 2, 3]


def test_half_a_line_is_taken_away_by_whoever_writes_next(run, steps, tmp_path):
    first = opened(run)
    first.write([record(1)])
    with open(tmp_path / "rewards.jsonl", "ab") as file:
        file.write(record(2).line[:7])  # another process, killed while it wrote
    first.write([record(3)])
    first.close()
    assert steps() == [1, 3]


def test_a_write_that_fails_half_way_leaves_nothing(run, steps, monkeypatch):
    tracker = opened(run)
    whole = module.write_all

    def half(file, data):
        whole(file, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module, "write_all", half)
        with pytest.raises(OSError, match="No space"):
            tracker.write([record(1), record(2)])
    tracker.write([record(1), record(2)])
    tracker.close()
    assert steps() == [1, 2]


def test_lines_that_are_somebody_elses_stay(run, tmp_path):
    (tmp_path / "rewards.jsonl").write_text('not json\n[1]\n{"other": 1}\n')
    tracker = opened(run)
    tracker.write([record(1)])
    tracker.close()
    assert len((tmp_path / "rewards.jsonl").read_text().splitlines()) == 4


def test_a_folder_that_is_not_there_is_made(tmp_path):
    path = tmp_path / "a" / "b.jsonl"
    with RewardLogger("jsonl", path=tmp_path) as logger:
        logger.log_step(1, 0, 1.0, {})
    with RewardLogger(JsonlTracker(path), path=tmp_path) as logger:
        logger.log_step(1, 0, 1.0, {})
    assert path.exists()


@pytest.mark.parametrize("how", ["moved", "removed"])
def test_a_file_that_is_taken_away_is_begun_anew(run, steps, tmp_path, how):
    tracker, file = opened(run), tmp_path / "rewards.jsonl"
    tracker.write([record(1)])
    if how == "moved":  # as logs are rotated
        file.rename(tmp_path / "old.jsonl")
    else:
        file.unlink()
    tracker.write([record(2)])
    tracker.write([record(3)])
    tracker.close()
    assert steps() == [2, 3]


def test_half_a_line_may_be_longer_than_what_is_read_at_once(run, steps, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TAIL_BYTES", 10)
    tracker = opened(run)
    tracker.write([record(1)])
    with open(tmp_path / "rewards.jsonl", "ab") as file:
        file.write(b"x" * 95)
    tracker.write([record(2)])
    tracker.close()
    assert steps() == [1, 2]
