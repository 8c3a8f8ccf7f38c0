"""The logger: what it takes and refuses, trackers that fail and come back, killed processes."""

import copy
import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

from guerdon.errors import InvalidArgumentError, TrackerError
from guerdon.rewards.logger import RewardLogger


def rows(folder):
    return [json.loads(line) for line in (folder / "rewards.jsonl").read_text().splitlines()]


def python(code, *arguments, **options):
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


# What it takes


def test_a_step_is_logged_with_all_it_says(tmp_path):
    with RewardLogger("jsonl", path=tmp_path, run_name="run") as logger:
        logger.log_step(7, 2, 0.5, {"tests": 1.0, "style": 0.0}, "env-0")
    [row] = rows(tmp_path / "run")
    assert row.pop("id")
    assert abs(row.pop("time") - time.time()) < 60
    assert row == {
        "kind": "step", "step": 7, "episode": 2, "env_id": "env-0", "reward": 0.5,
        "components": {"tests": 1.0, "style": 0.0},
    }  # fmt: skip


def test_components_are_taken_as_they_are_when_they_are_logged(tmp_path, kept):
    tracker, components = kept(), {"a": 1.0}
    with RewardLogger(tracker, path=tmp_path) as logger:
        logger.log_step(1, 0, 1.0, components)
        components["a"] = 2.0
    assert tracker.records[0].components == {"a": 1.0}


@pytest.mark.parametrize(
    ("reward", "told"),
    [(None, "failed"), (float("nan"), "nan"), (float("inf"), "inf"), (-np.inf, "-inf")],
    ids=str,
)
def test_a_reward_that_is_none_is_told_and_is_no_number(tmp_path, kept, reward, told):
    tracker = kept()
    with RewardLogger(tracker, path=tmp_path) as logger:
        logger.log_step(1, 0, reward, {"tests": 1.0})
    [record] = tracker.records
    assert (record.reward, record.reward_error) == (None, told)
    assert record.metrics() == {"reward/invalid/total": 1.0, "reward/tests": 1.0}


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), np.float32("nan")], ids=str)
def test_a_component_that_is_none_is_told_by_name_and_is_no_number(tmp_path, kept, value):
    tracker = kept()
    with RewardLogger(tracker, path=tmp_path) as logger:
        logger.log_step(1, 0, None, {"tests": 1.0, "style": value}, reward_error="style failed")
    [record] = tracker.records
    assert record.reward_error == "style failed"
    assert record.components == {"tests": 1.0}
    assert list(record.invalid) == ["style"]
    assert record.metrics()["reward/invalid/style"] == 1.0
    assert "reward/style" not in record.metrics()


def test_why_a_part_failed_is_told_also_of_one_that_has_no_component(tmp_path, kept):
    tracker = kept()
    with RewardLogger(tracker, path=tmp_path) as logger:
        logger.log_step(1, 0, None, {"a": 1.0}, invalid={"style": "judge down", "a": "stale"})
    [record] = tracker.records
    assert record.invalid == {"style": "judge down", "a": "stale"}
    assert record.components == {}


