"""Files that a process still holds, though they have no name any more."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable

__all__ = ["deleted_files"]

MOST_OF_MAPS = 1 << 16


def deleted_files(pids: Iterable[int], device: int) -> dict[int, int]:
    """The bytes of each file without a name that processes have open or mapped.

    Args:
        pids: Their ids.
        device: The file system that is meant.

    Returns:
        Bytes by inode; 0 where a file is only mapped, and nobody tells its size.
    """
    found: dict[int, int] = {}
    for pid in pids:
        try:
            # A thread may have descriptors of its own.
            for task in os.listdir(f"/proc/{pid}/task"):
                found |= _open(f"/proc/{pid}/task/{task}", device)
            for inode in _mapped(pid, device):
                found.setdefault(inode, 0)
        except OSError:
            continue  # it has just ended
    return found


def _open(task: str, device: int) -> dict[int, int]:
    found = {}
    for fd in os.listdir(f"{task}/fd"):
        with contextlib.suppress(FileNotFoundError):  # it has just been closed
            told = os.stat(f"{task}/fd/{fd}")
            if stat.S_ISREG(told.st_mode) and not told.st_nlink and told.st_dev == device:
                found[told.st_ino] = told.st_size
    return found


def _mapped(pid: int, device: int) -> Iterable[int]:
    here = f"{os.major(device):02x}:{os.minor(device):02x}".encode()
    # No more than a program that is in order has: the kernel is slow to write it, the more so
    # while the program changes it.
    with open(f"/proc/{pid}/maps", "rb", buffering=0) as maps:
        text = b""
        while len(text) < MOST_OF_MAPS and (part := maps.read(1 << 14)):
            text += part
        for line in text.splitlines():
            if line.endswith(b"(deleted)"):
                fields = line.split(None, 5)
                if fields[3] == here:
                    yield int(fields[4])
