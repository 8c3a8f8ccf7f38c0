"""Limits that the kernel applies to each process separately."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from math import ceil
from typing import Any

from guerdon.errors import SandboxError

with contextlib.suppress(ImportError):  # Windows has none
    import resource

# A thread's stack is mapped as large as this.
STACK_BYTES = 8 << 20
# What the C library reserves for each thread that allocates memory, with alignment.
ARENA_BYTES = 128 << 20
# The most descriptors of a process; those of all processes of a call, whose sockets and pipes may
# have 220 MB in buffers that no limit counts; and how many a process has in any case.
OPEN_FILES, ALL_OPEN_FILES, FEWEST_OPEN_FILES = 64, 1024, 16

# How long a count of the user's threads is cached.
COUNT_SECONDS = 1.0
# The user's other processes may start more, which must not exhaust the limit.
SLACK = 64

# The kernel counts no further.
MOST = 2**62

_counted: dict[int, tuple[float, int]] = {}


def limit_call(limits: dict[str, Any], *, others: int | None = None) -> None:
    """Set all limits of a call. Lower limits of the process are kept.

    Args:
        limits: The limits as the supervisor receives them. At that on processor time, rounded up
            to seconds, the process receives a signal; a second later, it is killed.
        others: See `limit_processes`.
    """
    same = {
        "RLIMIT_FSIZE": limits["file_bytes"] + 1,  # which shows that it was too much
        # No core files, and nothing that would outlive the process.
        "RLIMIT_CORE": 0,
        "RLIMIT_MEMLOCK": 0,
        "RLIMIT_MSGQUEUE": 0,
        # The kernel counts these for the user as a whole.
        "RLIMIT_SIGPENDING": 64,
    }
    for name, value in same.items():
        _limit(name, value, value)
    # A program may raise it: what it uses of its stack counts as memory.
    _limit("RLIMIT_STACK", STACK_BYTES, None)
    if limits["cpu"] is not None:
        _limit("RLIMIT_CPU", ceil(limits["cpu"]), ceil(limits["cpu"]) + 1)
    limit_memory(limits)
    limit_processes(limits, others=others)
    files = max(FEWEST_OPEN_FILES, min(OPEN_FILES, ALL_OPEN_FILES // limits["processes"]))
    _limit("RLIMIT_NOFILE", files, files)


def limit_processes(limits: dict[str, Any], *, others: int | None) -> None:
    """Limit how many processes and threads this process and its children may have.

    The kernel counts those of a user, in each user namespace, and doesn't limit root.

    Args:
        limits: The limits as the supervisor receives them.
        others: How many processes that don't belong to calls it counts; None if this is the user of
            unknown others, so that this limit is far higher.
    """
    if others is not None:
        others += limits.get("others", 0)
    elif sys.platform == "linux" and os.geteuid() != 0:
        others = threads_of_user(os.geteuid()) + SLACK
    if others is not None:
        _limit("RLIMIT_NPROC", limits["processes"] + others, limits["processes"] + others)


def limit_memory(limits: dict[str, Any], statm: str | int = "/proc/self/statm") -> None:
    """Limit the memory of this process to what it uses now plus what the limits allow.

    Args:
        limits: The limits as the supervisor receives them.
        statm: The file with its memory, or a descriptor of it if ``/proc`` isn't accessible.
    """
    if sys.platform != "linux":
        return
    with open(statm, "rb", buffering=0, closefd=isinstance(statm, str)) as file:
        file.seek(0)
        fields = file.read().split()
    page, more = os.sysconf("SC_PAGE_SIZE"), limits["memory"]
    data = int(fields[5]) * page + more + limits["processes"] * STACK_BYTES
    # Reserved addresses use no memory, except for page tables: this limit is far higher.
    reserved = int(fields[0]) * page + more + limits["processes"] * (STACK_BYTES + ARENA_BYTES)
    _limit("RLIMIT_DATA", data, data)
    _limit("RLIMIT_AS", reserved, reserved)


def _limit(name: str, soft: int, hard: int | None) -> None:
    """Set a limit, where this system has it; with None the hard one stays as it is."""
    kind = getattr(resource, name, None)
    if kind is None:
        return
    highest = resource.getrlimit(kind)[1]
    most = MOST if highest == resource.RLIM_INFINITY else min(highest, MOST)
    soft, hard = min(soft, most), highest if hard is None else min(hard, most)
    try:
        resource.setrlimit(kind, (soft, hard))
    except (OSError, ValueError) as error:
        raise SandboxError(f"{name} of {soft} and {hard} was rejected: {error}") from error


def threads_of_user(uid: int) -> int:
    """Return how many threads the user runs now, to which RLIMIT_NPROC applies.

    The count is cached for a second, since it reads every process.
    """
    now = time.monotonic()
    counted = _counted.get(uid)
    if counted is not None and now - counted[0] < COUNT_SECONDS:
        return counted[1]
    threads = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended
            if os.stat(f"/proc/{name}").st_uid == uid:
                # A folder has a link for each thread, and two more.
                threads += os.stat(f"/proc/{name}/task").st_nlink - 2
    _counted[uid] = now, threads
    return threads
