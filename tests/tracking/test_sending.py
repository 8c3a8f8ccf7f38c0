"""Trackers that raise, hang and recover; and logs without room."""

import json
import shutil
import threading
import time

import pytest

from guerdon.errors import TrackerError
from guerdon.tracking import RewardLogger
from guerdon.tracking.log import Cursor, RewardLog

# Trackers that are down


def test_a_tracker_that_raises_delays_no_other_and_gets_all_records_later(tmp_path, kept, caplog):
    down, up = kept("down"), kept("up")
    down.fails = OSError("no route")
    with RewardLogger([down, up], path=tmp_path, retry_s=60) as logger:
        for step in range(10):
            logger.log_step(step, 0, 1.0, {})
        assert logger.flush() is False
        assert up.steps == list(range(10))
        status = logger.status()
        assert (status["down"].sent, status["up"].sent) == (0, 10)
        assert "no route" in status["down"].error
        assert status["down"].waiting > 0
        down.fails = None
        logger.log_step(10, 0, 1.0, {})
        assert logger.flush() is True
    assert down.steps == list(range(11))
    messages = [record.message for record in caplog.records]
    assert len([each for each in messages if "failed, its records stay" in each]) == 1
    assert "tracker 'down' works again" in messages


def test_a_tracker_that_cannot_be_opened_is_opened_later(tmp_path, kept):
    tracker = kept()
    tracker.fails_to_open = TrackerError("no server")
    with RewardLogger(tracker, path=tmp_path, retry_s=60) as logger:
        logger.log_step(1, 0, 1.0, {})
        assert logger.flush() is False
        tracker.fails_to_open = None
        assert logger.flush() is True
    assert tracker.steps == [1]


@pytest.mark.parametrize("end", [SystemExit("bye"), KeyboardInterrupt()], ids=["exit", "ctrl-c"])
def test_a_tracker_that_raises_system_exit_is_retried(tmp_path, kept, end):
    tracker = kept()
    tracker.fails_to_open = end
    with RewardLogger(tracker, path=tmp_path, retry_s=60) as logger:
        logger.log_step(1, 0, 1.0, {})
        assert logger.flush() is False
        assert type(end).__name__ in logger.status()["kept"].error
        tracker.fails_to_open = None
        assert logger.flush() is True
    assert tracker.steps == [1]


def test_close_waits_for_a_tracker_that_is_slow_to_open(tmp_path, kept):
    tracker, opening, go = kept(), threading.Event(), threading.Event()

    def slow(run):
        opening.set()
        assert go.wait(30)

    tracker.open = slow
    with RewardLogger(tracker, path=tmp_path) as logger:
        assert opening.wait(30)
        logger.log_step(1, 0, 1.0, {})
        assert logger.flush(timeout=0.01) is False
        go.set()
    assert tracker.steps == [1]


def test_close_reports_a_tracker_that_stays_down_and_the_next_logger_sends_its_records(
    tmp_path, kept, caplog
):
    down = kept()
    down.fails = ConnectionError("gone")
    with RewardLogger(down, path=tmp_path, run_name="run", retry_s=60) as logger:
        logger.log_step(1, 0, 1.0, {})
    assert "has not accepted all records" in caplog.text
    assert "works again" not in caplog.text
    assert "gone" in logger.status()["kept"].error
    assert "run_name='run'" in caplog.text
    up = kept()
    with RewardLogger(up, path=tmp_path, run_name="run") as logger:
        logger.log_step(2, 0, 1.0, {})
    assert up.steps == [1, 2]


def test_reward_logger_reports_runs_with_unsent_records(tmp_path, kept, caplog):
    down = kept()
    down.fails = ConnectionError("gone")
    with RewardLogger(down, path=tmp_path, run_name="old", retry_s=60) as logger:
        logger.log_step(1, 0, 1.0, {})
        with RewardLogger(kept(), path=tmp_path, run_name="other"):
            assert "never sent" not in caplog.text  # it is running, and may still send them
    with RewardLogger(kept(), path=tmp_path):
        assert "runs ['old']" in caplog.text
        assert "have records that were never sent" in caplog.text
    caplog.clear()
    with RewardLogger(kept(), path=tmp_path, run_name="old"):
        pass
    with RewardLogger(kept(), path=tmp_path):
        pass
    assert caplog.text == ""


def test_close_reports_a_tracker_that_cannot_be_closed(tmp_path, kept, caplog):
    tracker = kept()
    tracker.close = lambda: 1 / 0
    with RewardLogger(tracker, path=tmp_path) as logger:
        logger.log_step(1, 0, 1.0, {})
    assert tracker.steps == [1]
    assert "can't be closed: ZeroDivisionError" in caplog.text


def test_a_tracker_that_hangs_delays_no_other(tmp_path, kept, caplog):
    stuck, up = kept("stuck"), kept("up")
    stuck.go.clear()
    logger = RewardLogger([stuck, up], path=tmp_path, run_name="run")
    logger.log_step(1, 0, 1.0, {})
    assert stuck.began.wait(10)
    for step in range(2, 100):
        logger.log_step(step, 0, 1.0, {})
    assert logger.flush(timeout=0.5) is False
    assert up.steps == list(range(1, 100))
    assert logger.status()["stuck"].busy_s > 0
    logger.close(timeout=0.1)
    assert "tracker 'stuck' has not accepted all records" in caplog.text
    # No other logger sends its records while its thread runs; when that ends, the next one does.
    again = kept("stuck")
    with RewardLogger(again, path=tmp_path, run_name="run"):
        pass
    assert again.steps == []
    stuck.go.set()
    logger._senders[0].join(time.monotonic() + 10)
    with RewardLogger(again, path=tmp_path, run_name="run"):
        pass
    assert sorted(stuck.steps + again.steps) == list(range(1, 100))


