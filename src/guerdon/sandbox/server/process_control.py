"""What the kernel does for a process that others stand under."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

__all__ = [
    "adopt_orphans",
    "die_with_parent",
    "has_ended",
    "kill_if",
    "start_afresh",
    "wakes_on_child",
]

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36

if sys.platform == "linux":
    _prctl = ctypes.CDLL(None).prctl


def start_afresh() -> None:
    """Undo what the host's process may have handed down: blocked and ignored signals, a mask."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:  # Python's own
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    os.umask(0o022)


def adopt_orphans() -> None:
    """Become the parent of what descendants leave behind, on Linux."""
    if sys.platform == "linux":
        _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """Be killed when the parent ends, on Linux; a change of user undoes it."""
    if sys.platform == "linux":
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def kill_if(pid: int, meant: Callable[[], bool]) -> None:
    """Kill a process, if it is still the one that is meant.

    Between finding a process and killing it, it may have ended and its number be another's. A
    descriptor of it is always of the same one.

    Args:
        pid: Its number.
        meant: Whether the process that has the number is meant.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform != "linux":
            os.kill(pid, signal.SIGKILL)
            return
        fd = os.pidfd_open(pid)
        try:
            if meant():
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        finally:
            os.close(fd)


def has_ended(child: int) -> bool:
    """Whether a child has ended; it is not waited for, so that its number stays its own."""
    if sys.platform == "linux":
        return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    told = subprocess.run(["ps", "-o", "stat=", "-p", str(child)], capture_output=True, check=False)
    return told.stdout.strip()[:1] in (b"", b"Z")


@contextlib.contextmanager
def wakes_on_child() -> Iterator[int]:
    """A descriptor that is readable when a child has ended."""
    reading, writing = os.pipe()
    for fd in (reading, writing):
        os.set_blocking(fd, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield reading
    finally:
        signal.set_wakeup_fd(-1)
        os.close(reading)
        os.close(writing)