@pytest.mark.parametrize(
    ("step", "reward", "component", "env_id"),
    [
        (np.int64(3), np.float64(0.5), np.float32(0.5), np.int64(4)),
        (3, 1, 0, 4),
        (np.uint8(3), np.float32(1), 2**60, 4),
    ],
    ids=["numpy", "ints", "mixed"],
)
def test_other_numbers_are_numbers_too(tmp_path, step, reward, component, env_id):
    with RewardLogger("jsonl", path=tmp_path, run_name="run") as logger:
        logger.log_step(step, None, reward, {"a": component}, env_id)
    [row] = rows(tmp_path / "run")
    assert (row["step"], row["reward"], row["components"]) == (3, reward, {"a": component})
    assert row["env_id"] == 4


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"step": -1}, "step is -1"),
        ({"step": 2**63}, "step is 9223372036854775808"),
        ({"step": True}, "step is True"),
        ({"step": 1.5}, "step is 1.5"),
        ({"reward": "0.5"}, "reward is '0.5', of type str; it takes a number, or None"),
        ({"reward": True}, "reward is True, of type bool"),
        ({"components": {"a": "b"}}, r"components\['a'\] is 'b'"),
        ({"components": {"a": False}}, r"components\['a'\] is False"),
        ({"components": {1: 1.0}}, "components: the name 1 is no text"),
        ({"components": [1.0]}, r"components is \[1.0\]; it takes a mapping"),
        ({"components": None}, "components is None"),
        ({"invalid": ["a"]}, r"invalid is \['a'\]"),
        ({"env_id": 1.5}, "env_id is 1.5; it takes a text, a whole number, or None"),
        ({"episode": True}, "episode is True"),
    ],
    ids=lambda value: "" if isinstance(value, str) else str(value),
)
def test_what_is_no_reward_is_refused_whole(tmp_path, kept, changed, said):
    tracker = kept()
    given = {"step": 1, "episode": 0, "reward": 0.5, "components": {"a": 1.0}, "env_id": "e"}
    with RewardLogger(tracker, path=tmp_path) as logger:
        with pytest.raises(InvalidArgumentError, match=said):
            logger.log_step(**(given | changed))
        logger.log_step(**given)
    assert len(tracker.records) == 1


def test_weights_are_logged_by_name(tmp_path, kept):
    tracker = kept()
    with RewardLogger(tracker, path=tmp_path) as logger:
        logger.log_weights(5, {"tests": 1, "style": -0.3})
    assert tracker.records[0].metrics() == {
        "reward/weights/tests": 1.0,
        "reward/weights/style": -0.3,
    }


@pytest.mark.parametrize("weight", [None, float("nan"), "1", True], ids=str)
def test_a_weight_that_is_no_number_is_refused(tmp_path, kept, weight):
    with (
        RewardLogger(kept(), path=tmp_path) as logger,
        pytest.raises(InvalidArgumentError, match=r"weights\['style'\] is"),
    ):
        logger.log_weights(5, {"style": weight})


def test_a_change_of_a_weight_is_told_and_counted_and_moves_the_weight(tmp_path, kept):
    tracker = kept()
    with RewardLogger(tracker, path=tmp_path) as logger:
        logger.log_step(41, 0, 1.0, {})
        logger.log_config_update(
            "per_turn.style.weight",
            before=0.3, after=0.1, who="ann", when="2026-01-02", fingerprint="f1",
        )  # fmt: skip
        logger.log_config_update("style.threshold", before=None, after=float("nan"), step=50)
    first, second = tracker.records[1:]
    assert first.step == 41
    assert first.metrics() == {"reward/weights/style": 0.1, "config/updates": 1.0}
    assert first.change == {
        "what": "per_turn.style.weight", "from": 0.3, "to": 0.1, "who": "ann",
        "when": "2026-01-02", "fingerprint": "f1", "number": 1,
    }  # fmt: skip
    assert (second.step, second.metrics()) == (50, {"config/updates": 2.0})
    assert second.change["to"] == "nan"


# How it is made


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"backend": "wandbb"}, "there is no backend 'wandbb'; did you mean 'wandb'?"),
        ({"backend": []}, "one or more"),
        ({"backend": ["jsonl", "jsonl"]}, "each with a name of its own"),
        ({"backend": 5}, "5 is no backend"),
        ({"every": 0, "backend": "console"}, "every is 0"),
        ({"colour": 1}, "backend 'jsonl': .*'colour'; it takes path"),
        ({"backend": ["jsonl", "console"], "every": 5}, "options are of one named backend"),
        ({"queue_size": 0}, "queue_size is 0"),
        ({"queue_size": 1.5}, "queue_size is 1.5"),
        ({"max_spool_bytes": True}, "max_spool_bytes is True"),
        ({"retry_s": float("nan")}, "retry_s is nan"),
        ({"on_full": "wait"}, 'on_full is \'wait\'; it takes "drop" or "raise"'),
        ({"run_name": "../x"}, "run_name is '../x'"),
        ({"run_name": ""}, "run_name is ''"),
        ({"project": ""}, "project is ''"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused(tmp_path, arguments, said):
    with pytest.raises(InvalidArgumentError, match=said):
        RewardLogger(**({"backend": "jsonl", "path": tmp_path} | arguments))


def test_a_folder_that_cannot_be_used_is_an_error_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TrackerError, match=r"file/run can't be used"):
        RewardLogger("jsonl", path=tmp_path / "file", run_name="run")


