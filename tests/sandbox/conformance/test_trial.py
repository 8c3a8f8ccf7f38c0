"""A trial detects successful attacks, even if the programs don't report them.

The sandboxes here run no programs: their executions are made up, and what they do to the host, they
do to the targets of the trial.
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
from tests.sandbox.conformance import CASES, Trial, check_sandbox
from tests.sandbox.conformance.host import Host

ALONE = next(case for case in CASES if case.name == "a foreign file")
PASSED = Execution("ok", 0, stdout="passed: EPERM\n")

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


class Canned:
    """A sandbox that runs nothing and returns made-up executions.

    Args:
        then: Returns the execution of a case, given the facts.
        canary: Returns the execution of a canary.
    """

    level = promise = "canned"

    def __init__(self, then=lambda facts: PASSED, canary=lambda facts: PASSED):
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


def outcome_of(then, case=ALONE):
    sandbox = Canned(then)
    with Trial(lambda: sandbox) as trial:
        outcome = trial.outcome_of(case)
    assert sandbox.closed
    return outcome


# The canaries


@pytest.mark.parametrize(
    "answer",
    [
        Execution("ok", 0, stdout="FAILED: read gave b'secret'\n"),
        Execution("ok", 0),
        Execution("nonzero", 1, stderr="SyntaxError"),
        Execution("ok", 0, stdout="skipped: so\n"),
    ],
    ids=["open", "silent", "crashed", "skipped"],
)
def test_check_sandbox_runs_no_case_if_a_canary_fails(answer):
    sandbox = Canned(canary=lambda facts: answer)
    with pytest.raises(SandboxError, match=r"canned isolates too little .* a foreign file"):
        check_sandbox(lambda: sandbox)
    assert (sandbox.ran, sandbox.closed) == (1, True)


def test_check_sandbox_with_a_sandbox_that_fails_at_a_canary():
    def fail(facts):
        raise SandboxError("no worker")

    with pytest.raises(SandboxError, match=r"isolates too little .* no worker"):
        check_sandbox(lambda: Canned(canary=fail))


def test_check_sandbox_detects_a_canary_that_claims_to_pass():
    def connect(facts):
        socket.create_connection(("127.0.0.1", facts["tcp"])).close()
        return PASSED

    with pytest.raises(SandboxError, match="something came to the host's server"):
        check_sandbox(lambda: Canned(canary=connect))


# What programs report


def test_trial_reports_each_program_that_succeeds():
    programs = [case for case in CASES if case.way in ("alone", "beside")]
    with Trial(lambda: Canned(lambda facts: Execution("ok", 0, stdout="FAILED: in\n"))) as trial:
        outcomes = [trial.outcome_of(case) for case in programs]
    assert {(outcome.result, outcome.detail) for outcome in outcomes} == {("failed", "FAILED: in")}


def test_check_sandbox_reports_each_case_and_the_closing():
    report = check_sandbox(lambda: Canned(), only=["endings"])
    assert [outcome.result for outcome in report.outcomes[:-1]] == ["passed"] * (
        len(report.outcomes) - 1
    )
    assert len(report.outcomes) == 1 + sum(case.group == "endings" for case in CASES)
    assert report.outcomes[-1].name == "closing"
    assert report.sandbox == "canned"


def test_trial_details_are_the_result_or_the_ending():
    assert outcome_of(lambda facts: PASSED).detail == "EPERM"
    ended = Execution("timeout", -9, stdout="trying\n", detail="0.4 s were up")
    endless = next(case for case in CASES if case.name == "endless loop")
    assert outcome_of(lambda facts: ended, endless).detail == "timeout -9, 0.4 s were up"


def test_trial_goes_on_after_a_sandbox_error():
    answers = [SandboxError("its worker is gone"), PASSED]

    def answer(facts):
        next_one = answers.pop(0)
        if isinstance(next_one, Exception):
            raise next_one
        return next_one

    with Trial(lambda: Canned(answer)) as trial:
        first, second = (trial.outcome_of(ALONE) for _ in range(2))
    assert (first.result, first.detail) == ("failed", "the sandbox failed: its worker is gone")
    assert second.result == "passed"


def test_trial_goes_on_with_a_plug_in_that_lacks_a_method():
    beside = next(case for case in CASES if case.way == "beside")
    sandbox = Canned()
    sandbox.run_pair = None
    with Trial(lambda: sandbox) as trial:
        first, second = trial.outcome_of(beside), trial.outcome_of(ALONE)
    assert first.detail == "the sandbox failed: TypeError: 'NoneType' object is not callable"
    assert second.result == "passed"


def test_trial_with_a_companion_that_fails():
    case = next(case for case in CASES if case.way == "after")
    outcome = outcome_of(lambda facts: Execution("nonzero", 1), case)
    assert (outcome.result, outcome.detail) == ("failed", "FAILED: the call before it failed")


def test_trial_skips_what_the_program_cannot_try():
    skipped = Execution("ok", 0, stdout="skipped: no home\n")
    outcome = outcome_of(lambda facts: skipped)
    assert (outcome.result, outcome.detail) == ("skipped", "no home")


def test_trial_skips_functions_in_plug_ins():
    case = next(case for case in CASES if case.way == "function")
    assert outcome_of(lambda facts: PASSED, case).result == "skipped"


# What the host observes


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
    ("disturb", "detail"),
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
def test_trial_detects_what_is_done_to_the_host(disturb, detail):
    def answer(facts):
        disturb(facts)
        return PASSED

    outcome = outcome_of(answer)
    assert outcome.result == "failed"
    assert detail in outcome.detail


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_trial_detects_a_printed_secret(stream):
    def answer(facts):
        with open(facts["secret"]) as file:
            secret = file.read()
        return Execution("ok", 0, **{"stdout": "passed: EPERM\n", stream: f"passed: {secret}\n"})

    outcome = outcome_of(answer)
    assert (outcome.result, outcome.detail) == ("failed", "the host's secret was printed")


@contextmanager
def left_behind(facts):
    """Start a process with the name that the preamble gives."""
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
def test_trial_detects_a_process_that_is_left_running(monkeypatch):
    monkeypatch.setattr("tests.sandbox.conformance.host._GRACE", 0.05)
    left = []

    def answer(facts):
        left.append(left_behind(facts))
        left[0].__enter__()
        return PASSED

    outcome = outcome_of(answer)
    left[0].__exit__(None, None, None)
    assert outcome.result == "failed"
    assert outcome.detail.startswith("left running: ")


@linux
def test_trial_close_detects_processes_and_descriptors(monkeypatch):
    monkeypatch.setattr("tests.sandbox.conformance.host._GRACE", 0.05)
    with Trial(Canned) as trial:
        descriptor = os.open(os.devnull, os.O_RDONLY)
        first = trial.close()
        os.close(descriptor)
        with left_behind({"mark": "other"}):
            second = trial.close()
        third = trial.close()
    assert first.detail == f"descriptors are left: {descriptor}"
    assert second.detail.startswith("processes are left: ")
    assert (third.result, third.detail) == ("passed", "nothing is left")


def test_trial_detects_more_output_than_allowed():
    outcome = outcome_of(lambda facts: Execution("ok", 0, "passed: x\n", "y" * 300_000))
    assert outcome.result == "failed"
    assert "300010 bytes came out, the limit is 65536" in outcome.detail


def test_trial_detects_more_time_than_allowed(monkeypatch):
    def answer(facts):
        monkeypatch.setattr("tests.sandbox.conformance.trial._SLACK", -10.0)
        return PASSED

    outcome = outcome_of(answer)
    assert (outcome.result, outcome.detail) == ("failed", "it took 0.0 s, the limit is 4 s")


# The targets


def test_host_removes_all_its_targets():
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


def test_host_disturbed_without_a_case():
    with Host() as host:
        assert [host.disturbed(), host.disturbed(), host.left_running(), host.left_open()] == (
            [None] * 4
        )


def test_check_sandbox_suggests_a_similar_name():
    with pytest.raises(
        InvalidArgumentError, match="unknown case or group 'TCP conection' in only; did"
    ):
        check_sandbox(Canned, only=["TCP conection"])


def test_check_sandbox_only_selects_groups_and_cases():
    report = check_sandbox(Canned, only=["DNS", "io_uring"])
    assert [outcome.name for outcome in report.outcomes] == ["DNS", "io_uring", "closing"]
