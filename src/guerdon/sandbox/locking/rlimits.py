"""Limits that the kernel keeps for one process at a time."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from math import ceil

from guerdon.errors import SandboxError

__all__ = ["ResourceLimits", "threads_of_user"]

# A thread's stack is mapped as large as this.
STACK_BYTES = 8 << 20
# How long a count of the user's threads is taken to hold.
COUNT_SECONDS = 1.0

_counted: dict[int, tuple[float, int]] = {}


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """What one process may use, by setrlimit(2); its children each have the same.

    None leaves a limit as it is, and one that is lower already stays. Memory isn't among them: it
    is counted from what a process has when it begins.

    Example:
        >>> from guerdon.sandbox.locking.rlimits import ResourceLimits
        >>> ResourceLimits(cpu_seconds=1.5).pairs()["RLIMIT_CPU"]
        (2, 3)

    Args:
        cpu_seconds: Processor time: a signal at the next whole second, death a second later.
        file_bytes: How long a file may grow.
        open_files: Descriptors, and the highest that one can be.
        user_threads: Processes and threads of the user together, this one included. Root isn't
            held to it.
    """

    cpu_seconds: float | None = None
    file_bytes: int | None = None
    open_files: int | None = 64
    user_threads: int | None = None

    def pairs(self) -> dict[str, tuple[int, int]]:
        """The soft and the hard limit of each kind."""
        limits = {
            "RLIMIT_FSIZE": self.file_bytes,
            "RLIMIT_NOFILE": self.open_files,
            "RLIMIT_NPROC": self.user_threads,
            # No image of a dead process, and nothing that would stay when it is gone.
            "RLIMIT_CORE": 0,
            "RLIMIT_MEMLOCK": 0,
            "RLIMIT_MSGQUEUE": 0,
            # Counted for the user as a whole, so that one process could use up what others need.
            "RLIMIT_SIGPENDING": 64,
            "RLIMIT_STACK": STACK_BYTES,
        }
        pairs = {name: (value, value) for name, value in limits.items() if value is not None}
        if self.cpu_seconds is not None:
            seconds = ceil(self.cpu_seconds)
            pairs["RLIMIT_CPU"] = (seconds, seconds + 1)
        return pairs

    def apply(self) -> None:
        """Set them for this process.

        Raises:
            SandboxError: The kernel refused.
        """
        import resource

        for name, (soft, hard) in self.pairs().items():
            kind = getattr(resource, name, None)
            if kind is None:
                continue  # this kind is Linux's own
            highest = resource.getrlimit(kind)[1]
            if highest != resource.RLIM_INFINITY:
                soft, hard = min(soft, highest), min(hard, highest)
            try:
                resource.setrlimit(kind, (soft, hard))
            except (OSError, ValueError) as error:
                raise SandboxError(f"{name} {soft}, {hard} was refused: {error}") from error


def threads_of_user(uid: int) -> int:
    """How many threads the user runs now, which is what RLIMIT_NPROC counts from.

    A count is taken to hold for a second, since it looks at every process.
    """
    now = time.monotonic()
    counted = _counted.get(uid)
    if counted is not None and now - counted[0] < COUNT_SECONDS:
        return counted[1]
    threads = 0
    with os.scandir("/proc") as entries:
        for entry in entries:
            if not entry.name.isdigit():
                continue
            try:
                if entry.stat().st_uid == uid:
                    # A folder for each, beside the two that every folder has.
                    threads += os.stat(f"/proc/{entry.name}/task").st_nlink - 2
            except OSError:
                continue  # it has ended
    _counted[uid] = now, threads
    return threads