def test_a_run_keeps_its_id_and_project(tmp_path):
    with RewardLogger("jsonl", path=tmp_path, run_name="run", project="p") as first:
        pass
    with RewardLogger("jsonl", path=tmp_path, run_name="run", project="q") as second:
        assert second.run == first.run
    with RewardLogger("jsonl", path=tmp_path) as third:
        assert third.run.id != first.run.id


def test_it_says_when_it_is_closed_and_can_be_closed_twice(tmp_path, kept):
    tracker = kept()
    logger = RewardLogger(tracker, path=tmp_path)
    logger.close()
    logger.close()
    assert tracker.closed == 1
    with pytest.raises(TrackerError, match="this logger is closed"):
        logger.log_step(1, 0, 1.0, {})
    assert logger.flush() is True


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_it_cannot_be_pickled_or_copied(tmp_path, copied):
    with (
        RewardLogger("jsonl", path=tmp_path, run_name="run") as logger,
        pytest.raises(TrackerError, match=r"can't be pickled or copied.*run_name='run'"),
    ):
        copied(logger)


def test_many_threads_lose_nothing(tmp_path, kept):
    tracker = kept()
    with RewardLogger(tracker, path=tmp_path, queue_size=50) as logger:

        def work(number):
            for step in range(200):
                logger.log_step(step, 0, 1.0, {"a": 1.0}, number)

        threads = [threading.Thread(target=work, args=[number]) for number in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    for number in range(4):
        steps = [record.step for record in tracker.records if record.env_id == number]
        assert steps == list(range(200))
    assert len({record.id for record in tracker.records}) == 800


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


def test_one_that_stays_down_is_told_and_the_next_logger_sends_its_records(tmp_path, kept, caplog):
    down = kept()
    down.fails = ConnectionError("gone")
    with RewardLogger(down, path=tmp_path, run_name="run", retry_s=60) as logger:
        logger.log_step(1, 0, 1.0, {})
    assert "didn't take all" in caplog.text
    assert "run_name='run'" in caplog.text
    up = kept()
    with RewardLogger(up, path=tmp_path, run_name="run") as logger:
        logger.log_step(2, 0, 1.0, {})
    assert up.steps == [1, 2]
    assert list((tmp_path / "run" / "spool" / "kept").iterdir()) == []


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


# Processes


def test_what_was_not_closed_is_sent_when_the_process_ends(tmp_path):
    child = python(
        """
        import sys
        from guerdon.rewards.logger import RewardLogger
        logger = RewardLogger("jsonl", path=sys.argv[1], run_name="run")
        for step in range(1000):
            logger.log_step(step, 0, 1.0, {})
        """,
        tmp_path,
    )
    assert child.communicate(timeout=30) == (b"", b"")
    assert [row["step"] for row in rows(tmp_path / "run")] == list(range(1000))


KILLED = """
    import sys, threading, time
    from guerdon.rewards.logger import RewardLogger

    class Down:
        name = "kept"
        def open(self, run): raise ConnectionError("no server")
        def write(self, records): pass
        def close(self): pass

    logger = RewardLogger(["jsonl", Down()], path=sys.argv[1], run_name="run")
    begun, step, pause = time.monotonic(), 0, threading.Event()
    while True:
        logger.log_step(step, 0, 1.0, {"a": 0.5}, "env")
        step += 1
        if step % 50 == 0:
            print(step, time.monotonic() - begun, flush=True)
            pause.wait(0.001)
"""


def test_a_killed_process_loses_the_last_second_at_most_and_the_next_sends_the_rest(tmp_path, kept):
    child = python(KILLED, tmp_path)
    told = []
    for line in child.stdout:
        told.append((int(line.split()[0]), float(line.split()[1])))
        if told[-1][1] > 1.3:
            break
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=30)
    safe = max(step for step, at in told if at <= told[-1][1] - 1.0)
    written = len((tmp_path / "run" / "rewards.jsonl").read_bytes().splitlines())
    tracker = kept()
    with RewardLogger(["jsonl", tracker], path=tmp_path, run_name="run") as logger:
        assert logger.flush() is True
    steps = [row["step"] for row in rows(tmp_path / "run")]
    assert steps == list(range(len(steps)))  # none is missing, none is there twice
    assert tracker.steps == list(range(len(tracker.steps)))
    assert len(tracker.steps) == len(steps) >= max(safe, written - 1)
    assert safe > 0


