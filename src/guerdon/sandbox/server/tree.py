"""What the processes of a call are and use, as the kernel tells it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

__all__ = [
    "Usage",
    "children",
    "deleted_bytes",
    "members",
    "memory_of",
    "stat_of",
    "usage",
]

_TICK = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class Usage(NamedTuple):
    """What processes use.

    Attributes:
        memory: Bytes that are theirs alone or shared among them.
        cpu: Seconds, those of ended children included.
        threads: How many there are in all.
    """

    memory: int
    cpu: float
    threads: int


class Stat(NamedTuple):
    """Of ``/proc/<pid>/stat``.

    Attributes:
        state: A letter; ``Z`` has ended and waits for its parent.
        group: Its process group.
        session: Its session.
        cpu: Seconds, those of ended children included.
        threads: How many it has.
    """

    state: str
    group: int
    session: int
    cpu: float
    threads: int


def children(pid: int) -> list[int]:
    """The ids of a process's children; none where it has ended, or where nobody can tell."""
    found = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
        for task in tasks:
            with open(f"/proc/{pid}/task/{task}/children") as listed:
                found += [int(each) for each in listed.read().split()]
    except (OSError, ValueError):
        pass  # it has just ended
    return found


def members(root: int) -> Iterator[int]:
    """All descendants of a process, without itself."""
    waiting = children(root)
    while waiting:
        pid = waiting.pop()
        yield pid
        waiting += children(pid)


def deleted_bytes(pid: int, device: int) -> int:
    """Bytes of files of a file system that a process has open and that have no name any more."""
    total = 0
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            found = os.stat(f"/proc/{pid}/fd/{fd}")
            if stat.S_ISREG(found.st_mode) and not found.st_nlink and found.st_dev == device:
                total += found.st_size
    except OSError:
        pass  # it has just ended, or closed it
    return total


def stat_of(pid: int) -> Stat | None:
    """What the kernel says of a process; None where there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in brackets may hold anything.
            fields = file.read().rpartition(b")")[2].split()
        cpu = sum(map(int, fields[11:15])) / _TICK
        return Stat(fields[0].decode(), int(fields[2]), int(fields[3]), cpu, int(fields[17]))
    except (OSError, ValueError, IndexError):
        return None


def memory_of(pid: int) -> int:
    """Bytes of memory that no file backs; 0 where there is no such process."""
    total = 0
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith((b"RssAnon:", b"RssShmem:", b"VmSwap:")):
                    total += int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        pass  # it has just ended
    return total


def usage(pids: list[int], baseline: int) -> Usage:
    """What processes use together.

    Args:
        pids: Their ids.
        baseline: What each had when it was forked, in bytes, and shares with its parent.
    """
    memory = sum(max(0, memory_of(pid) - baseline) for pid in pids)
    told = [each for each in map(stat_of, pids) if each is not None and each.state not in "ZX"]
    return Usage(memory, sum(each.cpu for each in told), sum(each.threads for each in told))
