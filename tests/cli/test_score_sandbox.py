"""guerdon score --sandbox: levels, limits, reports, and ctrl-C."""

import contextlib
import json
import os
import select
import signal
import textwrap
from pathlib import Path

import pytest

from guerdon.errors import SandboxUnavailableError
from tests.cli.inside import run_inside

pytestmark = pytest.mark.edge  # real servers and processes

FUNCTIONS = """
    import os
    from guerdon import reward_function

    @reward_function
    def length(messages, scale=1.0):
        return len(messages[-1].text) * scale

    @reward_function
    def reads(messages):
        with open(messages[-1].text) as file:
            return float(file.read())

    @reward_function
    def loops(messages):
        while messages[-1].text == "loop":
            pass
        return 1.0

    @reward_function
    def stops(messages):
        if messages[-1].text == "stop":
            with open({ready!r}, "wb") as pipe:
                pipe.write(b"x")
            with open({go!r}, "rb") as pipe:
                pipe.read(1)
        return 0.5

    CONSTANT = 3
"""
PATIENCE = 60  # seconds


@pytest.fixture(autouse=True)
def functions(tmp_path):
    """A file of rewards; `stops` waits at a row if a test listens."""
    names = {name: str(tmp_path / name) for name in ("ready", "go")}
    (tmp_path / "functions.py").write_text(textwrap.dedent(FUNCTIONS).format(**names))
    return names


@pytest.fixture
def inside(tmp_path):
    return lambda *args: run_inside(tmp_path, "score", "rollouts.jsonl", *args)


def scored_rows(tmp_path):
    return [json.loads(line) for line in (tmp_path / "scored.jsonl").read_bytes().splitlines()]


OUT = ("-o", "scored.jsonl")


@pytest.mark.parametrize("level", ["auto", "strict", "process"])
def test_score_sandbox_scores_at_each_level(inside, rows, tmp_path, level):
    rows(["a", "bb"])
    done = inside("-r", "functions.py:length", "--sandbox", level, "-p", "scale=2", *OUT)
    assert (done.returncode, done.stderr) == (0, "")
    assert [row["score"] for row in scored_rows(tmp_path)] == [2.0, 4.0]
    named = "strict" if level == "auto" else level
    assert {row["sandbox"] for row in scored_rows(tmp_path)} == {named}
    assert done.stdout.count(f"sandbox {named}: ") == 1


def test_score_without_sandbox_option_prints_nothing_about_sandboxes(inside, rows, tmp_path):
    rows(["a"])
    done = inside("-r", "functions.py:length", *OUT)
    assert done.returncode == 0
    assert "sandbox" not in done.stdout
    assert "sandbox" not in scored_rows(tmp_path)[0]
    assert inside("-r", "functions.py:length", "--sandbox", "none", *OUT).returncode == 0
    assert "sandbox" not in scored_rows(tmp_path)[0]


def test_score_sandbox_is_in_the_json_summary(inside, rows):
    rows(["a"])
    done = inside(
        "-r", "functions.py:length", "--sandbox", "process", "--json", "--limit", "seconds=9",
        "--limit", "memory_bytes=500000000",
    )  # fmt: skip
    data = json.loads(done.stdout)["sandbox"]
    assert data["level"] == "process"
    assert data["promise"]
    assert (data["limits"]["seconds"], data["limits"]["memory_bytes"]) == (9, 500_000_000)
    assert data["allow_read"] == []


def test_score_sandbox_limit_applies_to_each_call(inside, rows, tmp_path):
    rows(["x", "loop", "x"])
    done = inside(
        "-r", "functions.py:loops", "--sandbox", "process", "--limit", "seconds=0.5", *OUT
    )
    assert done.returncode == 1
    assert [row["score"] for row in scored_rows(tmp_path)] == [1.0, None, 1.0]
    assert "timeout" in scored_rows(tmp_path)[1]["error"]


def test_score_sandbox_strict_reads_only_allowed_files(inside, rows, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).write_text("0.5")
    rows([str(tmp_path / "one"), str(tmp_path / "two")])
    done = inside(
        "-r", "functions.py:reads", "--sandbox", "strict", "--allow-read", str(tmp_path / "one"),
        *OUT,
    )  # fmt: skip
    assert done.returncode == 1
    assert [row["score"] for row in scored_rows(tmp_path)] == [0.5, None]
    assert "PermissionError" in scored_rows(tmp_path)[1]["error"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--limit", "seconds=9"], "--limit: these options require --sandbox auto"),
        (["--reuse"], "--reuse: these options require --sandbox auto"),
        (["--allow-read", "x", "--limit", "files=1"], "--limit and --allow-read: these"),
        (["--sandbox", "auto", "--limit", "second=9"], "got 'second'; did you mean 'seconds'?"),
        (["--sandbox", "auto", "--limit", "seconds=0"], "`seconds` must be in (0, 1e+06], got 0"),
        (["--sandbox", "auto", "--limit", "files=many"], "`files` must be an integer in [0, "),
        (["--sandbox", "auto", "--limit", "seconds"], "--limit must be NAME=VALUE, got 'seconds'"),
        (["--sandbox", "nowhere"], "`level` must be 'auto', 'strict' or 'process', got 'nowhere'"),
        (["--sandbox", "process", "--allow-read", "absent"], "`allow_read` contains 'absent'"),
        (["--sandbox", "process", "-r", "functions.py:absent"], "absent"),
        (["--sandbox", "process", "-r", "functions.py:CONSTANT"], "CONSTANT"),
        (["--sandbox", "process", "-r", "nowhere.py:x"], "nowhere.py"),
        (["--sandbox", "process", "--credit", "gigpo", "--state-key", "functions.py:length"],
         "functions.py:length would run outside of the sandbox"),
    ],
)  # fmt: skip
def test_score_sandbox_exits_with_2_and_a_line_if_it_can_not_run(
    inside, rows, tmp_path, args, message
):
    rows(["a"])
    reward = () if "-r" in args else ("-r", "functions.py:length")
    done = inside(*reward, *args, *OUT)
    assert (done.returncode, done.stdout) == (2, "")
    assert "error: " in done.stderr
    assert message in done.stderr
    assert not (tmp_path / "scored.jsonl").exists()