def test_half_a_line_that_a_killed_process_left_is_kept_aside(tmp_path, kept, caplog):
    down = kept()
    down.fails = OSError("down")
    with RewardLogger(down, path=tmp_path, run_name="run", retry_s=60) as logger:
        logger.log_step(1, 0, 1.0, {})
    [segment] = (tmp_path / "run" / "spool" / "kept").glob("*/0*.jsonl")
    with open(segment, "ab") as file:
        file.write(b'{"id":"x-2","kind":"st')
    up = kept()
    with RewardLogger(up, path=tmp_path, run_name="run") as logger:
        assert logger.flush() is True
    assert up.steps == [1]
    aside = tmp_path / "run" / "spool" / "kept" / "refused.jsonl"
    assert aside.read_bytes() == b'{"id":"x-2","kind":"st\n'
    assert "its writer was killed" in caplog.text


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_writes_none_of_its_parents_records(tmp_path):
    child = python(
        """
        import os, sys, warnings
        from guerdon.errors import TrackerError
        from guerdon.rewards.logger import RewardLogger
        warnings.simplefilter("ignore")  # of forking with threads, in later Pythons
        logger = RewardLogger(["jsonl", "tensorboard"], path=sys.argv[1], run_name="run")
        for step in range(1000):
            logger.log_step(step, 0, 1.0, {})
        child = os.fork()
        if child == 0:
            try:
                logger.log_step(5000, 0, 1.0, {})
            except TrackerError as error:
                print(error, flush=True)
            logger.flush()
            logger.close()
            with RewardLogger("jsonl", path=sys.argv[1], run_name="run") as own:
                own.log_step(2000, 0, 1.0, {})
            sys.exit(0)
        os.waitpid(child, 0)
        logger.log_step(1000, 0, 1.0, {})
        logger.close()
        """,
        tmp_path,
    )
    said, errors = child.communicate(timeout=30)
    assert errors == b""
    assert b"this one was forked from it; make a RewardLogger here, with run_name='run'" in said
    steps = [row["step"] for row in rows(tmp_path / "run")]
    assert sorted(steps) == [*range(1001), 2000]


def test_two_processes_write_one_run(tmp_path):
    code = """
        import sys
        from guerdon.rewards.logger import RewardLogger
        with RewardLogger("jsonl", path=sys.argv[1], run_name="run") as logger:
            for step in range(2000):
                logger.log_step(step, 0, 1.0, {}, sys.argv[2])
    """
    children = [python(code, tmp_path, name) for name in "ab"]
    assert [child.communicate(timeout=30) for child in children] == [(b"", b"")] * 2
    found = rows(tmp_path / "run")
    for name in "ab":
        assert [row["step"] for row in found if row["env_id"] == name] == list(range(2000))


def test_its_modules_load_no_trackers_package():
    code = """
        import sys, guerdon.rewards.logger
        print({"wandb", "mlflow", "tensorboard", "numpy"} & set(sys.modules))
    """
    assert python(code).communicate(timeout=30) == (b"set()\n", b"")


def test_its_warnings_go_to_its_own_log(tmp_path, kept, caplog):
    down = kept()
    down.fails = OSError("down")
    with caplog.at_level(logging.WARNING), RewardLogger(down, path=tmp_path) as logger:
        logger.log_step(1, 0, 1.0, {})
    assert {record.name.rpartition(".")[0] for record in caplog.records} == {
        "guerdon.rewards.logger"
    }
