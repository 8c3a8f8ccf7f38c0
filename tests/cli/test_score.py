"""guerdon score: the real command, from end to end."""

import array
import contextlib
import fcntl
import json
import os
import select
import signal
import termios

import pytest

KEYS = [
    "id", "group", "score", "is_score_valid", "components", "step_rewards", "error", "fingerprint",
]  # fmt: skip
PATIENCE = 60  # seconds


@pytest.fixture(autouse=True)
def _rewards(rewards):
    pass


def ids(data):
    """The ids of result rows, all of them whole."""
    assert data == b"" or data.endswith(b"\n")
    return [json.loads(line)["id"] for line in data.splitlines()]


def test_valid_rows_exit_with_0_and_a_table(guerdon, rows, tmp_path):
    rows(["1", "0", "0.75"])
    done = guerdon(
        "score", "rollouts.jsonl", "--reward", "reward.py:reward", "--out", "scored.jsonl",
        "--passing", "0.75",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    scored = [json.loads(line) for line in (tmp_path / "scored.jsonl").read_bytes().splitlines()]
    assert [list(row) for row in scored] == [KEYS] * 3
    assert [row["score"] for row in scored] == [1.0, 0.0, 0.75]
    assert scored[0]["components"] == {
        "rubric_0": 1.0, "rubric_0.rubric": 1.0, "rubric_1": 0.0, "rubric_1.rubric_0": 0.0,
    }  # fmt: skip
    table = " ".join(done.stdout.split())
    for expected in ("rows 3", "mean score 0.583", "scored 0 1", "failed 0", "66.7%", "3 rows in"):
        assert expected in table
    assert "scored.jsonl" in table


def test_failed_rows_exit_with_1_and_are_counted_apart_from_zeros(guerdon, rows):
    rows(["1", "x", "0"])
    done = guerdon("score", "rollouts.jsonl", "-r", "reward.py:reward")
    assert done.returncode == 1
    table = " ".join(done.stdout.split())
    for expected in ("rows 3", "scored 0 1", "failed 1", "ValueError 1"):
        assert expected in table


def test_the_summary_as_json(guerdon, rows):
    rows(["1", "x", "0"], kind="k")
    done = guerdon(
        "score", "rollouts.jsonl", "-r", "reward.py:reward", "--json", "--by", "kind",
        "--passing", "1",
    )  # fmt: skip
    assert done.returncode == 1
    told = json.loads(done.stdout)
    varying = {"seconds", "rows_per_second", "fingerprint"}
    assert {key: told[key] for key in told.keys() - varying} == {
        "reward": "reward.py:reward",
        "interrupted": False,
        "resumed": 0,
        "rows": 3,
        "valid": 2,
        "failed": 1,
        "zeros": 1,
        "mean_score": 0.5,
        "passing": 1.0,
        "accuracy": 0.5,
        "components": {
            "rubric_0": {"mean": 0.5, "rows": 2},
            "rubric_0.rubric": {"mean": 0.5, "rows": 2},
            "rubric_1": {"mean": 0.0, "rows": 2},
            "rubric_1.rubric_0": {"mean": 0.0, "rows": 2},
        },
        "stopped": {"rubric_0": 1, "rubric_1.rubric_0": 2},
        "failures": {"ValueError": 1},
        "dealt_with": 0,
        "noted": 0,
        "by": {"k": told["by"]["k"]},
    }
    assert (told["by"]["k"]["rows"], told["by"]["k"]["accuracy"]) == (3, 0.5)


def test_rows_go_through_pipes_and_the_summary_steps_aside(guerdon, rows):
    data = rows(["1", "0"])
    done = guerdon("score", "-", "-r", "reward.py:reward", "-o", "-", input=data)
    assert done.returncode == 0
    assert ids(done.stdout.encode()) == [0, 1]
    assert "mean score" in done.stderr


def test_rows_and_a_summary_as_json_go_to_two_places(guerdon, rows):
    data = rows(["1", "0"])
    done = guerdon("score", "-", "-r", "reward.py:reward", "-o", "-", "--json", input=data)
    assert ids(done.stdout.encode()) == [0, 1]
    assert json.loads(done.stderr)["rows"] == 2


def test_broken_lines_are_told_by_their_number_and_the_rest_goes_on(guerdon, rows):
    data = rows(["1", "0"]).replace(b"\n", b"\n{broken\n", 1)
    done = guerdon("score", "-", "-r", "reward.py:reward", "-o", "-", input=data)
    assert done.returncode == 1
    scored = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["score"] for row in scored] == [1.0, None, 0.0]
    assert scored[1]["error"].startswith("line 2: RolloutError: the line is no JSON")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["absent.jsonl"], "can't read absent.jsonl: No such file or directory"),
        (["empty.jsonl"], "empty.jsonl holds no rollouts: it is empty"),
        (["rollouts.jsonl", "--resume"], "resuming needs the file to go on with: --out FILE"),
        (["rollouts.jsonl", "-o", "rollouts.jsonl"], "is the file of the rollouts"),
        (["rollouts.jsonl", "-o", "absent/x.jsonl"], "can't write absent/x.jsonl: No such file"),
        (["rollouts.jsonl", "-o", "/dev/full"], "can't write /dev/full: No space left on device"),
        (["."], "can't read .: Is a directory"),
    ],
)
def test_what_can_not_be_done_exits_with_2_and_one_line(guerdon, rows, tmp_path, args, message):
    rows(["1"])
    (tmp_path / "empty.jsonl").touch()
    done = guerdon("score", *args, "-r", "reward.py:reward")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_reward_that_does_not_import_shows_its_own_traceback(guerdon, rows, tmp_path):
    rows(["1"])
    (tmp_path / "broken.py").write_text("raise OSError('no model')\n")
    done = guerdon("score", "rollouts.jsonl", "-r", "broken.py:reward")
    assert (done.returncode, done.stdout) == (2, "")
    assert f'File "{tmp_path}/broken.py", line 1, in <module>' in done.stderr
    assert "OSError: no model" in done.stderr
    assert done.stderr.count("File ") == 1


