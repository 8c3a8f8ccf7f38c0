"""A trial sees what a sandbox lets through, also where programs say nothing of it.

The sandboxes here run no program: what comes of one is made up. What they do to this side, they do
to what the trial itself has put up.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager

import pytest

from guerdon.errors import InvalidArgumentError, SandboxError
from guerdon.sandbox import Execution
from guerdon.sandbox.conformance import CASES, Case, Trial, check_sandbox
from guerdon.sandbox.conformance.host import Host

ALONE = next(case for case in CASES if case.name == "a foreign file")
HELD = Execution("ok", 0, stdout="held: EPERM\n")

linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc tells it")


class Canned:
    """A sandbox that runs nothing: it gives the same answers whatever it is asked.

    Args:
        then: What it does once the canaries are held; it is told what the programs are.
        canary: What it answers for canaries.
    """

    name = promise = "canned"

    def __init__(self, then=lambda facts: HELD, canary=lambda facts: HELD):
        self.answers = [canary] * 3
        self.then = then
        self.ran = 0
        self.closed = False

    def run(self, program, *, stdin=b"", files=None, limits=None):
        self.ran += 1
        answer = self.answers.pop() if self.answers else self.then
        return answer(json.loads(stdin))

    def run_pair(self, program, checker, *, limits=None):
        self.ran += 1
        answer = self.then(json.loads(checker.stdin))
        return answer, answer

    def close(self):
        self.closed = True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def outcome_where(then, case=ALONE):
    sandbox = Canned(then)
    with Trial(lambda: sandbox) as trial:
        outcome = trial.outcome_of(case)
    assert sandbox.closed
    return outcome


# The canaries


@pytest.mark.parametrize(
    "answer",
    [
        Execution("ok", 0, stdout="BROKEN: read gave b'secret'\n"),
        Execution("ok", 0),
        Execution("nonzero", 1, stderr="SyntaxError"),
        Execution("ok", 0, stdout="not tried: so\n"),
    ],
    ids=["open", "silent", "crashed", "not tried"],
)
def test_where_a_canary_is_not_held_no_case_runs(answer):
    sandbox = Canned(canary=lambda facts: answer)
    with pytest.raises(SandboxError, match=r"canned shuts too little off .* reading a file of th"):
        check_sandbox(lambda: sandbox)
    assert (sandbox.ran, sandbox.closed) == (1, True)


def test_a_sandbox_that_fails_at_a_canary_is_refused():
    def fail(facts):
        raise SandboxError("no worker")

    with pytest.raises(SandboxError, match=r"shuts too little off .* no worker"):
        check_sandbox(lambda: Canned(canary=fail))


def test_a_canary_that_says_held_but_came_through_is_seen():
    def connect(facts):
        socket.create_connection(("127.0.0.1", facts["tcp"])).close()
        return HELD

    with pytest.raises(SandboxError, match="something came to the host's server"):
        check_sandbox(lambda: Canned(canary=connect))


# What programs say


def test_every_program_that_says_it_came_through_is_told():
    programs = [case for case in CASES if case.way in ("alone", "beside") and not case.unless()]
    with Trial(lambda: Canned(lambda facts: Execution("ok", 0, stdout="BROKEN: in\n"))) as trial:
        outcomes = [trial.outcome_of(case) for case in programs]
    assert {(outcome.result, outcome.detail) for outcome in outcomes} == {("broken", "BROKEN: in")}


def test_a_report_has_each_case_and_the_closing():
    report = check_sandbox(lambda: Canned(), only=["endings"])
    assert [outcome.result for outcome in report.outcomes[:-1]] == ["held"] * (
        len(report.outcomes) - 1
    )
    assert len(report.outcomes) == 1 + sum(case.group == "endings" for case in CASES)
    assert report.outcomes[-1].name == "closing"
    assert report.sandbox == "canned"


def test_evidence_is_what_the_program_said_or_how_it_ended():
    assert outcome_where(lambda facts: HELD).detail == "EPERM"
    ended = Execution("timeout", -9, stdout="trying\n", detail="0.4 s were up")
    endless = next(case for case in CASES if case.name == "endless loop")
    assert outcome_where(lambda facts: ended, endless).detail == "timeout -9, 0.4 s were up"


def test_a_sandbox_that_fails_is_broken_and_the_next_case_runs():
    answers = [SandboxError("its worker is gone"), HELD]

    def answer(facts):
        next_one = answers.pop(0)
        if isinstance(next_one, Exception):
            raise next_one
        return next_one

    with Trial(lambda: Canned(answer)) as trial:
        first, second = (trial.outcome_of(ALONE) for _ in range(2))
    assert (first.result, first.detail) == ("broken", "the sandbox failed: its worker is gone")
    assert second.result == "held"


def test_a_plug_in_that_lacks_a_method_is_broken_in_these_cases_only():
    beside = next(case for case in CASES if case.way == "beside")
    sandbox = Canned()
    sandbox.run_pair = None
    with Trial(lambda: sandbox) as trial:
        first, second = trial.outcome_of(beside), trial.outcome_of(ALONE)
    assert first.detail == "the sandbox failed: TypeError: 'NoneType' object is not callable"
    assert second.result == "held"


def test_a_companion_that_fails_is_no_evidence():
    case = next(case for case in CASES if case.way == "after")
    outcome = outcome_where(lambda facts: Execution("nonzero", 1), case)
    assert (outcome.result, outcome.detail) == ("broken", "BROKEN: the call before it failed")


def test_what_this_machine_lacks_is_not_tried():
    case = Case("a", "b", "c", "held('x')", unless=lambda: "there is no such thing")
    outcome = outcome_where(lambda facts: Execution("ok", 0, stdout="BROKEN: ran\n"), case)
    assert (outcome.result, outcome.detail) == ("not tried", "there is no such thing")


def test_what_the_program_could_not_try_is_not_tried():
    said = Execution("ok", 0, stdout="not tried: no home\n")
    outcome = outcome_where(lambda facts: said)
    assert (outcome.result, outcome.detail) == ("not tried", "no home")


def test_trial_skips_functions_in_plug_ins():
    case = next(case for case in CASES if case.way == "function")
    assert outcome_where(lambda facts: HELD, case).result == "not tried"


# What shows on this side


def connect_by_path(facts):
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(facts["stream"])


def send_datagram(facts):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.sendto(b"1", ("127.0.0.1", facts["udp"]))


def connect_abstract(facts):
    with socket.socket(socket.AF_UNIX) as line:
        line.connect("\0" + facts["abstract"])


def write_secret(facts):
    with open(facts["secret"], "a") as file:
        file.write("more")


def chmod_secret(facts):
    os.chmod(facts["secret"], 0o600)


def plant(facts):
    with open(os.path.join(facts["folder"], "planted"), "x"):
        pass


def delete(facts):
    os.rename(facts["secret"], facts["secret"] + "2")
    with open(facts["secret"], "x"):
        pass


def end_sleeper(facts):
    os.kill(facts["sleeper"], signal.SIGTERM)
    os.waitid(os.P_PID, facts["sleeper"], os.WEXITED | os.WNOWAIT)


def signal_sleeper(facts):
    os.kill(facts["sleeper"], signal.SIGURG)


def slow_sleeper(facts):
    os.setpriority(os.PRIO_PROCESS, facts["sleeper"], 3)


def limit_sleeper(facts):
    import resource

    soft, hard = resource.prlimit(facts["sleeper"], resource.RLIMIT_CORE)
    resource.prlimit(facts["sleeper"], resource.RLIMIT_CORE, (0, hard if soft == 0 else soft))
    resource.prlimit(facts["sleeper"], resource.RLIMIT_NOFILE, (100, 100))


@linux
@pytest.mark.parametrize(
    ("disturb", "said"),
    [
        (connect_by_path, "something came to the host's server"),
        (connect_abstract, "something came to the host's server"),
        (send_datagram, "something came to the host's server"),
        (write_secret, "the host's file changed"),
        (chmod_secret, "the host's file changed"),
        (plant, "the host's folder changed"),
        (delete, "the host's file, folder changed"),
        (end_sleeper, "the host's process was ended"),
        (signal_sleeper, "the host's process changed"),
        (slow_sleeper, "the host's process changed"),
        (limit_sleeper, "the host's process changed"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_what_is_done_to_the_host_is_seen_whatever_was_said(disturb, said):
    def answer(facts):
        disturb(facts)
        return HELD

    outcome = outcome_where(answer)
    assert outcome.result == "broken"
    assert said in outcome.detail


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_secret_that_is_printed_is_seen(stream):
    def answer(facts):
        with open(facts["secret"]) as file:
            secret = file.read()
        return Execution("ok", 0, **{"stdout": "held: EPERM\n", stream: f"held: {secret}\n"})

    outcome = outcome_where(answer)
    assert (outcome.result, outcome.detail) == ("broken", "the host's secret was printed")


@contextmanager
def left_behind(facts):
    """A process that bears the name which the preamble gives."""
    code = (
        "import sys; open('/proc/self/comm', 'w').write(sys.argv[1]); "
        "print('ready', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, facts["mark"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        yield
        process.stdin.close()


@linux
def test_a_process_that_is_left_running_is_seen(monkeypatch):
    monkeypatch.setattr("guerdon.sandbox.conformance.host._GRACE", 0.05)
    left = []

    def answer(facts):
        left.append(left_behind(facts))
        left[0].__enter__()
        return HELD

    outcome = outcome_where(answer)
    left[0].__exit__(None, None, None)
    assert outcome.result == "broken"
    assert outcome.detail.startswith("left running: ")


@linux
def test_processes_and_descriptors_left_by_closing_are_seen(monkeypatch):
    monkeypatch.setattr("guerdon.sandbox.conformance.host._GRACE", 0.05)
    with Trial(Canned) as trial:
        descriptor = os.open(os.devnull, os.O_RDONLY)
        first = trial.close()
        os.close(descriptor)
        with left_behind({"mark": "other"}):
            second = trial.close()
        third = trial.close()
    assert first.detail == f"descriptors are left: {descriptor}"
    assert second.detail.startswith("processes are left: ")
    assert (third.result, third.detail) == ("held", "nothing is left")


def test_more_output_than_allowed_is_broken():
    outcome = outcome_where(lambda facts: Execution("ok", 0, "held: x\n", "y" * 300_000))
    assert outcome.result == "broken"
    assert "300008 bytes came out, of 65536" in outcome.detail


def test_more_time_than_allowed_is_broken(monkeypatch):
    def answer(facts):
        monkeypatch.setattr("guerdon.sandbox.conformance.trial._SLACK", -10.0)
        return HELD

    outcome = outcome_where(answer)
    assert (outcome.result, outcome.detail) == ("broken", "it took 0.0 s, of 4 s")


# What is put up, and taken down


def test_all_that_is_put_up_is_taken_down():
    before = dict(os.environ)
    with Host() as host:
        facts = host.facts
        assert os.path.exists(facts["secret"])
        assert os.environ[facts["variable"]] == host.secret
        assert os.get_inheritable(facts["descriptor"])
        os.kill(facts["sleeper"], 0)
        assert json.loads(json.dumps(facts)) == facts
    assert not os.path.exists(facts["folder"])
    assert facts["at_home"] is None or not os.path.exists(facts["at_home"])
    assert dict(os.environ) == before
    with pytest.raises(ProcessLookupError):
        os.kill(facts["sleeper"], 0)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(facts["descriptor"])


def test_a_host_that_nobody_touches_is_not_disturbed():
    with Host() as host:
        assert [host.disturbed(), host.disturbed(), host.left_running(), host.left_open()] == (
            [None] * 4
        )


def test_a_name_that_is_none_is_refused_with_what_is_near():
    with pytest.raises(InvalidArgumentError, match="'TCP conection' is no case and no group; near"):
        check_sandbox(Canned, only=["TCP conection"])


def test_groups_and_names_choose_the_cases():
    report = check_sandbox(Canned, only=["DNS", "io_uring"])
    assert [outcome.name for outcome in report.outcomes] == ["DNS", "io_uring", "closing"]
