"""How runs end: each ending, by each way that leads there."""

import dataclasses
import json
import os
import sys

import pytest

from guerdon import Limits
from guerdon.sandbox import Execution

MIB = 1 << 20

# Each: a name, the program, its limits, and what is so of its execution.
CASES = [
    ("nothing", "", {}, {"ending": "ok", "exit_code": 0, "detail": None}),
    ("prints", "print(6 * 7)", {}, {"ending": "ok", "stdout": "42\n", "stderr": ""}),
    ("exit code", "raise SystemExit(3)", {}, {"ending": "nonzero", "exit_code": 3,
        "detail": "it exited with code 3"}),
    ("exception", "1 / 0", {}, {"ending": "nonzero", "exit_code": 1}),
    ("sys.exit(None)", "import sys; sys.exit(None)", {}, {"ending": "ok", "exit_code": 0}),
    ("sys.exit(256)", "import sys; sys.exit(256)", {}, {"ending": "ok", "exit_code": 0}),
    ("sys.exit(-1)", "import sys; sys.exit(-1)", {}, {"ending": "nonzero", "exit_code": 255}),
    ("sys.exit(text)", "import sys; sys.exit('why')", {}, {"ending": "nonzero", "exit_code": 1,
        "stderr": "why\n"}),
    ("exit", "print(1); exit()", {}, {"ending": "ok", "stdout": "1\n", "stderr": ""}),
    ("quit", "quit(7)", {}, {"ending": "nonzero", "exit_code": 7, "stderr": ""}),
    ("os._exit", "import os; print(1, flush=True); os._exit(7)", {}, {"ending": "nonzero",
        "exit_code": 7, "stdout": "1\n"}),
    ("os._exit(0)", "import os; os._exit(0)", {}, {"ending": "ok", "exit_code": 0}),
    ("os._exit in a thread",
        "import os, threading\nthreading.Thread(target=os._exit, args=(7,)).start()\n"
        "threading.Event().wait()",
        {}, {"ending": "nonzero", "exit_code": 7}),
    ("syntax error", "def (:", {}, {"ending": "nonzero", "exit_code": 1}),
    ("recursion", "def f(): f()\nf()", {}, {"ending": "nonzero", "exit_code": 1}),
    ("segfault", "import ctypes; ctypes.string_at(0)", {}, {"ending": "signal", "exit_code": -11,
        "detail": "it was killed by signal 11 (SIGSEGV)"}),
    ("abort", "import os; os.abort()", {}, {"ending": "signal", "exit_code": -6}),
    ("terminated", "import os; os.kill(os.getpid(), 15)", {}, {"ending": "signal",
        "exit_code": -15, "detail": "it was killed by signal 15 (SIGTERM)"}),
    ("SIGSYS", "import os; os.kill(os.getpid(), 31)", {}, {"ending": "signal", "exit_code": -31}),
    ("its own SIGXCPU", "import os, signal; os.kill(os.getpid(), signal.SIGXCPU)", {},
        {"ending": "signal", "exit_code": -24}),
    ("real-time signal", "import os; os.kill(os.getpid(), 40)", {}, {"ending": "signal",
        "exit_code": -40, "detail": "it was killed by signal 40 (40)"}),
    ("sleeps", "import time; time.sleep(60)", {"seconds": 0.1}, {"ending": "timeout",
        "detail": "it was not done within 0.1 s"}),
    ("loops", "while True: pass", {"seconds": 0.1}, {"ending": "timeout"}),
    ("loops in C", "sum(iter(int, 1))", {"seconds": 0.1}, {"ending": "timeout"}),
    ("stops itself", "import os; os.kill(os.getpid(), 19)", {"seconds": 0.1},
        {"ending": "timeout"}),
    ("ignores what it can",
        "import signal\nfor each in signal.valid_signals() - {9, 19}:\n"
        "    signal.signal(each, signal.SIG_IGN)\nwhile True: pass",
        {"seconds": 0.1}, {"ending": "timeout"}),
    ("waits for its thread", "import threading\nthreading.Thread(target=threading.Event().wait)"
        ".start()", {"seconds": 0.1}, {"ending": "timeout"}),
    ("processor time", "while True: pass", {"seconds": 30, "cpu_seconds": 0.1},
        {"ending": "timeout", "detail": "it used more than 0.1 s of processor time"}),
    ("processor time of forks", "import os\nos.fork()\nwhile True: pass",
        {"seconds": 30, "cpu_seconds": 0.1}, {"ending": "timeout"}),
    ("processor time, signals ignored",
        "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\n"
        "signal.signal(signal.SIGALRM, signal.SIG_IGN)\nwhile True: pass",
        {"seconds": 30, "cpu_seconds": 0.1}, {"ending": "timeout"}),
    ("memory at once", "bytearray(1 << 40)", {}, {"ending": "memory", "exit_code": 1}),
    ("memory that it catches",
        "try: bytearray(1 << 40)\nexcept MemoryError: print('caught')",
        {}, {"ending": "ok", "stdout": "caught\n"}),
    ("memory bit by bit", "x = []\nwhile True: x.append(bytearray(1 << 20))",
        {"memory_bytes": 48 * MIB}, {"ending": "memory"}),
    ("memory of forks",
        "import os, threading\nfor _ in range(3):\n    if not os.fork(): break\n"
        "x = b'x' * (30 << 20)\nthreading.Event().wait()",
        {"memory_bytes": 64 * MIB}, {"ending": "memory",
        "detail": "it used more than 64 MiB of memory"}),
    ("memory of threads",
        "import threading\nkept = []\ndef grow():\n    kept.append(b'x' * (30 << 20))\n"
        "    threading.Event().wait()\nfor _ in range(3): threading.Thread(target=grow).start()",
        {"memory_bytes": 64 * MIB}, {"ending": "memory"}),
    ("memory of orphans",
        "import os, threading\nif not os.fork():\n    if os.fork(): os._exit(0)\n"
        "x = b'x' * (40 << 20)\nthreading.Event().wait()",
        {"memory_bytes": 64 * MIB}, {"ending": "memory"}),
    ("prints too much", "print('x' * 100)", {"output_bytes": 10}, {"ending": "output_limit",
        "exit_code": None, "stdout": "x" * 10, "detail": "it printed more than 10 bytes"}),
    ("prints as much as it may", "print('x' * 9)", {"output_bytes": 10}, {"ending": "ok"}),
    ("errors too long", "import sys; sys.stderr.write('x' * 100)", {"output_bytes": 10},
        {"ending": "output_limit", "stderr": "x" * 10}),
    ("both streams too long",
        "import os\nos.write(1, b'x' * 8)\nos.write(2, b'y' * 8)\nimport time; time.sleep(60)",
        {"output_bytes": 12}, {"ending": "output_limit"}),
    ("flood", "while True: print('x' * 1000)", {"output_bytes": 5000}, {"ending": "output_limit"}),
    ("flood of forks", "import os\nos.fork()\nwhile True: os.write(2, b'x' * 1000)",
        {"output_bytes": 5000}, {"ending": "output_limit"}),
    ("files", "for i in range(5): open(str(i), 'w').close()", {"files": 4},
        {"ending": "output_limit", "detail": "it made more than 4 files"}),
    ("as many files as it may", "for i in range(4): open(str(i), 'w').close()", {"files": 4},
        {"ending": "ok"}),
    ("folders", "import os\nfor i in range(5): os.mkdir(str(i)); os.chdir(str(i))", {"files": 4},
        {"ending": "output_limit"}),
    ("files without end", "import itertools\nfor i in itertools.count(): open(str(i), 'w').close()",
        {"seconds": 30}, {"ending": "output_limit"}),
    ("folders in folders without end",
        "import os\nwhile True: os.mkdir('a' * 200); os.chdir('a' * 200)",
        {"seconds": 30}, {"ending": "output_limit"}),
    ("bytes in files together", "for i in range(3): open(str(i), 'wb').write(b'x' * 500)",
        {"file_bytes": 1000}, {"ending": "output_limit",
        "detail": "it wrote more than 1000 bytes into files"}),
    ("bytes in one file", "open('a', 'wb').write(b'x' * 5000)", {"file_bytes": 1000},
        {"ending": "output_limit"}),
    ("as many bytes as it may", "open('a', 'wb').write(b'x' * 8192)", {"file_bytes": 8192},
        {"ending": "ok"}),
    ("bytes in files that are deleted",
        "import os, time\nkept = []\nfor i in range(20):\n    file = open('a', 'wb', 0)\n"
        "    file.write(b'x' * 500); os.unlink('a'); kept.append(file)\ntime.sleep(60)",
        {"file_bytes": 1000}, {"ending": "output_limit"}),
    ("child goes on", "import os, time\nif not os.fork(): time.sleep(60)\nprint('done')", {},
        {"ending": "ok", "stdout": "done\n"}),
    ("child ends otherwise", "import os\nif not os.fork(): os._exit(5)\nos.wait()", {},
        {"ending": "ok"}),
    ("closes everything", "import os; os.closerange(0, 1024)", {}, {"ending": "ok"}),
    ("closes its errors and fails", "import os; os.close(2); 1 / 0", {}, {"ending": "nonzero",
        "exit_code": 1}),
    ("closes its output and prints", "import os; os.close(1); print(1)", {}, {"ending": "nonzero",
        "exit_code": 120}),
    ("no output any more", "import sys; del sys.stdout", {}, {"ending": "ok"}),
    ("an output that fails",
        "import sys\nclass Broken:\n    def flush(self): raise RuntimeError\nsys.stdout = Broken()",
        {}, {"ending": "nonzero", "exit_code": 120}),
]  # fmt: skip
NAMED = {name: (program, limits, so) for name, program, limits, so in CASES}