def test_a_record_that_a_tracker_refuses_is_stored_and_the_others_are_sent(tmp_path, kept, caplog):
    tracker = kept()
    tracker.refuses = lambda record: record.step == 5
    with RewardLogger(tracker, path=tmp_path, run_name="run") as logger:
        for step in range(10):
            logger.log_step(step, 0, 1.0, {})
        assert logger.flush() is True
        assert (logger.status()["kept"].sent, logger.status()["kept"].refused) == (9, 1)
    assert tracker.steps == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    aside = tmp_path / "run" / "trackers" / "kept.refused.jsonl"
    assert json.loads(aside.read_text())["step"] == 5
    assert "not that one" in caplog.text


# Bounds


def test_log_step_at_the_maximum_size_of_the_log_loses_and_counts_records(tmp_path, kept, caplog):
    tracker = kept()
    with RewardLogger(tracker, path=tmp_path, max_log_bytes=1000) as logger:
        for step in range(100):
            logger.log_step(step, 0, 1.0, {})
            logger.flush()
        lost = logger.status()["kept"].lost
        assert 90 <= lost < 100
    assert tracker.steps == list(range(100 - lost))
    assert f"{lost} records were lost" in caplog.text
    assert "has reached 1,000 bytes" in caplog.text


def test_log_step_at_the_maximum_size_of_the_log_raises_with_on_full_raise(tmp_path, kept):
    tracker = kept()
    options = {"max_log_bytes": 1000, "on_full": "raise", "run_name": "run"}
    with RewardLogger(tracker, path=tmp_path, **options) as logger:

        def fill():
            for step in range(100):
                logger.log_step(step, 0, 1.0, {})
                logger.flush()

        with pytest.raises(TrackerError, match="has reached 1,000 bytes"):
            fill()
        (tmp_path / "run" / "rewards.jsonl").rename(tmp_path / "old.jsonl")
        deadline = time.monotonic() + 10
        while logger._refusal is not None and time.monotonic() < deadline:
            logger.flush()
        logger.log_step(100, 0, 1.0, {})
    assert tracker.steps[-1] == 100


def test_log_step_keeps_records_in_memory_while_the_disk_cannot_be_written(
    tmp_path, kept, caplog, monkeypatch
):
    tracker, failed = kept(), threading.Event()

    def fail(log, data):
        failed.set()
        raise OSError(28, "No space left on device")

    with RewardLogger(tracker, path=tmp_path, queue_size=5) as logger:
        with monkeypatch.context() as patch:
            patch.setattr(RewardLog, "append", fail)
            logger.log_step(0, 0, 1.0, {})
            assert failed.wait(10)
            for step in range(1, 8):  # five of them fit
                logger.log_step(step, 0, 1.0, {})
        assert logger.flush() is True
        assert logger.status()["kept"].lost == 2
    assert tracker.steps == [0, 1, 2, 3, 4, 5]
    assert "No space left" in caplog.text
    assert "2 records were lost" in caplog.text


def test_reward_logger_continues_after_its_folder_is_removed(tmp_path, kept):
    tracker = kept()
    tracker.fails = OSError("down")
    with RewardLogger(tracker, path=tmp_path, run_name="run", retry_s=60) as logger:
        for step in range(3):
            logger.log_step(step, 0, 1.0, {})
        assert logger.flush() is False
        shutil.rmtree(tmp_path / "run")
        tracker.fails = None
        logger.log_step(3, 0, 1.0, {})
        assert logger.flush() is True
    assert tracker.steps == [0, 1, 2, 3]


def test_reward_logger_flush_is_false_before_its_sender_has_begun(tmp_path, kept, monkeypatch):
    begun, opened = threading.Event(), Cursor.open
    monkeypatch.setattr(Cursor, "open", lambda *given: (begun.wait(10), opened(*given))[1])
    with RewardLogger(kept(), path=tmp_path) as logger:
        logger.log_step(0, 0, 1.0, {})
        assert logger.flush(0.1) is False
        begun.set()
        assert logger.flush() is True


def test_log_step_does_not_wait_for_a_writer_that_failed(tmp_path, kept, monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda *_: None)
    monkeypatch.setattr(RewardLog, "append", lambda log, data: 1 / 0)
    with RewardLogger(kept(), path=tmp_path, queue_size=1, on_full="raise") as logger:

        def fill():
            for step in range(10):
                logger.log_step(step, 0, 1.0, {})

        with pytest.raises(TrackerError, match="is lost"):
            fill()


# Catching up


def test_a_tracker_that_is_added_to_a_run_gets_its_whole_log(tmp_path, kept):
    with RewardLogger("jsonl", path=tmp_path, run_name="run") as logger:
        for step in range(3):
            logger.log_step(step, 0, 1.0, {})
    tracker = kept()
    with RewardLogger(tracker, path=tmp_path, run_name="run") as logger:
        logger.log_step(3, 0, 1.0, {})
    assert tracker.steps == [0, 1, 2, 3]


def test_two_loggers_of_one_run_send_each_record_once(tmp_path, kept):
    first, second = kept(), kept()
    with RewardLogger(first, path=tmp_path, run_name="run") as one:
        one.log_step(0, 0, 1.0, {})
        assert one.flush() is True
        with RewardLogger(second, path=tmp_path, run_name="run") as two:
            for step in range(1, 4):
                two.log_step(step, 0, 1.0, {})
            assert two.flush() is True
    assert (first.steps, second.steps) == ([0, 1, 2, 3], [])
