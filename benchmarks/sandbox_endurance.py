"""Resources that 1,000 programs, and 1,000 calls of a function, leave behind.

The programs end in all possible ways. The state after the last one is compared with the state after
the 100th: processes, files, open descriptors, and the memory of this process, of the supervisor,
and of the process from which calls are forked. After the sandbox is closed, no process, file or
descriptor of it may be left.
"""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.sandbox_reward import conversation
from benchmarks.server_process import missing
from benchmarks.timing import Counted, Findings
from guerdon import EvalSandbox, Limits, open_sandbox
from guerdon.sandbox.supervisor.processes import members
from guerdon.types import read_messages

RUNS = 1_000
FIRST = 100
FILE = Path(__file__).with_name("sandbox_reward.py")
MEMORY_GROWTH = 5e6  # bytes

LIMITS = Limits(seconds=2, memory_bytes=64 << 20, output_bytes=10_000, files=10)
SHORT = Limits(seconds=0.05)

# Programs with their endings.
PROGRAMS = {
    "print('well')": "ok",
    "import sys; sys.exit(3)": "nonzero",
    "raise ValueError('no')": "nonzero",
    "import os; os._exit(0)": "ok",
    "open('a', 'w').write('a' * 1000); open('b', 'w')": "ok",
    "import os; os.mkdir('c'); [open(f'c/{n}', 'w') for n in range(99)]": "output_limit",
    "print('x' * 100_000)": "output_limit",
    "import os, signal; os.kill(os.getpid(), signal.SIGTERM)": "signal",
    "x = bytearray(1 << 30)": "memory",
    "import os, time\nif os.fork() == 0: time.sleep(60)": "ok",
    "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    "": "ok",
}
LOOP = "while True: pass"  # with the limits SHORT


@dataclass(slots=True)
class Usage:
    """The resources in use, without processes that existed before.

    Attributes:
        processes: The number of descendants of this process.
        files: The number of files and folders in the sandboxes' folder.
        descriptors: The number of open descriptors of this process and its descendants.
        memory: The resident memory in bytes of this process and each descendant, parents first.
    """

    processes: int = 0
    files: int = 0
    descriptors: int = 0
    memory: list[int] = field(default_factory=list)


def run() -> Findings:
    """Run the benchmark."""
    reason = missing()
    if reason:
        name = f"{RUNS:,} runs, resources left behind"
        return Findings([Counted(name, "after the 100th", 0, missing=reason)])
    with _folder() as folder:
        return Findings([*_programs(folder), *_calls(folder)])


def _programs(folder: Path) -> list[Counted]:
    others = set(members(os.getpid()))
    before = _usage(folder, others)
    with open_sandbox("strict", workers=1, limits=LIMITS) as sandbox:
        programs = [*PROGRAMS.items()]

        def one(number: int) -> bool:
            if number % 25 == 0:
                return sandbox.run(LOOP, limits=SHORT).ending == "timeout"
            program, ending = programs[number % len(programs)]
            return sandbox.run(program).ending == ending

        wrong, at_first, at_last = _run_all(one, folder, others)
    after = _usage(folder, others)
    title = f"{RUNS:,} programs"
    lines = _lines(title, ("this process", "the supervisor"), at_first, at_last)
    return [Counted(f"{title}, other endings", "", 0, wrong), *lines, _all(title, before, after)]


def _calls(folder: Path) -> list[Counted]:
    others = set(members(os.getpid()))
    before = _usage(folder, others)
    messages, truth = conversation(0)
    given = read_messages(messages, "messages")
    with EvalSandbox(f"{FILE}:brief", level="strict") as sandbox:
        wrong, at_first, at_last = _run_all(
            lambda _: sandbox.evaluate(given, truth).score is not None, folder, others
        )
    after = _usage(folder, others)
    title = f"{RUNS:,} calls"
    lines = _lines(title, ("this process", "the supervisor", "the template"), at_first, at_last)
    return [Counted(f"{title}, without a score", "", 0, wrong), *lines, _all(title, before, after)]


def _run_all(
    one: Callable[[int], bool], folder: Path, others: set[int]
) -> tuple[int, Usage, Usage]:
    """Run all; return the number of failures, and the usage after the 100th and the last run."""
    wrong, at_first = 0, Usage()
    for number in range(1, RUNS + 1):
        wrong += not one(number)
        if number == FIRST:
            at_first = _usage(folder, others)
    return wrong, at_first, _usage(folder, others)


def _lines(title: str, names: tuple[str, ...], first: Usage, last: Usage) -> Iterator[Counted]:
    against = f"after the {FIRST}th"
    for resource in ("processes", "files", "descriptors"):
        yield Counted(
            f"{title}, {resource}", against, 0, getattr(last, resource), getattr(first, resource)
        )
    for name, ours, theirs in zip(names, last.memory, first.memory, strict=True):
        yield Counted(f"{title}, memory of {name}", against, MEMORY_GROWTH, ours, theirs, "B")


def _all(title: str, before: Usage, after: Usage) -> Counted:
    """Compare the resources before opening and after closing the sandbox."""
    ours, theirs = (each.processes + each.files + each.descriptors for each in (after, before))
    return Counted(f"{title}, all three when closed", "before it was opened", 0, ours, theirs)


@contextmanager
def _folder() -> Iterator[Path]:
    """Create a temporary folder in which sandboxes create theirs."""
    usual = tempfile.tempdir
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o711)  # if this is root, calls run as another user
        tempfile.tempdir = folder
        try:
            yield Path(folder)
        finally:
            tempfile.tempdir = usual


def _usage(folder: Path, others: set[int]) -> Usage:
    gc.collect()
    descendants = [pid for pid in members(os.getpid()) if pid not in others]
    pids = [os.getpid(), *descendants]
    return Usage(
        processes=len(descendants),
        files=len([*folder.rglob("*")]),
        descriptors=sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids),
        memory=[_resident(pid) for pid in pids],
    )


def _resident(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
