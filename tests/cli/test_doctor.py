"""guerdon doctor: which sandboxes work, which attacks are open, and how to fix that."""

import json
import sys
from types import SimpleNamespace

import pytest

from guerdon.errors import SandboxUnavailableError
from guerdon.sandbox import Execution
from guerdon.sandbox.locking.canaries import Finding
from guerdon.sandbox.opening import Probe
from tests.cli.inside import run_inside

FACTS = {"kernel": "6.18", "Landlock": "ABI 7", "user": "1000"}
HELD = (Finding("connect", True, "Errno 1"), Finding("read home", True, "Errno 13"))
OPEN = (*HELD, Finding("signal [red]others[/]", False, "it was sent; \x1b[2Jfix: sudo fix"))


@pytest.fixture
def machine(monkeypatch):
    """A machine whose levels work, or don't."""

    def machine(*, strict=HELD, missing=(), plug_ins=(), facts=FACTS):
        works = not missing and all(each.blocked for each in strict)
        probes = {
            "process": Probe("process", True),
            "strict": Probe("strict", works, missing=missing, findings=strict, facts=facts),
        }
        monkeypatch.setattr("guerdon.sandbox.opening.probe", probes.__getitem__)
        names = SimpleNamespace(names=lambda: plug_ins)
        monkeypatch.setattr("guerdon.sandbox.opening.PLUG_INS", names)

    return machine


def table(done):
    return [" ".join(line.split()) for line in done.stdout.splitlines() if line.strip()]


def test_doctor_exits_with_0_if_strict_works(machine, tmp_path):
    machine()
    done = run_inside(tmp_path, "doctor")
    assert (done.returncode, done.stderr) == (0, "")
    lines = table(done)
    for level in ("none", "process", "strict"):
        assert any(line.startswith(f"{level} yes") for line in lines)
    for expected in (
        "connect blocked Errno 1",
        "read home blocked Errno 13",
        "kernel 6.18",
        "user 1000",
    ):
        assert expected in lines


def test_doctor_exits_with_1_on_an_open_attack(machine, tmp_path):
    machine(strict=OPEN)
    done = run_inside(tmp_path, "doctor")
    assert (done.returncode, done.stderr) == (1, "")
    lines = table(done)
    assert any(line.startswith("strict no") for line in lines)
    assert r"signal [red]others[/] OPEN it was sent; \x1b[2Jfix: sudo fix" in lines
    assert r"signal [red]others[/]: it was sent; \x1b[2Jfix: sudo fix" in lines


def test_doctor_reports_why_strict_does_not_work(machine, tmp_path):
    why = "strict needs Linux, and this is Darwin; --sandbox process works here"
    machine(strict=(), missing=(why,), facts={"platform": "darwin"})
    done = run_inside(tmp_path, "doctor")
    assert done.returncode == 1
    assert table(done).count(why) == 1
    assert "OPEN" not in done.stdout
    assert any(line.startswith("process yes") for line in table(done))


def test_doctor_prints_json(machine, tmp_path):
    machine(strict=OPEN)
    done = run_inside(tmp_path, "doctor", "--json")
    assert done.returncode == 1
    data = json.loads(done.stdout)
    assert data["ok"] is False
    assert list(data["levels"]) == ["none", "process", "strict"]
    assert [level["works"] for level in data["levels"].values()] == [True, True, False]
    strict = data["levels"]["strict"]
    assert strict["findings"][0] == {"name": "connect", "blocked": True, "detail": "Errno 1"}
    assert strict["facts"] == FACTS
    assert strict["missing"] == [f"{OPEN[-1].name}: {OPEN[-1].detail}"]
    assert data["machine"].items() >= FACTS.items()
    assert data["machine"]["Python"].endswith(sys.executable)


class Box:
    """A plug-in's sandbox."""

    promise = "no program leaves it"

    def __init__(self, **ran):
        self.ran = Execution(**{"ending": "ok", "exit_code": 0, "stdout": "42\n"} | ran)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def run(self, program):
        return self.ran


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (Box(), "box yes no program leaves it"),
        (Box(stdout="41\n"), "box no no program leaves it"),
        (Box(ending="memory"), "box no no program leaves it"),
        (SandboxUnavailableError("the daemon isn't there", level="box"), "box no"),
        (RuntimeError("[bold]of its own"), "box no"),
    ],
    ids=["works", "another answer", "another ending", "unavailable", "raises"],
)
def test_doctor_runs_a_program_in_a_plug_in(machine, monkeypatch, tmp_path, found, line):
    def opened(name):
        assert name == "box"
        if isinstance(found, Exception):
            raise found
        return found

    machine(plug_ins=["box"])
    monkeypatch.setattr("guerdon.sandbox.opening.open_sandbox", opened)
    done = run_inside(tmp_path, "doctor")
    assert done.returncode == 0  # which is about strict alone
    assert line in table(done)
    if isinstance(found, Exception):
        assert f"{type(found).__name__}: {found}" in table(done)


def test_doctor_probes_this_machine(guerdon):
    done = guerdon("doctor", "--json")
    data = json.loads(done.stdout)
    assert done.returncode == (0 if data["ok"] else 1)
    assert data["levels"]["process"]["works"]
    strict = data["levels"]["strict"]
    assert strict["works"] == all(each["blocked"] for each in strict["findings"])
    assert len(strict["findings"]) >= 7
    assert data["machine"].keys() >= {"you are", "Python", "architecture", "kernel", "Landlock"}
