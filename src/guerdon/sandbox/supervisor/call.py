"""`Call`: one run that the supervisor watches, and `Calls`, which starts and ends them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from guerdon.sandbox.locking.canaries import Profile, release
from guerdon.sandbox.locking.lock import LimitsLock, StrictLock
from guerdon.sandbox.supervisor.channels import Started
from guerdon.sandbox.supervisor.folders import written
from guerdon.sandbox.supervisor.processes import Stat, deleted_files, memory_of, stat_of

# Seconds between two searches for files without a name, which are slower than the other checks.
SEARCH_EVERY = 0.25


@dataclass(slots=True)
class Call:
    """One run: its limits, what it has used, and how it ended.

    Attributes:
        limits: ``seconds``, ``cpu``, ``memory``, ``file_bytes``, ``files``.
        pids: Returns the ids of its processes.
        baseline: Bytes of memory that each of them had when it was forked, and shares with its
            parent.
        group: Its process group; 0 if it has none of its own.
        started: The pipe on which it reports that it has started.
        folder: Where it writes; None if it can't.
        before: The earlier state of processes that ran before the call: what they had used then,
            and their threads, don't count.
        cause: Why it was ended; None if it ended by itself.
        problem: Why the sandbox couldn't set it up; None if it could.
        status: Its first process's exit code, as in `subprocess`; None if it isn't known.
    """

    limits: dict[str, Any]
    pids: Callable[[], list[int]]
    baseline: int
    group: int = 0
    started: Started | None = None
    folder: str | None = None
    before: dict[int, Stat] = field(default_factory=dict)
    cause: str | None = None
    problem: str | None = None
    status: int | None = None
    done: bool = False
    stopped: float = 0.0
    began: float = field(default_factory=monotonic)
    searched: float = 0.0
    seconds: float = 0.0
    cpu: float = 0.0
    peak: int = 0
    seen_cpu: float = 0.0
    _seen: dict[tuple[int, int], float] = field(default_factory=dict)

    @property
    def deadline(self) -> float:
        """The time of `monotonic` at which its wall-clock time ends."""
        return float(self.began + self.limits["seconds"])

    def exceeded(self) -> str | None:
        """Return the limit that it has reached, if any."""
        if monotonic() >= self.deadline:
            return "timeout"
        memory, threads = self.measure()
        used = {"memory": memory, "processes": threads, "cpu": self.seen_cpu}
        for name, amount in used.items():
            if self.limits[name] is not None and amount > self.limits[name]:
                return name
        return self._exceeded_files()

    def measure(self) -> tuple[int, int]:
        """Return the bytes of memory and the number of threads of its processes."""
        pids = self.pids()
        memory = sum(max(0, memory_of(pid) - self.baseline) for pid in pids)
        threads, waited_for = 0, 0.0
        for pid in pids:
            stat, before = stat_of(pid), self.before.get(pid)
            if stat is not None and before is not None:
                threads += stat.threads - before.threads
                self._seen[pid, stat.began] = stat.cpu - before.cpu
            elif stat is not None:
                threads += 0 if stat.ended else stat.threads
                waited_for += stat.cpu + stat.cpu_of_children
                self._seen[pid, stat.began] = stat.cpu
        # The time of a child that is never waited for is known only while it runs.
        self.seen_cpu = max(self.seen_cpu, waited_for, sum(self._seen.values()))
        self.peak = max(self.peak, memory + self.baseline)
        return memory, threads

    def _exceeded_files(self) -> str | None:
        """Return the limit on files that it has reached, if any."""
        if self.folder is None:
            return None
        try:
            device = os.lstat(self.folder).st_dev
            count, size = written(self.folder, self.limits["files"])
        except FileNotFoundError:  # at the level process, it can remove its own folder
            return None
        except OSError:  # such as a path that is too long
            return "files"
        deleted = self._deleted(device)
        size += sum(deleted.values())
        # The size of a file that is only mapped is unknown: it counts as one.
        count += sum(1 for each in deleted.values() if not each)
        if count > self.limits["files"]:
            return "files"
        return "file_bytes" if size > self.limits["file_bytes"] else None

    def _deleted(self, device: int) -> dict[int, int]:
        """Return the open files without a name, if it is time to search for them."""
        now = monotonic()
        if self.done or now - self.searched < SEARCH_EVERY:
            return {}
        self.searched = now
        found = deleted_files(self.pids(), device)
        # A call that isn't set up yet still has the supervisor's own stderr, a file without a name.
        found.pop(os.fstat(2).st_ino, None)
        return found

    def ended(self, status: int, cpu: float, peak: int) -> None:
        """Record how its first process ended.

        Args:
            status: Its exit code.
            cpu: Seconds of processor time.
            peak: The most bytes that it had in memory.
        """
        self.done, self.status = True, status
        self.seconds = monotonic() - self.began
        self.cpu = max(self.cpu + cpu, self.seen_cpu)
        self.peak = max(self.peak, peak)
        if self.cause is None:
            self.cause = self._exceeded_files()
        problem = self.started.problem() if self.started is not None else None
        # A call that was killed at a limit may not have been set up yet: the limit is the reason.
        self.problem = None if self.cause else problem
        self.started = None

    def report(self) -> dict[str, Any]:
        """Return what the host receives."""
        names = ("status", "cause", "problem", "seconds", "cpu", "peak")
        return {name: getattr(self, name) for name in names}


class Calls:
    """Starts calls and ends them.

    Args:
        config: The configuration of the worker.
        profile: How calls are locked.

    Attributes:
        calls: The calls of the current request.
        wakes: Descriptors that are readable when a call has ended.
        look_every: Seconds between two calls of `look_idle` while no request is served; None if
            there is nothing to check.
        folder: The folder of the worker, which contains those of calls.
        lock: How calls are limited and locked.
        facts: What the host receives when all is ready.
    """

    look_every: float | None = None

    def __init__(self, config: dict[str, Any], profile: Profile) -> None:
        self.calls: list[Call] = []
        self.wakes: list[int] = []
        self.folder: str = config["folder"]
        self.lock = LimitsLock()
        self.facts: dict[str, Any] = {}
        if config["level"] == "strict":
            self.lock = lock = StrictLock(config["read"])
            # No user code runs before all canaries were blocked.
            findings = [[each.name, each.blocked, each.detail] for each in release(lock, profile)]
            self.facts = {"lock": lock.facts(), "canaries": findings}

    def look_idle(self) -> None:
        """Check between requests that nothing runs."""
