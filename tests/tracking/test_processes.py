"""Processes that end, are killed, are forked, or share a run."""

import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from guerdon.tracking import RewardLogger
from guerdon.tracking.log import unsent


def rows(folder):
    return [json.loads(line) for line in (folder / "rewards.jsonl").read_text().splitlines()]


def python(code, *arguments, **options):
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


@pytest.mark.edge
def test_reward_logger_sends_at_the_end_of_the_process(tmp_path):
    child = python(
        """
        import sys
        from guerdon.tracking import RewardLogger
        logger = RewardLogger("jsonl", path=sys.argv[1], run_name="run")
        for step in range(1000):
            logger.log_step(step, 0, 1.0, {})
        """,
        tmp_path,
    )
    assert child.communicate(timeout=30) == (b"", b"")
    assert [row["step"] for row in rows(tmp_path / "run")] == list(range(1000))


@pytest.mark.edge
@pytest.mark.skipif(sys.version_info[:2] == (3, 12), reason="no thread starts while it ends")
@pytest.mark.parametrize("tracker", ["mlflow", "wandb"])
def test_reward_logger_of_a_short_script_sends_everything(tmp_path, tracker):
    child = python(
        """
        import sys
        from guerdon.tracking import RewardLogger
        RewardLogger(sys.argv[2], path=sys.argv[1], run_name="run").log_step(1, 0, 1.0, {})
        """,
        tmp_path,
        tracker,
        env=os.environ
        | {"WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false"}
        | {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}
        | {"MLFLOW_TRACKING_URI": (tmp_path / "store").as_uri()},
    )
    _, errors = child.communicate(timeout=60)
    assert errors == b""
    log = tmp_path / "run" / "rewards.jsonl"
    assert unsent(log, tracker) == 0 < log.stat().st_size


KILLED = """
    import sys, threading, time
    from guerdon.tracking import RewardLogger

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


@pytest.mark.edge
def test_reward_logger_of_a_killed_process_loses_at_most_a_second(tmp_path, kept):
    child = python(KILLED, tmp_path)
    reported = []
    for line in child.stdout:
        reported.append((int(line.split()[0]), float(line.split()[1])))
        if reported[-1][1] > 1.3:
            break
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=30)
    safe = max(step for step, at in reported if at <= reported[-1][1] - 1.0)
    written = len((tmp_path / "run" / "rewards.jsonl").read_bytes().splitlines())
    tracker = kept()
    with RewardLogger(["jsonl", tracker], path=tmp_path, run_name="run") as logger:
        assert logger.flush() is True
    steps = [row["step"] for row in rows(tmp_path / "run")]
    assert steps == list(range(len(steps)))  # each is there once
    assert tracker.steps == list(range(len(tracker.steps)))
    assert len(tracker.steps) == len(steps) >= max(safe, written - 1)
    assert safe > 0


def test_a_line_that_is_not_a_record_is_stored_and_the_others_are_sent(tmp_path, kept, caplog):
    with RewardLogger("jsonl", path=tmp_path, run_name="run") as logger:
        logger.log_step(1, 0, 1.0, {})
    with open(tmp_path / "run" / "rewards.jsonl", "ab") as file:
        file.write(b'{"id":"x-2","kind":"st\n')
    tracker = kept()
    with RewardLogger(tracker, path=tmp_path, run_name="run") as logger:
        logger.log_step(2, 0, 1.0, {})
    assert tracker.steps == [1, 2]
    refused = tmp_path / "run" / "trackers" / "kept.refused.jsonl"
    assert refused.read_bytes() == b'{"id":"x-2","kind":"st\n'
    assert "a record was moved to" in caplog.text


def test_reward_logger_removes_the_line_that_a_killed_process_did_not_finish(tmp_path, kept):
    with RewardLogger("jsonl", path=tmp_path, run_name="run") as logger:
        logger.log_step(1, 0, 1.0, {})
    with open(tmp_path / "run" / "rewards.jsonl", "ab") as file:
        file.write(b'{"id":"x-2","kind":"st')
    tracker = kept()
    with RewardLogger(tracker, path=tmp_path, run_name="run") as logger:
        assert logger.flush() is True
    assert tracker.steps == [1]


@pytest.mark.edge
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_reward_logger_in_a_forked_process_raises(tmp_path):
    child = python(
        """
        import os, sys, warnings
        from guerdon.errors import TrackerError
        from guerdon.tracking import RewardLogger
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
    output, errors = child.communicate(timeout=30)
    assert errors == b""
    assert b"create a RewardLogger here, with run_name='run'" in output
    steps = [row["step"] for row in rows(tmp_path / "run")]
    assert sorted(steps) == [*range(1001), 2000]


@pytest.mark.edge
def test_reward_loggers_of_two_processes_write_one_log(tmp_path):
    code = """
        import sys
        from guerdon.tracking import RewardLogger
        with RewardLogger("jsonl", path=sys.argv[1], run_name="run") as logger:
            for step in range(2000):
                logger.log_step(step, 0, 1.0, {}, sys.argv[2])
    """
    children = [python(code, tmp_path, name) for name in "ab"]
    assert [child.communicate(timeout=30) for child in children] == [(b"", b"")] * 2
    found = rows(tmp_path / "run")
    for name in "ab":
        assert [row["step"] for row in found if row["env_id"] == name] == list(range(2000))


@pytest.mark.edge
def test_importing_tracking_loads_no_tracker_package():
    code = """
        import sys, guerdon.tracking
        print({"wandb", "mlflow", "tensorboard", "numpy"} & set(sys.modules))
    """
    assert python(code).communicate(timeout=30) == (b"set()\n", b"")