@pytest.mark.parametrize("out", [["-o", "-"], []])
def test_a_full_disk_behind_standard_output_is_an_error_without_a_traceback(guerdon, rows, out):
    rows(["1"] * 20)
    with open("/dev/full", "wb") as full:
        done = guerdon("score", "rollouts.jsonl", "-r", "reward.py:reward", *out, stdout=full)
    assert done.returncode == 2
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_reader_that_leaves_early_is_no_traceback(started, rows, workers):
    rows(["1"] * 5000)
    process = started("score", "rollouts.jsonl", "-r", "reward.py:reward", "-o", "-", "-w", workers)
    assert json.loads(process.stdout.readline())["id"] == 0
    process.stdout.close()
    with contextlib.closing(process.stderr):
        told = process.stderr.read().decode()
    process.stdout = process.stderr = None
    assert process.wait(PATIENCE) == 1
    assert told == ""


def test_a_reward_that_exits_is_a_failed_row(guerdon, rows, tmp_path):
    rows(["1", "x", "0"])
    (tmp_path / "exits.py").write_text(
        "import sys\ndef reward(action, observation):\n"
        "    return float(action.content) if action.content != 'x' else sys.exit(0)\n"
    )
    done = guerdon("score", "rollouts.jsonl", "-r", "exits.py:reward", "-o", "-")
    assert done.returncode == 1
    assert [json.loads(line)["score"] for line in done.stdout.splitlines()] == [1.0, None, 0.0]


def test_what_a_reward_prints_does_not_stand_among_the_rows(guerdon, rows, tmp_path):
    rows(["1", "0"])
    (tmp_path / "prints.py").write_text(
        "def reward(action, observation):\n    print('debug')\n    return 1.0\n"
    )
    done = guerdon("score", "rollouts.jsonl", "-r", "prints.py:reward", "-o", "-")
    assert ids(done.stdout.encode()) == [0, 1]
    assert "debug" in done.stderr