@pytest.mark.parametrize("level", ["auto", "strict"])
def test_score_sandbox_never_falls_back_to_a_weaker_level(
    inside, rows, tmp_path, monkeypatch, level
):
    def refuse(*args, **options):
        raise SandboxUnavailableError(
            "strict doesn't work here: no Landlock", level="strict",
            missing=["no Landlock", "seccomp: sudo fix [now]"],
        )  # fmt: skip

    rows(["a"])
    monkeypatch.setattr("guerdon.rubrics.sandboxed.eval_sandbox.EvalSandbox.__init__", refuse)
    done = inside("-r", "functions.py:length", "--sandbox", level, *OUT)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "error: strict doesn't work here: no Landlock",
        "  seccomp: sudo fix [now]",
        "run `guerdon doctor` to see what works on this machine",
    ]
    assert not (tmp_path / "scored.jsonl").exists()


def test_score_sandbox_escapes_control_characters_of_errors(inside, rows, tmp_path):
    rows(["a"])
    (tmp_path / "steers.py").write_text("raise ValueError('\\x1b[2J\\x1b]0;hi\\x07')\n")
    done = inside("-r", "steers.py:reward", "--sandbox", "process")
    assert done.returncode == 2
    assert "ValueError" in done.stderr
    assert "\x1b" not in done.stderr
    assert "\x07" not in done.stderr


def test_score_sandbox_error_has_a_line_of_its_own_after_what_the_reward_printed(
    inside, rows, tmp_path
):
    rows(["a"])
    (tmp_path / "floods.py").write_text("print('spam' * 50_000)\n")
    done = inside("-r", "floods.py:reward", "--sandbox", "process")
    assert "spam\nerror: floods.py:reward: importing it: output_limit" in done.stderr


def test_score_sandbox_error_names_what_is_missing(inside, rows, monkeypatch):
    rows(["a"])
    why = "this kernel has no Landlock; boot it with lsm=landlock"
    monkeypatch.setattr("guerdon.sandbox.levels.requirements", lambda: [why])
    done = inside("-r", "functions.py:length", "--sandbox", "auto")
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr
    assert "--sandbox process" in done.stderr


# Processes that are ended from outside


def tree(pid):
    """The process, and all under it as far as they can be seen, each with its parent."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:  # it has just ended
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found, more = {}, {pid}
    while more:
        found |= {each: parents[each] for each in more}
        more = {each for each, parent in parents.items() if parent in more}
    return found


def is_ready(pid):
    """Whether a process runs; a zombie doesn't."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.fixture
def listening(functions):
    """Two pipes: one signals that the reward waits, the other lets it continue."""
    with contextlib.ExitStack() as stack:
        pipes = []
        for name in ("ready", "go"):
            os.mkfifo(functions[name])
            pipes.append(os.open(functions[name], os.O_RDWR))
            stack.callback(os.close, pipes[-1])
        yield pipes


STOPS = ("-r", "functions.py:stops", "--sandbox", "process", "--limit", "seconds=50", *OUT)


@pytest.fixture
def standing(started, rows, listening):
    """A run that waits at row 20 of 40."""

    def standing(*args):
        rows(["stop" if i == 20 else "x" for i in range(40)])
        process = started("score", "rollouts.jsonl", *STOPS, *args)
        assert select.select([listening[0]], [], [], PATIENCE)[0], "nothing happened"
        assert os.read(listening[0], 1) == b"x"
        return process

    return standing


@pytest.mark.parametrize(("workers", "least"), [("1", 20), ("3", 14)])
def test_score_sandbox_after_ctrl_c_ends_all_processes_and_keeps_finished_rows(
    standing, guerdon, listening, tmp_path, workers, least
):
    process = standing("-w", workers)
    alive = tree(process.pid)
    assert len(alive) >= 2
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors) == (130, b"")
    assert b"interrupted" in out
    assert [pid for pid in alive if is_ready(pid)] == []
    kept = [row["id"] for row in scored_rows(tmp_path)]
    # In order: a slower row before the one that stalled delays the rows that others have finished.
    assert kept == list(range(len(kept)))
    assert least <= len(kept) <= 20
    os.write(listening[1], b"x")
    done = guerdon("score", "rollouts.jsonl", *STOPS, "--resume")
    assert done.returncode == 0
    assert [row["id"] for row in scored_rows(tmp_path)] == list(range(40))
    assert {row["score"] for row in scored_rows(tmp_path)} == {0.5}


@pytest.mark.parametrize("whom", ["call", "supervisor"])
def test_score_sandbox_killed_process_fails_only_its_row(standing, tmp_path, whom):
    process = standing()
    parents = tree(process.pid)
    supervisors = [pid for pid, parent in parents.items() if parent == process.pid]
    calls = [pid for pid in parents if pid not in parents.values()]
    [pid] = supervisors if whom == "supervisor" else calls
    os.kill(pid, signal.SIGKILL)
    _, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors) == (1, b"")
    scored = scored_rows(tmp_path)
    assert [row["id"] for row in scored] == list(range(40))
    assert [row["id"] for row in scored if row["score"] != 0.5] == [20]
    assert "kill" in scored[20]["error"]
