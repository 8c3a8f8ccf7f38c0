"""Files without a name, by which the host hands over what is too much for a message."""

from __future__ import annotations

import os
import sys
import tempfile

__all__ = ["paper_of"]


def paper_of(content: bytes) -> int:
    """A descriptor of a file that holds `content` and, on Linux, never anything else.

    Its owner closes it. What it holds passes through no other process's memory.
    """
    if sys.platform != "linux":
        with tempfile.TemporaryFile() as file:
            file.write(content)
            file.seek(0)
            return os.dup(file.fileno())
    import fcntl

    fd = os.memfd_create("guerdon", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    except BaseException:
        os.close(fd)
        raise
    return fd
