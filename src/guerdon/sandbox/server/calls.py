"""`Call`: one run under the keeper's eyes, from its start to its end."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Any

from guerdon.sandbox.server.deleted import deleted_files
from guerdon.sandbox.server.folders import written
from guerdon.sandbox.server.process_control import kill_if
from guerdon.sandbox.server.tree import Meter, members

__all__ = ["Call", "ENDING", "end_group", "end_pids"]

# Seconds that the kernel has for ending what was killed.
ENDING = 5.0

# Seconds between two searches for files without a name, which take longer than a look.
SEARCH_EVERY = 0.25


@dataclass(slots=True)
class Call:
    """One run: what it may use, what it has used, and how it ended.

    Attributes:
        limits: ``seconds``, ``cpu``, ``memory``, ``file_bytes``, ``files``.
        pids: Tells its processes.
        baseline: Bytes of memory that each of them shares with its parent.
        folder: Where it writes; None where it can't.
        cause: What ended it; None where it ended by itself.
        problem: Why it couldn't be set up, which is the sandbox's fault; None where it was.
        status: Its first process's exit code, as `subprocess` has it; None where it isn't known.
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

    def look(self) -> str | None:
        """What limit it has reached, if any."""
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
        if self.folder is not None:
            return self.look_at_files()
        return None

    def look_at_files(self) -> str | None:
        """What limit on files it has reached, if any."""
        assert self.folder is not None
        try:
            device = os.lstat(self.folder).st_dev
            count, size = written(self.folder, self.limits["files"])
        except FileNotFoundError:  # only where nothing keeps it from removing its own folder
            return None
        except OSError:  # a path that is too long, say: nothing that a program needs
            return "files"
        deleted = self.deleted(device)
        size += sum(deleted.values())
        # A file that is only mapped may be as large as any: it counts as one.
        count += sum(1 for each in deleted.values() if not each)
        if count > self.limits["files"]:
            return "files"
        return "file_bytes" if size > self.limits["file_bytes"] else None

    def deleted(self, device: int) -> dict[int, int]:
        """Files without a name that are held, as far as they were looked for of late."""
        now = monotonic()
        if self.done or now - self.searched < SEARCH_EVERY:
            return {}
        self.searched = now
        return deleted_files(self.pids(), device)

    def ended(self, status: int, cpu: float, peak: int) -> None:
        """Note how its first process ended.

        Args:
            status: Its exit code.
            cpu: Seconds of processor time.
            peak: The most bytes that it had in memory.
        """
        self.done, self.status = True, status
        self.seconds = monotonic() - self.began
        self.cpu = max(self.cpu + cpu, self.meter.cpu)
        self.peak = max(self.peak, peak)
        if self.cause is None and self.folder is not None:
            self.cause = self.look_at_files()

    def report(self) -> dict[str, Any]:
        """What the host is told."""
        return {
            "status": self.status,
            "cause": self.cause,
            "problem": self.problem,
            "seconds": self.seconds,
            "cpu": self.cpu,
            "peak": self.peak,
        }


def end_group(group: int, reaped: Callable[[int, int, Any], None]) -> bool:
    """Kill a process group at once, and wait until nobody is left in it.

    Args:
        group: Its id, which is that of a child that hasn't been waited for.
        reaped: Told of each child: id, exit code, what it used.

    Returns:
        Whether all are gone.
    """
    deadline = monotonic() + ENDING
    while monotonic() < deadline:
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass  # macOS says so of a group of zombies
        try:
            pid, status, used = os.wait4(-group, 0)
        except ChildProcessError:
            sleep(0.0005)  # a grandchild whose parent is just ending
            continue
        reaped(pid, os.waitstatus_to_exitcode(status), used)
    return False


def end_pids(root: int) -> None:
    """Kill the descendants of a process that has started no more than a few."""
    for _ in range(100):
        found = list(members(root))
        if not found:
            return
        for pid in found:
            kill_if(pid, lambda pid=pid: pid in members(root))  # type: ignore[misc]
        _reap()


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
