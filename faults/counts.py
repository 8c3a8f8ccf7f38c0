"""The six counts, and the ledger of steps that they are made from."""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import itertools
import logging
import os
import random
import re
import resource
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from guerdon import Environment, EnvPool

NUMBERS = "failures that became numbers"
SLOTS = "answers in a wrong slot"
LOST = "steps lost"
DOUBLED = "steps doubled"
HEALED = "slots that did not heal"
LEFT = "things left behind"
COUNTS = (NUMBERS, SLOTS, LOST, DOUBLED, HEALED, LEFT)

# What the answer of a ticket may be.
EITHER = "number or failure"
HEALS = "number, since the slot heals"

# What is tested, and the module with its `run`; the longest first.
SUBJECTS = {
    "command": "command",
    "server": "server",
    "processes": "pool",
    "threads": "pool",
    "remote": "pool",
    "servers": "pool",
    "server processes": "pool",
    "logger": "logger",
    "ray": "pool",
}

# Seconds in which threads, descriptors and processes may end: less than idle threads last.
SETTLE_S = 8.0
SUBREAPER = 36  # Linux: processes whose parent has ended become children of this one


class Answer(NamedTuple):
    """What the caller of a step received.

    Attributes:
        score: The number; None for a failure.
        place: Where the answer was made, if it states that.
        error: The beginning of the error.
    """

    score: float | None
    place: Hashable = None
    error: str = ""


@dataclass(slots=True)
class Ticket:
    """One step (or row, or record) that was requested.

    Attributes:
        number: Unique; the score of the step, if it has no other.
        place: Slot, episode and step, or what else an answer belongs to.
        fault: The injected fault.
        outcomes: What its answer may be: a number, a failure, or nothing if the caller left;
            `HEALS` for a reset, whose failure is a slot that did not heal.
        score: The number.
        taken: How often it was taken.
        answers: What the caller received.
    """

    number: int
    place: Hashable
    fault: str
    outcomes: str
    score: float
    taken: int = 0
    answers: list[Answer] = field(default_factory=list)


class Report(NamedTuple):
    """What a subject's ledger found.

    Attributes:
        name: The subject.
        steps: How many steps were taken or answered.
        seconds: How long they took.
        injected: How often each fault was injected.
        problems: What went wrong, by count.
    """

    name: str
    steps: int
    seconds: float
    injected: Counter[str]
    problems: dict[str, list[str]]


