# ruff: noqa: E501  (programs, a line each)
"""What comes from outside: kills, stops, forks, ctrl-C, the end of the host."""

import os
import signal
import sys
import threading

import pytest

from guerdon import Limits, open_sandbox
from guerdon.errors import SandboxError
from guerdon.sandbox import worker as workers
from guerdon.sandbox.supervisor.processes import children, members

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")

WAITS = "import threading; threading.Event().wait()"


class Running:
    """A run in a thread of its own; who it consists of is asked of the kernel."""

    def __init__(self, sandbox, program=WAITS, **limits):
        self.outcome = None
        self.thread = threading.Thread(target=self._run, args=(sandbox, program, limits))
        self.thread.start()

    def _run(self, sandbox, program, limits):
        try:
            self.outcome = sandbox.run(program, limits=Limits(**{"seconds": 60} | limits))
        except SandboxError as error:
            self.outcome = error

    def ended(self):
        self.thread.join(20)
        assert not self.thread.is_alive()
        return self.outcome


@pytest.fixture
def sandbox(level):
    before = set(children(os.getpid()))
    with open_sandbox(level, workers=1) as sandbox:
        [supervisor] = set(children(os.getpid())) - before
        sandbox.supervisor = supervisor
        yield sandbox


def call_of(sandbox, until):
    return until(lambda: next(iter(children(sandbox.supervisor)), None))


def test_run_raises_sandbox_error_for_a_killed_call(sandbox, until):
    running = Running(sandbox)
    os.kill(call_of(sandbox, until), signal.SIGKILL)
    error = running.ended()
    assert isinstance(error, SandboxError)
    assert error.execution.ending == "sandbox_error"
    assert "killed from outside" in str(error) or "before it was set up" in str(error)
    assert sandbox.run("print(1)").stdout == "1\n"


def test_run_leaves_a_killed_child_to_the_program(sandbox, until):
    program = (
        "import os\nif not os.fork():\n    import threading; threading.Event().wait()\n"
        "print(os.waitstatus_to_exitcode(os.wait()[1]))"
    )
    running = Running(sandbox, program)
    child = until(lambda: next(iter(children(call_of(sandbox, until))), None))
    os.kill(child, signal.SIGKILL)
    assert running.ended().stdout == "-9\n"


def test_run_ends_all_processes_of_a_killed_supervisor(sandbox, until, alive):
    running = Running(sandbox)
    call = call_of(sandbox, until)
    os.kill(sandbox.supervisor, signal.SIGKILL)
    error = running.ended()
    assert isinstance(error, SandboxError)
    assert error.execution.ending == "sandbox_error"
    until(lambda: not alive(call))
    assert sandbox.run("print(1)").stdout == "1\n"


def test_run_replaces_a_supervisor_killed_between_calls(sandbox, until, alive):
    os.kill(sandbox.supervisor, signal.SIGKILL)
    until(lambda: not alive(sandbox.supervisor))
    outcomes = []
    for _ in range(2):
        try:
            outcomes.append(sandbox.run("print(1)").stdout)
        except SandboxError as error:
            outcomes.append(error.execution.ending)
    assert outcomes[-1] == "1\n"


def test_run_gives_up_a_stopped_supervisor(sandbox, until, alive, monkeypatch):
    monkeypatch.setattr(workers, "GRACE", 0.2)
    running = Running(sandbox, seconds=0.2)
    call = call_of(sandbox, until)
    os.kill(sandbox.supervisor, signal.SIGSTOP)
    error = running.ended()
    assert isinstance(error, SandboxError)
    assert "doesn't answer" in str(error)
    until(lambda: not alive(call) and not alive(sandbox.supervisor))
    monkeypatch.undo()
    assert sandbox.run("print(1)").stdout == "1\n"


def test_run_ends_a_stopped_call_at_its_time(sandbox, until):
    running = Running(sandbox, seconds=0.3)
    os.kill(call_of(sandbox, until), signal.SIGSTOP)
    assert running.ended().ending == "timeout"


