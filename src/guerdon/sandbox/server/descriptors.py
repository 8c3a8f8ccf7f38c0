"""Which descriptors a call has: those that it is given, from 0 on, and no other."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence

__all__ = ["take_over"]

# Descriptors are moved up here while the low numbers are dealt out.
_HIGH = 32


def take_over(fds: Sequence[int]) -> int:
    """Have the given descriptors as 0, 1, 2 and so on, and close all others.

    Returns:
        The number of the last one.
    """
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, _HIGH) for fd in fds]
    for number, fd in enumerate(high):
        os.dup2(fd, number)
    os.closerange(len(fds), 1 << 20)
    return len(fds) - 1