@pytest.mark.parametrize("name", NAMED)
def test_run_reports_each_ending(shared, name):
    program, limits, so = NAMED[name]
    execution = shared.run(program, limits=Limits(**limits))
    assert {key: getattr(execution, key) for key in so} == so, execution
    assert len(execution.stdout) + len(execution.stderr) <= Limits(**limits).output_bytes
    assert execution.seconds > 0
    assert execution.cpu_seconds >= 0


def test_run_counts_shared_memory(shared):
    program = (
        "import mmap, threading\nm = mmap.mmap(-1, 100 << 20)\n"
        "for at in range(0, 100 << 20, 4096): m[at] = 1\nthreading.Event().wait()"
    )
    execution = shared.run(program, limits=Limits(memory_bytes=64 * MIB))
    refused = execution.stderr.endswith("PermissionError: [Errno 1] Operation not permitted\n")
    assert execution.ending == "memory" or (shared.level == "strict" and refused), execution


def test_run_compiles_a_file_of_many_lines(shared):
    execution = shared.run("x = 1\n" * 20_000 + "print(x)")
    assert execution.stdout == "1\n"


def test_execution_reports_what_was_used(shared):
    execution = shared.run(
        "import time\nx = b'x' * (40 << 20)\nuntil = time.process_time() + 0.1\n"
        "while time.process_time() < until: pass\nuntil = time.monotonic() + 0.1\n"
        "while time.monotonic() < until: time.sleep(0.01)"
    )
    assert 0.2 <= execution.seconds < 5
    assert 0.1 <= execution.cpu_seconds < 1
    assert 40 * MIB <= execution.peak_memory_bytes < 60 * MIB


