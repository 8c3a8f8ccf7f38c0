"""Limits on amounts, which the kernel keeps for each process."""

from __future__ import annotations

import os
import resource
import sys
from typing import Any

from guerdon.sandbox.locking.rlimits import STACK_BYTES, ResourceLimits, threads_of_user

__all__ = ["MemoryMeter", "limit", "limit_memory"]

# Others of the user may start processes meanwhile, of which the limit must not fall short.
SLACK = 64

# What the C library reserves for each thread that asks it for memory, and the room to align it.
ARENA_BYTES = 128 << 20

# The kernel counts no further.
MOST = 2**62


class MemoryMeter:
    """How much memory a process has of its own, also when it can't see ``/proc`` any more.

    Args:
        fd: What `open` gave, in this process or in the one that it is a copy of.
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
        """
        fields = os.pread(self._fd, 200, 0).split()
        page = resource.getpagesize()
        _lower(resource.RLIMIT_DATA, int(fields[5]) * page + more + threads * STACK_BYTES)
        # Far above: what is only reserved is no memory, but what keeps account of it is.
        reserved = threads * (STACK_BYTES + ARENA_BYTES)
        _lower(resource.RLIMIT_AS, int(fields[0]) * page + more + reserved)


def _lower(kind: int, most: int) -> None:
    """Lower a limit of this process; one that is lower stays."""
    highest = resource.getrlimit(kind)[1]
    if highest != resource.RLIM_INFINITY:
        most = min(most, highest)
    resource.setrlimit(kind, (min(most, MOST), min(most, MOST)))


def limit(limits: dict[str, Any], *, uid: int | None) -> None:
    """Set all limits that stand from the beginning.

    Args:
        limits: As the keeper is told them.
        uid: The user that nobody else runs as; None is whoever this is.
    """
    threads = None
    if uid is not None:
        threads = limits["processes"] + limits.get("others", 0)
    elif sys.platform == "linux" and os.geteuid() != 0:
        threads = threads_of_user(os.geteuid()) + limits["processes"] + SLACK
    ResourceLimits(
        cpu_seconds=limits.get("cpu"),
        file_bytes=limits["file_bytes"] + 1,  # by which it is seen that it was too much
        user_threads=threads,
    ).apply()
    limit_memory(limits)


def limit_memory(limits: dict[str, Any]) -> None:
    """Limit the memory of this process, as far as the kernel tells how much it has."""
    if sys.platform == "linux":
        fd = MemoryMeter.open()
        MemoryMeter(fd).limit(limits["memory"], limits["processes"])
        os.close(fd)
