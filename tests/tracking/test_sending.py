"""Trackers that raise, hang and come back; and what happens where there is no room."""

import json
import shutil
import threading
import time

import pytest

from guerdon.errors import TrackerError
from guerdon.tracking import RewardLogger

# Trackers that are down


def test_one_that_raises_stops_nobody_and_gets_all_when_it_works_again(tmp_path, kept, caplog):
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
    told = [record.message for record in caplog.records]
    assert len([each for each in told if "failed, its records wait" in each]) == 1
    assert "tracker 'down' works again" in told


def test_one_that_cannot_be_opened_is_opened_later(tmp_path, kept):
    tracker = kept()
    tracker.fails_to_open = TrackerError("no server")
    with RewardLogger(tracker, path=tmp_path, retry_s=60) as logger:
        logger.log_step(1, 0, 1.0, {})
        assert logger.flush() is False
        tracker.fails_to_open = None
        assert logger.flush() is True
    assert tracker.steps == [1]


@pytest.mark.parametrize("end", [SystemExit("bye"), KeyboardInterrupt()], ids=["exit", "ctrl-c"])
def test_one_that_would_end_its_thread_is_tried_again(tmp_path, kept, end):
    tracker = kept()
    tracker.fails_to_open = end
    with RewardLogger(tracker, path=tmp_path, retry_s=60) as logger:
        logger.log_step(1, 0, 1.0, {})
        assert logger.flush() is False
        assert type(end).__name__ in logger.status()["kept"].error
        tracker.fails_to_open = None
        assert logger.flush() is True
    assert tracker.steps == [1]


def test_one_that_takes_long_to_open_gets_what_was_logged_before_the_close(tmp_path, kept):
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


def test_one_that_stays_down_is_told_and_the_next_logger_sends_its_records(tmp_path, kept, caplog):
    down = kept()
    down.fails = ConnectionError("gone")
    with RewardLogger(down, path=tmp_path, run_name="run", retry_s=60) as logger:
        logger.log_step(1, 0, 1.0, {})
    assert "didn't take all" in caplog.text
    assert "works again" not in caplog.text
    assert "gone" in logger.status()["kept"].error
    assert "run_name='run'" in caplog.text
    up = kept()
    with RewardLogger(up, path=tmp_path, run_name="run") as logger:
        logger.log_step(2, 0, 1.0, {})
    assert up.steps == [1, 2]
    assert list((tmp_path / "run" / "spool" / "kept").iterdir()) == []


def test_a_new_run_tells_of_those_whose_records_were_left(tmp_path, kept, caplog):
    down = kept()
    down.fails = ConnectionError("gone")
    with RewardLogger(down, path=tmp_path, run_name="old", retry_s=60) as logger:
        logger.log_step(1, 0, 1.0, {})
        with RewardLogger(kept(), path=tmp_path, run_name="other"):
            assert "never sent" not in caplog.text  # it is alive, and may send them yet
    with RewardLogger(kept(), path=tmp_path):
        assert "the runs ['old'] have records that were never sent" in caplog.text
    caplog.clear()
    with RewardLogger(kept(), path=tmp_path, run_name="old"):
        pass
    with RewardLogger(kept(), path=tmp_path):
        pass
    assert caplog.text == ""


def test_one_that_cannot_be_closed_is_told(tmp_path, kept, caplog):
    tracker = kept()
    tracker.close = lambda: 1 / 0
    with RewardLogger(tracker, path=tmp_path) as logger:
        logger.log_step(1, 0, 1.0, {})
    assert tracker.steps == [1]
    assert "can't be closed: ZeroDivisionError" in caplog.text


def test_one_that_hangs_makes_nobody_wait(tmp_path, kept, caplog):
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
    assert "tracker 'stuck' didn't take all" in caplog.text
    # Nobody takes what is its own while it is alive; when it ends, the next sends the rest.
    again = kept("stuck")
    with RewardLogger(again, path=tmp_path, run_name="run"):
        pass
    assert again.steps == []
    stuck.go.set()
    logger._senders[0].join(time.monotonic() + 10)
    with RewardLogger(again, path=tmp_path, run_name="run"):
        pass
    assert sorted(stuck.steps + again.steps) == list(range(1, 100))