def test_execution_includes_processor_time_of_children(shared):
    execution = shared.run(
        "import os, time\nif not os.fork():\n    while time.process_time() < 0.1: pass\n"
        "    os._exit(0)\nos.wait()"
    )
    assert execution.cpu_seconds >= 0.1


def test_execution_keeps_what_was_printed_before_the_end(shared):
    execution = shared.run(
        "import sys\nprint('so far', flush=True)\nprint('and', file=sys.stderr)\nwhile True: pass",
        limits=Limits(seconds=0.3),
    )
    assert (execution.ending, execution.stdout, execution.stderr) == (
        "timeout",
        "so far\n",
        "and\n",
    )


def test_run_does_not_count_the_time_of_another_run(shared):
    for _ in range(3):
        assert shared.run("while True: pass", limits=Limits(cpu_seconds=0.1)).ending == "timeout"
    assert shared.run("print(1)", limits=Limits(cpu_seconds=0.1)).ending == "ok"


def test_run_keeps_the_worker_after_programs_that_print_too_much(shared):
    endings = {
        shared.run("print('x' * 20)", limits=Limits(output_bytes=10)).ending for _ in range(60)
    }
    assert endings == {"output_limit"}
    assert shared.run("print(1)").ending == "ok"


@pytest.mark.parametrize(
    "limits",
    [{"seconds": 1e6}, {"cpu_seconds": 1e6}]
    + [
        {name: 1 << 40}
        for name in ("memory_bytes", "processes", "output_bytes", "file_bytes", "files")
    ],
    ids=lambda limits: "".join(limits),
)
def test_run_accepts_limits_beyond_the_machine(shared, limits):
    assert shared.run("print(1)", limits=Limits(**limits)).stdout == "1\n"


