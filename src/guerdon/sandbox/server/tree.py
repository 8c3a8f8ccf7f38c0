"""What the processes of a call are, and what they use, as the kernel tells it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Meter", "Stat", "Usage", "children", "members", "memory_of", "stat_of"]

_TICK = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100

# Of /proc/<pid>/status: what no file backs, and what the kernel needs to know where it is.
_MEMORY = (b"RssAnon:", b"RssShmem:", b"VmSwap:", b"VmPTE:")


class Usage(NamedTuple):
    """What processes use.

    Attributes:
        memory: Bytes that are theirs alone or shared among them.
        cpu: Seconds.
        threads: How many there are in all.
    """

    memory: int
    cpu: float
    threads: int


class Stat(NamedTuple):
    """Of ``/proc/<pid>/stat``.

    Attributes:
        state: A letter; ``Z`` has ended, or its first thread has.
        group: Its process group.
        session: Its session.
        cpu: Seconds of its own.
        cpu_of_children: Seconds of those that it has waited for.
        threads: How many it has.
        began: When it was started, which tells it from others that had its number.
    """

    state: str
    group: int
    session: int
    cpu: float
    cpu_of_children: float
    threads: int
    began: int

    @property
    def ended(self) -> bool:
        """Whether nothing of it runs any more."""
        return self.state in "ZX" and self.threads < 2


def children(pid: int) -> list[int]:
    """The ids of a process's children; none where it has ended, or where nobody can tell."""
    found: list[int] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
        for task in tasks:
            found += map(int, _read(f"/proc/{pid}/task/{task}/children").split())
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


def stat_of(pid: int) -> Stat | None:
    """What the kernel says of a process; None where there is none."""
    try:
        # The name in brackets may hold anything.
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        own, others = (sum(map(int, fields[i : i + 2])) / _TICK for i in (11, 13))
        group, session, threads, began = (int(fields[i]) for i in (2, 3, 17, 19))
        return Stat(fields[0].decode(), group, session, own, others, threads, began)
    except (OSError, ValueError, IndexError):
        return None


def memory_of(pid: int) -> int:
    """Bytes of memory that no file backs; 0 where there is no such process."""
    try:
        total = _memory_in(f"/proc/{pid}")
        if total == 0:  # its first thread has ended, and tells nothing of what the others have
            tasks = os.listdir(f"/proc/{pid}/task")
            total = max(_memory_in(f"/proc/{pid}/task/{task}") for task in tasks)
        return total
    except (OSError, ValueError, IndexError):
        return 0  # it has just ended


def _memory_in(folder: str) -> int:
    total = 0
    for line in _read(f"{folder}/status").splitlines():
        if line.startswith(_MEMORY):
            total += int(line.split()[1]) << 10
    return total


def _read(path: str) -> bytes:
    """A file of the kernel's, with half of the system calls that `open` makes."""
    fd, content = os.open(path, os.O_RDONLY), b""
    try:
        while part := os.read(fd, 1 << 13):
            content += part
    finally:
        os.close(fd)
    return content


class Meter:
    """What the processes of one call use, those that have ended meanwhile included.

    Args:
        baseline: Bytes that each process had when it was forked, and shares with its parent.

    Attributes:
        cpu: The most seconds that were seen.
    """

    def __init__(self, baseline: int) -> None:
        self.cpu = 0.0
        self._baseline = baseline
        self._seen: dict[tuple[int, int], float] = {}
        self._before: dict[int, Stat] = {}

    def passes_over(self, pid: int, before: Stat) -> None:
        """Leave out what a process has used up to now, and the thread that it is.

        Args:
            pid: Its id.
            before: What was told of it.
        """
        self._before[pid] = before

    def read(self, pids: list[int]) -> Usage:
        """What they use now, and have used.

        Args:
            pids: Those that there are.
        """
        memory = sum(max(0, memory_of(pid) - self._baseline) for pid in pids)
        threads, waited_for = 0, 0.0
        for pid in pids:
            stat, before = stat_of(pid), self._before.get(pid)
            if stat is not None and before is not None:
                threads += stat.threads - before.threads
                self._seen[pid, stat.began] = stat.cpu - before.cpu
            elif stat is not None:
                threads += 0 if stat.ended else stat.threads
                waited_for += stat.cpu + stat.cpu_of_children
                self._seen[pid, stat.began] = stat.cpu
        # Children whose end nobody waits for count only while they are seen.
        self.cpu = max(self.cpu, waited_for, sum(self._seen.values()))
        return Usage(memory, self.cpu, threads)
