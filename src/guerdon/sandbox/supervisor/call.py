"""`Call`: one run that the supervisor watches, from its start to its end."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from guerdon.sandbox.supervisor.folders import written
from guerdon.sandbox.supervisor.processes import Meter, deleted_files

# Seconds between two searches for files without a name, which take longer than the other checks.
SEARCH_EVERY = 0.25


@dataclass(slots=True)
class Call:
    """One run: what it may use, what it has used, and how it ended.

    Attributes:
        limits: ``seconds``, ``cpu``, ``memory``, ``file_bytes``, ``files``.
        pids: Returns its processes.
        baseline: Bytes of memory that each of them shares with its parent.
        folder: Where it writes; None if it can't.
        cause: Why it was ended; None if it ended by itself.
        problem: Why it couldn't be set up, which is the sandbox's fault; None if it was.
        status: Its first process's exit code, as in `subprocess`; None if it isn't known.
    """

    limits: dict[str, Any]
    pids: Callable[[], list[int]]
    baseline: int
    folder: str | None = None
    cause: str | None = None
    problem: str | None = None
    status: int | None = None
    done: bool = False
    stopped: float = 0.0
    began: float = 0.0
    searched: float = 0.0
    seconds: float = 0.0
    cpu: float = 0.0
    peak: int = 0
    meter: Meter = field(init=False)

    def __post_init__(self) -> None:
        self.began, self.meter = monotonic(), Meter(self.baseline)

    @property
    def left(self) -> float:
        """Seconds of wall-clock time that are left."""
        return float(self.began + self.limits["seconds"] - monotonic())

    def exceeded(self) -> str | None:
        """The limit that it has reached, if any."""
        limits = self.limits
        if self.left <= 0:
            return "timeout"
        used = self.meter.read(self.pids())
        self.peak = max(self.peak, used.memory + self.baseline)
        if used.memory > limits["memory"]:
            return "memory"
        if used.threads > limits["processes"]:
            return "processes"
        if limits["cpu"] is not None and used.cpu > limits["cpu"]:
            return "cpu"
        return self._exceeded_files()

    def _exceeded_files(self) -> str | None:
        """The limit on files that it has reached, if any."""
        if self.folder is None:
            return None
        try:
            device = os.lstat(self.folder).st_dev
            count, size = written(self.folder, self.limits["files"])
        except FileNotFoundError:  # without a lock, it can remove its own folder
            return None
        except OSError:  # a path that is too long, say, which no honest program makes
            return "files"
        deleted = self._deleted(device)
        size += sum(deleted.values())
        # A file that is only mapped may be as large as any: it counts as one.
        count += sum(1 for each in deleted.values() if not each)
        if count > self.limits["files"]:
            return "files"
        return "file_bytes" if size > self.limits["file_bytes"] else None

    def _deleted(self, device: int) -> dict[int, int]:
        """Files without a name that are open, if it is time to search for them."""
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
        self.cpu = max(self.cpu + cpu, self.meter.cpu)
        self.peak = max(self.peak, peak)
        if self.cause is None:
            self.cause = self._exceeded_files()

    def report(self) -> dict[str, Any]:
        """What the host receives."""
        names = ("status", "cause", "problem", "seconds", "cpu", "peak")
        return {name: getattr(self, name) for name in names}