@pytest.mark.parametrize("name", ["memory_bytes", "processes", "output_bytes", "file_bytes"])
def test_run_with_the_lowest_limits_ends(shared, name):
    assert shared.run("", limits=Limits(**{name: 1})).ending == "ok"


# They end before anything is measured.
MANY = {
    "threads": "import threading\nstop = threading.Event()\ncount = 1\ntry:\n"
    "    while count < 60:\n"
    "        threading.Thread(target=stop.wait).start()\n        count += 1\n"
    "except RuntimeError: pass\nstop.set()\nprint(count)",
    "processes": "import os\nreading, writing = os.pipe()\ncount = 1\ntry:\n    while count < 60:\n"
    "        if os.fork() == 0: os.close(writing); os.read(reading, 1); os._exit(0)\n"
    "        count += 1\nexcept OSError: pass\nos.close(writing)\nprint(count)",
}


@pytest.mark.parametrize("kind", MANY)
def test_run_limits_processes_and_threads(shared, kind):
    if shared.level == "process":
        pytest.skip("process measures them at intervals")
    assert shared.run(MANY[kind], limits=Limits(processes=16)).stdout == "16\n"


MANY_AS_A_USER = """
import json, sys
from guerdon import EvalSandbox, Limits, open_sandbox
from guerdon.rubrics import RewardSource
many, limits = json.load(sys.stdin), Limits(processes=16)
with open_sandbox("strict", workers=1, limits=limits) as sandbox:
    exact = sandbox.facts["threads"] == "limited by the kernel"
    found = [int(sandbox.run(each).stdout or 0) for each in many.values()]
lines = many["threads"].replace("print", "return ").splitlines()
source = RewardSource("\\n    ".join(["def f(messages):", *lines]), "f")
for reuse in (False, True):
    with EvalSandbox(source, level="strict", limits=limits, reuse=reuse) as sandbox:
        found.append(int(sandbox.evaluate([]).score or 0))
print(json.dumps([exact, found]))
"""


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root can become another user"
)
def test_run_limits_processes_and_threads_as_an_ordinary_user(as_ordinary_user):
    exact, found = json.loads(as_ordinary_user(MANY_AS_A_USER, stdin=json.dumps(MANY)))
    if not exact:
        pytest.skip("a user namespace is needed, as containers forbid")
    assert found == [16] * 4


FILLS = """
import os, resource, socket

def fill():
    kept, written = [], 0
    try:
        while True:
            kept += socket.socketpair()
            kept[-2].setblocking(False)
            try:
                while True:
                    written += kept[-2].send(b"x" * 65536)
            except BlockingIOError:
                pass
    except OSError:
        return written

print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 2 * fill())
"""


@pytest.mark.parametrize(("processes", "files"), [(1, 64), (16, 64), (32, 32), (64, 16), (100, 16)])
def test_run_with_many_processes_has_fewer_descriptors_in_each(shared, processes, files):
    run = shared.run(FILLS, limits=Limits(processes=processes))
    assert run.ending == "ok", run
    descriptors, buffered = map(int, run.stdout.split())
    assert descriptors == files
    assert buffered * min(processes, 64) <= 220 * MIB  # together, in both directions


def test_execution_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Execution("ok").ending = "nonzero"


AS_A_USER = """
import dataclasses, json, sys
from guerdon import Limits, open_sandbox
level, cases = json.load(sys.stdin)
with open_sandbox(level, workers=1) as sandbox:
    found = [dataclasses.asdict(sandbox.run(case[1], limits=Limits(**case[2]))) for case in cases]
json.dump(found, sys.stdout)
"""


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="this user is an ordinary one already"
)
def test_run_reports_each_ending_as_an_ordinary_user(level, as_ordinary_user):
    executions = json.loads(as_ordinary_user(AS_A_USER, stdin=json.dumps([level, CASES])))
    assert len(executions) == len(CASES)
    for (name, _, _, so), execution in zip(CASES, executions, strict=True):
        assert {key: execution[key] for key in so} == so, (name, execution)
