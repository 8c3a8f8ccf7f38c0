"""1,000 programs, and as many calls of a function, in a row: what they leave behind.

The programs end in all ways there are. What there is after the last is compared with what there was
after the 100th: processes, files, open descriptors, and the memory of this process, of the worker's
own, and of the one that the calls are copies of. When the sandbox is closed, nothing may be left of
what it started and made.
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
MOST_MORE = 5e6  # bytes

LIMITS = Limits(seconds=2, memory_bytes=64 << 20, output_bytes=10_000, files=10)
SHORT = Limits(seconds=0.05)

# Programs, each with the ending that it has.
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
LOOP = "while True: pass"  # under SHORT


@dataclass(slots=True)
class Left:
    """What there is at a moment, without what others had started before.

    Attributes:
        processes: How many there are under this one.
        files: How many files and folders there are where sandboxes have theirs.
        descriptors: How many are open, here and in those processes.
        memory: Bytes that are resident, of this process, then of those, a parent before its child.
    """

    processes: int = 0
    files: int = 0
    descriptors: int = 0
    memory: list[int] = field(default_factory=list)


def run() -> Findings:
    """Measure."""
    why = missing()
    if why:
        name = f"{RUNS:,} runs in a row, what they leave behind"
        return Findings([Counted(name, "after the 100th", 0, missing=why)])
    with _folder() as folder:
        return Findings([*_programs(folder), *_calls(folder)])


def _programs(folder: Path) -> list[Counted]:
    others = set(members(os.getpid()))
    before = _left(folder, others)
    with open_sandbox("strict", workers=1, limits=LIMITS) as sandbox:
        programs = [*PROGRAMS.items()]

        def one(number: int) -> bool:
            if number % 25 == 0:
                return sandbox.run(LOOP, limits=SHORT).ending == "timeout"
            program, ending = programs[number % len(programs)]
            return sandbox.run(program).ending == ending

        wrong, at_first, at_last = _in_a_row(one, folder, others)
    after = _left(folder, others)
    what = f"{RUNS:,} programs"
    lines = _lines(what, ("this process", "the supervisor"), at_first, at_last)
    return [Counted(f"{what}, other endings", "", 0, wrong), *lines, _all(what, before, after)]


def _calls(folder: Path) -> list[Counted]:
    others = set(members(os.getpid()))
    before = _left(folder, others)
    messages, truth = conversation(0)
    given = read_messages(messages, "messages")
    with EvalSandbox(f"{FILE}:brief", level="strict") as sandbox:
        wrong, at_first, at_last = _in_a_row(
            lambda _: sandbox.evaluate(given, truth).score is not None, folder, others
        )
    after = _left(folder, others)
    what = f"{RUNS:,} calls"
    lines = _lines(what, ("this process", "the supervisor", "the template"), at_first, at_last)
    return [Counted(f"{what}, without a score", "", 0, wrong), *lines, _all(what, before, after)]


def _in_a_row(one: Callable[[int], bool], folder: Path, others: set[int]) -> tuple[int, Left, Left]:
    """Run all; return how many went wrong, and what there was after the 100th and the last."""
    wrong, at_first = 0, Left()
    for number in range(1, RUNS + 1):
        wrong += not one(number)
        if number == FIRST:
            at_first = _left(folder, others)
    return wrong, at_first, _left(folder, others)


def _lines(what: str, names: tuple[str, ...], first: Left, last: Left) -> Iterator[Counted]:
    against = f"after the {FIRST}th"
    for left in ("processes", "files", "descriptors"):
        yield Counted(f"{what}, {left}", against, 0, getattr(last, left), getattr(first, left))
    for name, ours, theirs in zip(names, last.memory, first.memory, strict=True):
        yield Counted(f"{what}, memory of {name}", against, MOST_MORE, ours, theirs, "B")


def _all(what: str, before: Left, after: Left) -> Counted:
    """What is left of anything when the sandbox is closed."""
    ours, theirs = (left.processes + left.files + left.descriptors for left in (after, before))
    return Counted(f"{what}, all three when closed", "before it was opened", 0, ours, theirs)


@contextmanager
def _folder() -> Iterator[Path]:
    """Have sandboxes make their folders in one of its own."""
    usual = tempfile.tempdir
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o711)  # as root, calls are another user's
        tempfile.tempdir = folder
        try:
            yield Path(folder)
        finally:
            tempfile.tempdir = usual


def _left(folder: Path, others: set[int]) -> Left:
    gc.collect()
    under = [pid for pid in members(os.getpid()) if pid not in others]
    pids = [os.getpid(), *under]
    return Left(
        processes=len(under),
        files=len([*folder.rglob("*")]),
        descriptors=sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids),
        memory=[_resident(pid) for pid in pids],
    )


def _resident(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