def test_the_reward_is_never_written_over(guerdon, rows, tmp_path):
    rows(["1"])
    before = (tmp_path / "reward.py").read_bytes()
    done = guerdon("score", "rollouts.jsonl", "-r", "reward.py:reward", "-o", "reward.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert (tmp_path / "reward.py").read_bytes() == before


# ctrl-C


@pytest.fixture
def listening(tmp_path):
    """Two pipes: what a reward says when it stands still, and what lets it go on."""
    names = [str(tmp_path / name) for name in ("ready", "go")]
    for name in names:
        os.mkfifo(name)
    with contextlib.ExitStack() as stack:
        pipes = [os.open(name, os.O_RDWR) for name in names]
        for pipe in pipes:
            stack.callback(os.close, pipe)
        yield ":".join(names), *pipes


def wait_for(pipe):
    assert select.select([pipe], [], [], PATIENCE)[0], "nothing happened"
    assert os.read(pipe, 1) == b"x"


def without_stops(guerdon, *args):
    done = guerdon("score", "rollouts.jsonl", "-r", "reward.py:stops", *args)
    assert done.returncode == 0, done.stderr


def test_after_ctrl_c_every_finished_row_is_kept_and_resume_goes_on(
    started, guerdon, rows, tmp_path, listening
):
    names, ready, _ = listening
    rows(["stop" if i == 700 else "x" for i in range(1000)])
    process = started(
        "score", "rollouts.jsonl", "-r", "reward.py:stops", "-o", "scored.jsonl", listens=names
    )
    wait_for(ready)
    process.send_signal(signal.SIGINT)
    out, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert told == b""
    assert b"interrupted" in out
    scored = tmp_path / "scored.jsonl"
    assert ids(scored.read_bytes()) == list(range(700))
    without_stops(guerdon, "-o", "scored.jsonl", "--resume")
    without_stops(guerdon, "-o", "whole.jsonl")
    assert scored.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


@pytest.mark.parametrize("whom", ["parent", "group"])
def test_after_ctrl_c_workers_finish_what_runs_and_resume_goes_on(
    started, guerdon, rows, tmp_path, listening, whom
):
    names, ready, go = listening
    rows(["stop" if i == 300 else "x" for i in range(4000)])
    process = started(
        "score", "rollouts.jsonl", "-r", "reward.py:stops", "-o", "scored.jsonl", "-w", "2",
        listens=names, start_new_session=True,
    )  # fmt: skip
    wait_for(ready)
    (os.killpg if whom == "group" else os.kill)(process.pid, signal.SIGINT)
    os.write(go, b"x")
    out, told = process.communicate(timeout=PATIENCE)
    assert told == b""
    assert process.returncode == 130
    assert b"interrupted" in out
    scored = tmp_path / "scored.jsonl"
    kept = ids(scored.read_bytes())
    assert kept == list(range(len(kept)))
    assert len(kept) < 4000
    without_stops(guerdon, "-o", "scored.jsonl", "--resume", "-w", "2")
    assert ids(scored.read_bytes()) == list(range(4000))


def test_ctrl_c_while_the_reader_is_slow_writes_no_row_twice(started, rows):
    rows(["1"] * 5000)
    process = started("score", "rollouts.jsonl", "-r", "reward.py:reward", "-o", "-")
    # The pipe is full: the command waits in the middle of writing.
    waiting, size = array.array("i", [0]), fcntl.fcntl(process.stdout, fcntl.F_GETPIPE_SZ)
    poller = select.poll()
    poller.register(process.stderr)
    page = 4096  # the first may hold one short write alone
    while waiting[0] < size - page:
        assert process.poll() is None
        fcntl.ioctl(process.stdout, termios.FIONREAD, waiting)
        poller.poll(10)  # milliseconds; nothing is said there
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    kept = ids(out)
    assert kept == list(range(len(kept)))


# Size


def test_many_rows_stream_through_in_bounded_memory(guerdon, rows, tmp_path):
    (tmp_path / "memory.py").write_text(
        "import pathlib\n"
        "def reward(action, observation):\n"
        "    if action.content == 'last':\n"
        "        status = pathlib.Path('/proc/self/status').read_text()\n"
        "        pathlib.Path('peak').write_text(status.split('VmHWM:')[1].split()[0])\n"
        "    return 1.0\n"
    )

    def peak(count):
        """The most memory that the command took, in MB."""
        rows([*["1"] * (count - 1), "last"], filler="x" * 500)
        done = guerdon("score", "rollouts.jsonl", "-r", "memory.py:reward", "-o", "scored.jsonl")
        assert done.returncode == 0
        with open(tmp_path / "scored.jsonl", "rb") as file:
            assert sum(1 for _ in file) == count
        return int((tmp_path / "peak").read_text()) / 1024

    few, many = peak(2_000), peak(50_000)  # 30 MB of rollouts, 10 MB of results
    assert many - few < 8
