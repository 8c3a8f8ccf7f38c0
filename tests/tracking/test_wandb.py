"""wandb's offline files, read back.

wandb starts a process and threads that end with the interpreter, and writes its file until then: so
each logger that uses it runs in a separate interpreter, and what was written is read in another.
"""

import json
import os
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import pytest

from guerdon.errors import TrackerError
from guerdon.tracking import WandbTracker

pytestmark = pytest.mark.edge

# A .wandb file: a header of 7 bytes, then blocks of 32 KiB of pieces of records, each with a
# checksum (4 bytes), its length (2) and its kind (1): whole, first, middle or last.
READING = """
import json, struct, sys
from pathlib import Path

def messages(data):
    at, parts = 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        parts += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):
            yield parts
            parts = b""

def show(folder):
    from wandb.proto import wandb_internal_pb2 as proto
    found = {"rows": [], "runs": []}
    for file in sorted(Path(folder).rglob("*.wandb")):
        for data in messages(file.read_bytes()):
            record = proto.Record.FromString(data)
            kind = record.WhichOneof("record_type")
            if kind == "history":
                items = record.history.item
                row = {each.key or "/".join(each.nested_key): json.loads(each.value_json)
                       for each in items}
                found["rows"].append(row)
            if kind == "run":
                run = record.run
                found["runs"].append([run.run_id, run.display_name, run.project])
    print(json.dumps(found))
"""


@pytest.fixture
def logged(tmp_path):
    """Run code in a separate interpreter; return the content of wandb's files."""

    def in_another_interpreter(code):
        environment = os.environ | {"WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false"}
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code, str(tmp_path)],
            capture_output=True, cwd=tmp_path, env=environment, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
        return done

    def run(code):
        done = in_another_interpreter("import sys\n" + textwrap.dedent(code))
        found = in_another_interpreter(READING + "\nshow(sys.argv[1])\n")
        return json.loads(found.stdout), done.stderr.decode()

    return run


def test_wandb_tracker_logs_to_the_offline_file(logged):
    found, printed = logged(
        """
        from guerdon.tracking import RewardLogger
        with RewardLogger(
            "wandb", path=sys.argv[1], run_name="first", project="chess", mode="offline",
            tags=["a"],
        ) as logger:
            logger.log_step(1, 0, 0.5, {"tests": 1.0, "a.b": 0.0}, "env-0")
            logger.log_step(1, 0, 0.25, {"tests": 0.0}, "env/1")
            logger.log_step(2, 1, None, {"tests": None})
            logger.log_weights(2, {"tests": 2.0})
            logger.log_config_update("tests.weight", before=2.0, after=3.0, who="ann")
        """
    )
    assert printed == ""
    assert {run[1:] == ["first", "chess"] for run in found["runs"]} == {True}
    rows = found["rows"]
    assert [row["step"] for row in rows] == [1, 1, 2, 2, 2]
    assert len({row["_step"] for row in rows}) == len({row["record"] for row in rows}) == 5
    first, second, failed, weights, change = rows
    assert (first["episode"], first["env_id"], first["reward/total"]) == (0, "env-0", 0.5)
    assert (first["reward/tests"], first["reward/a.b"]) == (1.0, 0.0)
    assert first["env/env-0/reward/tests"] == 1.0
    assert (second["env_id"], second["reward/total"]) == ("env/1", 0.25)
    assert failed["reward/invalid/total"] == failed["reward/invalid/tests"] == 1.0
    assert not {"reward/total", "reward/tests"} & set(failed)
    assert weights["reward/weights/tests"] == 2.0
    assert (change["config/updates"], change["reward/weights/tests"]) == (1.0, 3.0)
    assert json.loads(change["config/change"])["who"] == "ann"


def test_wandb_tracker_without_its_server_lets_the_process_end(tmp_path):
    code = """
        from guerdon.tracking import RewardLogger, WandbTracker

        with RewardLogger(WandbTracker(timeout_s=1.0), path="logs", run_name="r") as logger:
            logger.log_step(1, 0, 0.5, {}, "env-0")
    """
    environment = os.environ | {
        "WANDB_MODE": "online",
        "WANDB_BASE_URL": "http://127.0.0.1:9",
        "WANDB_API_KEY": "a" * 40,
        "WANDB_ERROR_REPORTING": "false",
    }
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True, cwd=tmp_path, env=environment, timeout=60, check=True, text=True,
    )  # fmt: skip
    assert "'wandb' has not accepted all records" in done.stderr
    assert "run_name='r'" in done.stderr


def test_wandb_tracker_close_names_the_folder_that_was_not_uploaded(monkeypatch, tmp_path):
    def finish():
        raise TimeoutError("finish")

    run = SimpleNamespace(
        dir="wandb/run-1/files", finish=finish, define_metric=lambda *a, **k: None
    )
    given = {}

    def settings(**fields):
        given.update(fields)

    settings.model_fields = {"console": None, "finish_timeout": None}
    wandb = SimpleNamespace(Settings=settings, init=lambda **arguments: run)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setattr("guerdon.tracking.wandb.require", lambda *a, **k: None)
    tracker = WandbTracker(timeout_s=2)
    tracker.open(SimpleNamespace(id="1", name="r", project="p", folder=tmp_path))
    assert given == {"console": "off", "finish_timeout": 2.0}
    with pytest.raises(TrackerError, match=r"within 2 s; `wandb sync wandb/run-1` uploads it"):
        tracker.close()


def test_wandb_tracker_continues_the_same_run_without_close(logged):
    found, _ = logged(
        """
        import subprocess
        from guerdon.tracking import RewardLogger

        class Down:
            name = "wandb"
            def open(self, run): raise ConnectionError("no server")
            def write(self, records): pass
            def close(self): pass

        with RewardLogger(Down(), path=sys.argv[1], run_name="first") as logger:
            logger.log_step(1, 0, 0.5, {})
        code = '''
        import sys
        from guerdon.tracking import RewardLogger
        logger = RewardLogger("wandb", path=sys.argv[1], run_name="first")
        assert logger.flush(120)  # wandb can't begin when the interpreter is ending
        for step in range(2, 3000):
            logger.log_step(step, 0, 0.5, {})
        '''.replace("        ", "")
        subprocess.run([sys.executable, "-W", "error", "-c", code, sys.argv[1]], check=True)
        """
    )
    assert [row["step"] for row in found["rows"]] == list(range(1, 3000))
    assert len({run[0] for run in found["runs"]}) == 1