class Ledger:
    """All steps of one subject: what was requested, what was taken, and what was answered.

    Args:
        name: The subject.
        seed: Makes the faults repeatable.
        folder: For files of the subject, which may remain.

    Attributes:
        random: Chooses the faults.
        tickets: The steps by number.
        injected: How often each fault was injected.
        left: What was left behind.
        ignored: How the names of things begin that may be left behind.
    """

    ignored: tuple[str, ...] = ()

    def __init__(self, name: str, seed: int, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.random = random.Random(f"{seed} {name}")
        self.tickets: dict[int, Ticket] = {}
        self.injected: Counter[str] = Counter()
        self.left: list[str] = []
        self.seconds = 0.0
        self._numbers = itertools.count(1)

    def issue(
        self, place: Hashable, fault: str = "", outcomes: str = "", *, score: float | None = None
    ) -> int:
        """Return the number of a new ticket.

        Args:
            place: What its answer belongs to, unique among all tickets.
            fault: The fault that is injected, if there is one.
            outcomes: ``"number"``, ``"failure"``, several of these and ``"nothing"``, or `HEALS`.
            score: Its score; by default the ticket's number.
        """
        number = next(self._numbers)
        self.injected.update([fault] if fault else [])
        outcomes = outcomes or ("failure" if fault else "number")
        score = float(number) if score is None else score
        self.tickets[number] = Ticket(number, place, fault, outcomes, score)
        return number

    def take(self, numbers: Iterable[int]) -> None:
        """Record the tickets that were taken, as reported by what took them."""
        for number in numbers:
            if number:  # 0 is a step that isn't counted
                self.tickets[number].taken += 1

    def answer(
        self, number: int, score: float | None, *, place: Hashable = None, error: object = ""
    ) -> None:
        """Record what the caller received for a ticket; an error names the ticket as ``#7``."""
        named = re.search(r"#(\d+)", str(error))
        if named:
            place = self.tickets[int(named[1])].place
        self.tickets[number].answers.append(Answer(score, place, str(error)[:200]))

    def report(self) -> Report:
        """Return what there is to print."""
        steps = sum(1 for each in self.tickets.values() if each.taken or each.answers)
        return Report(self.name, steps, self.seconds, self.injected, self.problems())

    def problems(self) -> dict[str, list[str]]:
        """Return what went wrong, by count."""
        found: dict[str, list[str]] = {name: [] for name in COUNTS}
        scores = {each.score for each in self.tickets.values()}
        for each in self.tickets.values():
            for problem in _problems(each, scores):
                found[problem].append(
                    f"{each.place}, {each.fault or 'no fault'}: expected {each.outcomes} "
                    f"{each.score}, taken {each.taken} times, got {each.answers}"
                )
        found[LEFT] += self.left
        return found


def _problems(ticket: Ticket, scores: set[float]) -> Iterator[str]:
    if ticket.taken > 1 or len(ticket.answers) > 1:
        yield DOUBLED
    if not ticket.answers and "nothing" not in ticket.outcomes:
        yield LOST
    for score, place, _ in ticket.answers:
        if place is not None and place != ticket.place:
            yield SLOTS
        elif score is None:
            if "failure" not in ticket.outcomes:
                yield HEALED if ticket.outcomes == HEALS else LOST
        elif "number" not in ticket.outcomes:
            yield NUMBERS
        elif score != ticket.score:
            yield SLOTS if score in scores else NUMBERS
        elif not ticket.taken:
            yield LOST


# Things left behind ------------------------------------------------------------------------------


Inode = tuple[int, int]  # the device, and the number on it


class Belongings:
    """The threads, descriptors, child processes, shared memory and temporary files of this process.

    Segments of shared memory that no process maps belong to nobody, and count too.
    """

    def __init__(self) -> None:
        with EnvPool(Environment, n=1).sync():
            pass  # this starts guerdon's own event loop, which ends with the process
        self._before = _belongings()

    def left(self, settle_s: float = SETTLE_S, ignored: tuple[str, ...] = ()) -> list[str]:
        """Return what there is more than before, once it has had time to end."""
        deadline = time.monotonic() + settle_s
        while (more := self._more(ignored)) and time.monotonic() < deadline:
            time.sleep(0.05)
        return more

    def end_processes(self) -> None:
        """Kill the processes that are left."""
        for kind, name in _belongings().keys() - self._before.keys():
            if kind == "process":
                os.kill(int(str(name)), signal.SIGKILL)

    def _more(self, ignored: tuple[str, ...]) -> list[str]:
        now = _belongings()
        more = [now[each] for each in now.keys() - self._before.keys()]
        return [each for each in more if not each.startswith(ignored)]


def _belongings() -> dict[tuple[str, object], str]:
    found: dict[tuple[str, object], str] = {}
    for thread in threading.enumerate():
        found["thread", id(thread)] = f"thread {thread.name}"
    for number in os.listdir("/proc/self/fd"):
        try:
            found["descriptor", number] = f"descriptor {os.readlink(f'/proc/self/fd/{number}')}"
        except FileNotFoundError:  # that of the listing
            continue
    for child in _children():
        found["process", child] = f"process {command(child)}"
    for path in Path(tempfile.gettempdir()).iterdir():
        found["file", path] = f"file {path}"
    for inode, name in _segments().items():
        found["segment", inode] = f"segment {name}"
    return found


def _children() -> Iterator[str]:
    for task in os.listdir("/proc/self/task"):
        try:
            children = Path(f"/proc/self/task/{task}/children").read_text().split()
        except (FileNotFoundError, ProcessLookupError):  # the thread has ended
            continue
        yield from (child for child in children if not _reap(int(child)))


def _segments() -> dict[Inode, str]:
    """Shared memory that this process uses, and files in /dev/shm that no process uses."""
    found = _shared("self")
    files: dict[Inode, str] = {}
    for path in Path("/dev/shm").iterdir():
        with suppress(FileNotFoundError):
            files[_inode(path)] = str(path)
    if files.keys() - found.keys():
        used = [_shared(process).keys() for process in os.listdir("/proc") if process.isdigit()]
        found |= {inode: files[inode] for inode in files.keys() - set().union(*used)}
    return found


def _shared(process: str) -> dict[Inode, str]:
    """The shared memory that a process has mapped or opened, by inode: names may be removed."""
    folder = Path("/proc", process)
    found: dict[Inode, str] = {}
    try:
        for line in (folder / "maps").read_text().splitlines():
            _, _, _, device, inode, *path = line.split(maxsplit=5)
            major, minor = (int(number, 16) for number in device.split(":"))
            found |= {(os.makedev(major, minor), int(inode)): name for name in path}
        for each in (folder / "fd").iterdir():
            found[_inode(each)] = os.readlink(each)
    except OSError:  # it has ended
        pass
    prefixes = ("/dev/shm/", "/memfd:")
    return {inode: name for inode, name in found.items() if name.startswith(prefixes)}


def _inode(path: Path) -> Inode:
    found = path.stat()
    return found.st_dev, found.st_ino


def _reap(child: int) -> bool:
    """Whether a process that was given to this one has ended."""
    try:
        state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    if state != "Z":
        return False
    with suppress(ChildProcessError):
        os.waitpid(child, os.WNOHANG)
    return True


def command(process: str | int) -> str:
    """Return the command of a process."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:120]
    except (FileNotFoundError, ProcessLookupError):
        return str(process)


def parent(process: int) -> int:
    """Return the parent of a process; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def tasks_left() -> list[str]:
    """Return the tasks of the running event loop, other than the current one."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    return [f"task {each!r:.120}" for each in others]


@contextmanager
def watched(ledger: Ledger, settle_s: float = SETTLE_S) -> Iterator[None]:
    """Measure the time of a block, and record what it leaves behind.

    Temporary files of this process and its children go into a folder that must be empty afterwards.
    """
    folder = ledger.folder / "temporary"
    folder.mkdir()
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    variable = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = str(folder)
    belongings = Belongings()
    start = time.monotonic()
    try:
        yield
        ledger.seconds = time.monotonic() - start
        ledger.left += belongings.left(settle_s, ledger.ignored)
        belongings.end_processes()
    finally:
        tempfile.tempdir = before
        if variable is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = variable


def choose(ledger: Ledger, faults: dict[str, float]) -> str:
    """Return one of some faults by their weights."""
    return ledger.random.choices(list(faults), list(faults.values()))[0]


def run(name: str, *, seed: int, size: float) -> Report:
    """Inject the faults of one subject."""
    logging.getLogger("guerdon").setLevel(logging.CRITICAL + 1)  # failures are expected
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # processes crash on purpose
    subject = importlib.import_module(f"faults.{SUBJECTS[name]}")
    with tempfile.TemporaryDirectory(prefix="guerdon-faults-") as folder:
        ledger = Ledger(name, seed, Path(folder))
        os.environ["FAULTS_TAKEN"] = str(ledger.folder / "taken")  # for other processes
        with getattr(subject, "surroundings", nullcontext)(name), watched(ledger):
            subject.run(ledger, size)
    return ledger.report()