def test_run_isolates_calls_from_a_killed_one(level, until):
    before = set(children(os.getpid()))
    with open_sandbox(level, workers=2) as sandbox:
        [first] = set(children(os.getpid())) - before
        one = Running(sandbox)
        victim = until(lambda: next(iter(children(first)), None))
        other = Running(sandbox, "print(input())")
        os.kill(victim, signal.SIGKILL)
        assert isinstance(one.ended(), SandboxError)
        assert other.ended().stderr.endswith("EOFError: EOF when reading a line\n")
        assert sandbox.run("print(1)").stdout == "1\n"


HOST = """
import os, sys
from guerdon import Limits, open_sandbox
sandbox = open_sandbox(sys.argv[1], workers=1)
print("open", flush=True)
program = "import os, threading\\nif not os.fork(): threading.Event().wait()\\nthreading.Event().wait()"
"""


def all_of(host, until, count=3):
    """The ids of a host's supervisor, call and the call's child."""
    assert host.stdout.readline() == "open\n"
    return until(lambda: found if len(found := set(members(host.pid))) >= count else None)


def test_worker_ends_with_a_killed_host(level, host, until, alive, temporary):
    process = host(
        HOST + "sandbox.run(program, limits=Limits(seconds=60))", level, temporary=temporary
    )
    found = all_of(process, until)
    process.kill()
    until(lambda: not any(map(alive, found)))
    until(lambda: not list(temporary.iterdir()))


def test_run_ends_on_ctrl_c(level, host, until, alive, temporary):
    text = (
        HOST
        + """
try:
    sandbox.run(program, limits=Limits(seconds=60))
except KeyboardInterrupt:
    print("interrupted", flush=True)
print(sandbox.run("print(6 * 7)").stdout, end="", flush=True)
sandbox.close()
"""
    )
    process = host(text, level, temporary=temporary)
    found = all_of(process, until)
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "interrupted\n"
    until(lambda: not any(map(alive, found)))
    assert process.stdout.readline() == "42\n"
    assert process.wait(20) == 0
    assert process.stderr.read() == ""
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("how", ["", "del sandbox\nimport gc; gc.collect()", "import os; os._exit(0)"],
                         ids=["exit", "collected", "_exit"])  # fmt: skip
def test_open_sandbox_without_close_leaves_nothing(level, host, until, alive, temporary, how):
    process = host(HOST + "input()\n" + how, level, temporary=temporary)
    found = all_of(process, until, 1)
    _, errors = process.communicate("\n", timeout=20)
    assert process.returncode == 0
    assert errors == ""
    until(lambda: not any(map(alive, found)))
    until(lambda: not list(temporary.iterdir()))


def test_run_raises_in_a_forked_host(level, host):
    text = (
        HOST
        + """
from guerdon.errors import SandboxError
child = os.fork()
if not child:
    try:
        sandbox.run("print(1)")
        print("ran", flush=True)
    except SandboxError as error:
        print(error, flush=True)
    sandbox.close()
    os._exit(0)
os.waitpid(child, 0)
print(sandbox.run("print(6 * 7)").stdout, end="", flush=True)
sandbox.close()
"""
    )
    process = host(text, level)
    out, errors = process.communicate(timeout=20)
    assert errors == ""
    _, error, answer = out.splitlines()
    assert "forked" in error
    assert answer == "42"


def test_open_sandbox_works_in_a_spawned_process(level, host, tmp_path):
    main = tmp_path / "main.py"
    main.write_text(
        "import multiprocessing, sys\nfrom guerdon import open_sandbox\n"
        "def work(end, level):\n"
        "    with open_sandbox(level, workers=1) as sandbox: end.send(sandbox.run('print(1)').stdout)\n"
        "    end.close()\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context('spawn')\n    here, there = context.Pipe()\n"
        "    with open_sandbox(sys.argv[1], workers=1) as sandbox:\n"
        "        process = context.Process(target=work, args=(there, sys.argv[1]))\n"
        "        process.start(); print(here.recv(), end=''); process.join()\n"
        "        print(sandbox.run('print(2)').stdout, process.exitcode)\n"
        "    here.close(); there.close(); process.close()"
    )
    text = f"import runpy, sys; sys.argv[0] = {str(main)!r}; runpy.run_path(sys.argv[0], run_name='__main__')"
    process = host(text, level)
    out, errors = process.communicate(timeout=60)
    assert (out, errors) == ("1\n2\n 0\n", "")
