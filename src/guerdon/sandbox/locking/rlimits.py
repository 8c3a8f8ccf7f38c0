"""Limits that the kernel applies to one process at a time; its children each have the same."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from math import ceil
from typing import Any

with contextlib.suppress(ImportError):  # Windows has none
    import resource

# A thread's stack is mapped as large as this.
STACK_BYTES = 8 << 20
# What the C library reserves for each thread that allocates memory, and the room to align it.
ARENA_BYTES = 128 << 20
OPEN_FILES = 64

# How long a count of the user's threads is used.
COUNT_SECONDS = 1.0
# Others of the user may start processes meanwhile, which must not use up the limit.
SLACK = 64

# The kernel counts no further.
MOST = 2**62

_counted: dict[int, tuple[float, int]] = {}


def limit_call(limits: dict[str, Any], *, uid: int | None) -> None:
    """Set all limits of a call that apply from its beginning; one that is lower already stays.

    Args:
        limits: The limits as the supervisor receives them. Without a limit on processor time,
            there is none; otherwise a signal comes at the next whole second, death a second later.
        uid: The user as whom only this sandbox runs; None for the present user.
    """
    same = {
        "RLIMIT_FSIZE": limits["file_bytes"] + 1,  # which shows that it was too much
        "RLIMIT_NOFILE": OPEN_FILES,
        # No image of a dead process, and nothing that would stay when it is gone.
        "RLIMIT_CORE": 0,
        "RLIMIT_MEMLOCK": 0,
        "RLIMIT_MSGQUEUE": 0,
        # Counted for the user as a whole, so that one process could use up what others need.
        "RLIMIT_SIGPENDING": 64,
        "RLIMIT_STACK": STACK_BYTES,
    }
    # Processes and threads of the user together. The kernel doesn't apply it to root.
    if uid is not None:
        same["RLIMIT_NPROC"] = limits["processes"] + limits.get("others", 0)
    elif sys.platform == "linux" and os.geteuid() != 0:
        same["RLIMIT_NPROC"] = threads_of_user(os.geteuid()) + limits["processes"] + SLACK
    for name, value in same.items():
        _limit(name, value, value)
    if limits["cpu"] is not None:
        _limit("RLIMIT_CPU", ceil(limits["cpu"]), ceil(limits["cpu"]) + 1)
    limit_memory(limits)


def limit_memory(limits: dict[str, Any], statm: str | int = "/proc/self/statm") -> None:
    """Limit the memory of this process to what it has and what the limits allow beside it.

    Args:
        limits: The limits as the supervisor receives them.
        statm: A descriptor of that file for a process that can't see ``/proc`` any more.
    """
    if sys.platform != "linux":
        return
    with open(statm, "rb", buffering=0, closefd=isinstance(statm, str)) as file:
        file.seek(0)
        fields = file.read().split()
    page, more = os.sysconf("SC_PAGE_SIZE"), limits["memory"]
    data = int(fields[5]) * page + more + limits["processes"] * STACK_BYTES
    # Far above: what is only reserved is no memory, but what keeps account of it is.
    reserved = int(fields[0]) * page + more + limits["processes"] * (STACK_BYTES + ARENA_BYTES)
    _limit("RLIMIT_DATA", data, data)
    _limit("RLIMIT_AS", reserved, reserved)


def _limit(name: str, soft: int, hard: int) -> None:
    """Set a limit, where this system has it."""
    kind = getattr(resource, name, None)
    if kind is None:
        return
    highest = resource.getrlimit(kind)[1]
    most = MOST if highest == resource.RLIM_INFINITY else min(highest, MOST)
    resource.setrlimit(kind, (min(soft, most), min(hard, most)))


def threads_of_user(uid: int) -> int:
    """How many threads the user runs now, which is what RLIMIT_NPROC counts from.

    A count is used for a second, since it reads every process.
    """
    now = time.monotonic()
    counted = _counted.get(uid)
    if counted is not None and now - counted[0] < COUNT_SECONDS:
        return counted[1]
    threads = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended
            if os.stat(f"/proc/{name}").st_uid == uid:
                # A folder for each, beside the two that every folder has.
                threads += os.stat(f"/proc/{name}/task").st_nlink - 2
    _counted[uid] = now, threads
    return threads
