"""Ending all that a worker has started, when the worker itself can't any more."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from time import monotonic, sleep

from guerdon.sandbox.server.process_control import kill_if
from guerdon.sandbox.server.tree import stat_of

__all__ = ["end_session"]

# Seconds that the kernel has for it.
ENDING = 5.0


def end_session(session: int) -> None:
    """Kill every process of a session, whatever group it is in.

    Args:
        session: The id of its leader, which is a child that hasn't been waited for: so the number
            can be nobody else's.
    """
    deadline = monotonic() + ENDING
    while monotonic() < deadline:
        found = _members(session)
        for pid in found:
            kill_if(pid, lambda pid=pid: _runs_in(pid, session))  # type: ignore[misc]
        if not found:
            return
        sleep(0.001)


def _members(session: int) -> list[int]:
    """The processes of a session that run, its leader left out."""
    if sys.platform != "linux":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(session, signal.SIGKILL)
        return []
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != session and _runs_in(int(name), session):
            found.append(int(name))
    return found


def _runs_in(pid: int, session: int) -> bool:
    """Whether a process is of a session and hasn't ended."""
    stat = stat_of(pid)
    return stat is not None and stat.session == session and not stat.ended
