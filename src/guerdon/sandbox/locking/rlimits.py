"""Limits that the kernel applies to one process at a time; its children each have the same."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from math import ceil
from typing import Any

from guerdon.errors import SandboxError

with contextlib.suppress(ImportError):  # Windows has none
    import resource

# A thread's stack is mapped as large as this.
STACK_BYTES = 8 << 20
# What the C library reserves for each thread that allocates memory, and the room to align it.
ARENA_BYTES = 128 << 20
OPEN_FILES = 64

# How long a count of the user's threads is used.
COUNT_SECONDS = 1.0
# Others of the user may start processes meanwhile, which must not use up the limit.
SLACK = 64

# The kernel counts no further.
MOST = 2**62

_counted: dict[int, tuple[float, int]] = {}


def resource_limits(
    *,
    cpu_seconds: float | None = None,
    file_bytes: int | None = None,
    user_threads: int | None = None,
) -> dict[str, tuple[int, int]]:
    """The soft and the hard limit of each kind, without memory.

    Memory is counted from what a process has when it begins; see `MemoryMeter`.

    Example:
        >>> from guerdon.sandbox.locking.rlimits import resource_limits
        >>> resource_limits(cpu_seconds=1.5)["RLIMIT_CPU"]
        (2, 3)

    Args:
        cpu_seconds: Processor time: a signal at the next whole second, death a second later. None
            sets no limit, as for the others.
        file_bytes: How long a file may grow.
        user_threads: Processes and threads of the user together, this one included. The kernel
            doesn't apply it to root.
    """
    limits = {
        "RLIMIT_FSIZE": file_bytes,
        "RLIMIT_NOFILE": OPEN_FILES,
        "RLIMIT_NPROC": user_threads,
        # No image of a dead process, and nothing that would stay when it is gone.
        "RLIMIT_CORE": 0,
        "RLIMIT_MEMLOCK": 0,
        "RLIMIT_MSGQUEUE": 0,
        # Counted for the user as a whole, so that one process could use up what others need.
        "RLIMIT_SIGPENDING": 64,
        "RLIMIT_STACK": STACK_BYTES,
    }
    pairs = {name: (value, value) for name, value in limits.items() if value is not None}
    if cpu_seconds is not None:
        seconds = ceil(cpu_seconds)
        pairs["RLIMIT_CPU"] = (seconds, seconds + 1)
    return pairs


def set_limits(limits: dict[str, tuple[int, int]]) -> None:
    """Set limits of this process; one that is lower already stays.

    Args:
        limits: The soft and the hard limit by the name in `resource`.

    Raises:
        SandboxError: The kernel refused.
    """
    for name, (soft, hard) in limits.items():
        kind = getattr(resource, name, None)
        if kind is None:
            continue  # this kind is Linux's own
        highest = resource.getrlimit(kind)[1]
        if highest != resource.RLIM_INFINITY:
            soft, hard = min(soft, highest), min(hard, highest)
        try:
            resource.setrlimit(kind, (min(soft, MOST), min(hard, MOST)))
        except (OSError, ValueError) as error:
            raise SandboxError(f"{name} {soft}, {hard} was refused: {error}") from error


class MemoryMeter:
    """How much memory a process has of its own, also when it can't see ``/proc`` any more.

    Args:
        fd: The result of `open`, in this process or in the one that it is a copy of.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @staticmethod
    def open() -> int:
        """A descriptor from which the amount is read."""
        return os.open("/proc/self/statm", os.O_RDONLY)

    def limit(self, more: int, threads: int) -> None:
        """Limit this process to what it has and so many bytes more.

        Args:
            more: Bytes of memory that it may write to.
            threads: How many there may be; each has room for its stack beside these.

        Raises:
            SandboxError: The kernel refused.
        """
        fields = os.pread(self._fd, 200, 0).split()
        page = os.sysconf("SC_PAGE_SIZE")
        data = int(fields[5]) * page + more + threads * STACK_BYTES
        # Far above: what is only reserved is no memory, but what keeps account of it is.
        reserved = int(fields[0]) * page + more + threads * (STACK_BYTES + ARENA_BYTES)
        set_limits({"RLIMIT_DATA": (data, data), "RLIMIT_AS": (reserved, reserved)})


def limit_call(limits: dict[str, Any], *, uid: int | None) -> None:
    """Set all limits of a call that apply from its beginning.

    Args:
        limits: The limits as the supervisor receives them.
        uid: The user as whom only this sandbox runs; None for the present user.

    Raises:
        SandboxError: The kernel refused.
    """
    threads = None
    if uid is not None:
        threads = limits["processes"] + limits.get("others", 0)
    elif sys.platform == "linux" and os.geteuid() != 0:
        threads = threads_of_user(os.geteuid()) + limits["processes"] + SLACK
    set_limits(
        resource_limits(
            cpu_seconds=limits.get("cpu"),
            file_bytes=limits["file_bytes"] + 1,  # which shows that it was too much
            user_threads=threads,
        )
    )
    limit_memory(limits)


def limit_memory(limits: dict[str, Any]) -> None:
    """Limit the memory of this process, where the kernel reports how much it has."""
    if sys.platform == "linux":
        fd = MemoryMeter.open()
        MemoryMeter(fd).limit(limits["memory"], limits["processes"])
        os.close(fd)


def threads_of_user(uid: int) -> int:
    """How many threads the user runs now, which is what RLIMIT_NPROC counts from.

    A count is used for a second, since it reads every process.
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
