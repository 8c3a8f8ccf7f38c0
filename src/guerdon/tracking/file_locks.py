"""Locks on files, and writes that are complete."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["locked", "try_lock", "write_all"]


def try_lock(file: Path) -> int | None:
    """Open a file, creating it if needed, and lock it.

    Returns:
        The descriptor, which keeps the lock until it is closed or the process ends; None if the
        file is locked already.

    Raises:
        FileNotFoundError: The folder doesn't exist, or was removed meanwhile.
    """
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        taken = _lock(descriptor, wait=False)
        if taken and not os.path.samestat(os.stat(file), os.fstat(descriptor)):
            raise FileNotFoundError(f"{file} was replaced while it was locked")
    except BaseException:
        os.close(descriptor)
        raise
    if not taken:
        os.close(descriptor)
        return None
    return descriptor


@contextmanager
def locked(descriptor: int) -> Iterator[None]:
    """Lock an open file during a ``with`` block, waiting for the current owner."""
    _lock(descriptor, wait=True)
    try:
        yield
    finally:
        _unlock(descriptor)


def write_all(file: int, data: bytes) -> None:
    """Write all data to a descriptor."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int, *, wait: bool) -> bool:
        os.lseek(descriptor, 1 << 40, os.SEEK_SET)  # far beyond the data
        try:
            msvcrt.locking(descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        except OSError:
            if wait:
                raise
            return False
        return True

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, 1 << 40, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int, *, wait: bool) -> bool:
        # Not lockf: it releases the lock as soon as any descriptor of the file is closed.
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