def test_a_record_that_is_never_taken_is_kept_aside_and_the_others_go_on(tmp_path, kept, caplog):
    tracker = kept()
    tracker.refuses = lambda record: record.step == 5
    with RewardLogger(tracker, path=tmp_path, run_name="run") as logger:
        for step in range(10):
            logger.log_step(step, 0, 1.0, {})
        assert logger.flush() is True
        assert (logger.status()["kept"].sent, logger.status()["kept"].refused) == (9, 1)
    assert tracker.steps == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    aside = tmp_path / "run" / "spool" / "kept" / "refused.jsonl"
    assert json.loads(aside.read_text())["step"] == 5
    assert "not that one" in caplog.text


# Bounds


def test_at_the_bound_of_the_spool_new_records_are_lost_and_counted(tmp_path, kept, caplog):
    down = kept()
    down.fails = OSError("down")
    with RewardLogger(down, path=tmp_path, max_spool_bytes=1000, retry_s=60) as logger:
        for step in range(100):
            logger.log_step(step, 0, 1.0, {})
            logger.flush()
        lost = logger.status()["kept"].lost
        assert 90 <= lost < 100
        down.fails = None
    assert down.steps == list(range(100 - lost))
    assert f"{lost} records were lost" in caplog.text
    assert "is full (1,000 bytes wait)" in caplog.text


def test_at_the_bound_of_the_spool_it_raises_where_that_was_asked_for(tmp_path, kept):
    down = kept()
    down.fails = OSError("down")
    options = {"max_spool_bytes": 1000, "retry_s": 60, "on_full": "raise"}
    with RewardLogger(down, path=tmp_path, **options) as logger:

        def fill():
            for step in range(100):
                logger.log_step(step, 0, 1.0, {})
                logger.flush()

        with pytest.raises(TrackerError, match="spool of tracker 'kept' is full"):
            fill()
        down.fails = None
        logger.flush()
        deadline = time.monotonic() + 10
        while logger._refusal is not None and time.monotonic() < deadline:
            logger.flush()
        logger.log_step(100, 0, 1.0, {})
    assert down.steps[-1] == 100


def test_a_disk_that_cannot_be_written_loses_nothing_while_there_is_memory(tmp_path, kept, caplog):
    tracker = kept()
    with RewardLogger(tracker, path=tmp_path, queue_size=5) as logger:
        spool = logger._senders[0].spool
        append, failed = spool.append, threading.Event()

        def fails(lines, count):
            failed.set()
            raise OSError(28, "No space left on device")

        spool.append = fails
        logger.log_step(0, 0, 1.0, {})
        assert failed.wait(10)
        for step in range(1, 8):  # five of them fit
            logger.log_step(step, 0, 1.0, {})
        spool.append = append
        assert logger.flush() is True
        assert logger.status()["kept"].lost == 2
    assert tracker.steps == [0, 1, 2, 3, 4, 5]
    assert "No space left" in caplog.text
    assert "2 records were lost" in caplog.text


def test_a_run_whose_folder_is_taken_away_goes_on_and_counts_what_waited(tmp_path, kept):
    tracker = kept()
    tracker.fails = OSError("down")
    with RewardLogger(tracker, path=tmp_path, run_name="run", retry_s=60) as logger:
        for step in range(3):
            logger.log_step(step, 0, 1.0, {})
        assert logger.flush() is False
        shutil.rmtree(tmp_path / "run")
        tracker.fails = None
        assert logger.flush() is True
        logger.log_step(3, 0, 1.0, {})
        assert logger.flush() is True
        status = logger.status()["kept"]
        assert (status.sent, status.lost, status.waiting) == (1, 3, 0)
    assert tracker.steps == [3]


def test_a_thread_that_fails_makes_nobody_wait(tmp_path, kept, monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda *_: None)
    with RewardLogger(kept(), path=tmp_path, queue_size=1, on_full="raise") as logger:
        logger._senders[0].spool.append = lambda lines, count: 1 / 0

        def fill():
            for step in range(10):
                logger.log_step(step, 0, 1.0, {})

        with pytest.raises(TrackerError, match="is lost"):
            fill()
