"""Files that a process still holds, though they have no name any more."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

__all__ = ["deleted_files"]


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
    try:
        for fd in os.listdir(f"{task}/fd"):
            told = os.stat(f"{task}/fd/{fd}")
            if stat.S_ISREG(told.st_mode) and not told.st_nlink and told.st_dev == device:
                found[told.st_ino] = told.st_size
    except OSError:
        pass  # it has just ended, or closed it
    return found


def _mapped(pid: int, device: int) -> Iterable[int]:
    here = f"{os.major(device):02x}:{os.minor(device):02x}".encode()
    with open(f"/proc/{pid}/maps", "rb") as maps:
        for line in maps:
            if line.endswith(b"(deleted)\n"):
                fields = line.split(None, 5)
                if fields[3] == here:
                    yield int(fields[4])
