"""Processes: what the kernel reports of them, and killing them."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from time import monotonic, sleep
from typing import Any, NamedTuple

from guerdon.sandbox.locking.syscalls import prctl

_TICK = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100

# The fields of /proc/<pid>/status that count: anonymous memory, and page tables.
_MEMORY = (b"RssAnon:", b"RssShmem:", b"VmSwap:", b"VmPTE:")

# Bytes of /proc/<pid>/maps that are read.
MOST_OF_MAPS = 1 << 16

# Seconds within which a killed process must end.
ENDING = 5.0

# linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36
# linux/sched.h
PF_EXITING = 0x4


# What the kernel reports --------------------------------------------------------------------------


class Stat(NamedTuple):
    """Fields of ``/proc/<pid>/stat``.

    Attributes:
        state: A letter; ``Z`` if it, or its first thread, has ended.
        group: Its process group.
        session: Its session.
        cpu: Its seconds of processor time.
        cpu_of_children: Those of the children that it has waited for.
        threads: The number of its threads.
        began: When it was started, which distinguishes processes with the same id.
        exiting: Whether it, or its first thread, is ending or has ended.
    """

    state: str
    group: int
    session: int
    cpu: float
    cpu_of_children: float
    threads: int
    began: int
    exiting: bool

    @property
    def ended(self) -> bool:
        """Whether all its threads have ended."""
        return self.state in "ZX" and self.threads < 2


def children(pid: int) -> list[int]:
    """Return the ids of a process's children; an empty list if the kernel reports none."""
    found: list[int] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
        for task in tasks:
            found += map(int, _read(f"/proc/{pid}/task/{task}/children").split())
    except (OSError, ValueError):
        pass  # it has just ended
    return found


def members(root: int) -> Iterator[int]:
    """Yield the ids of all descendants of a process."""
    waiting = children(root)
    while waiting:
        pid = waiting.pop()
        yield pid
        waiting += children(pid)


def stat_of(pid: int) -> Stat | None:
    """Return what the kernel reports of a process; None if it doesn't exist."""
    try:
        # The name in brackets may contain anything.
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        own, others = (sum(map(int, fields[i : i + 2])) / _TICK for i in (11, 13))
        group, session, flags, threads, began = (int(fields[i]) for i in (2, 3, 6, 17, 19))
        exiting = bool(flags & PF_EXITING)
        return Stat(fields[0].decode(), group, session, own, others, threads, began, exiting)
    except (OSError, ValueError, IndexError):
        return None


def is_exiting(pid: int) -> bool:
    """Return whether a process is ending: it closes its descriptors before it has ended."""
    stat = stat_of(pid)
    return stat is not None and stat.exiting


def memory_of(pid: int) -> int:
    """Return the bytes of memory that no file backs; 0 if the process doesn't exist."""
    try:
        total = _memory_in(f"/proc/{pid}")
        if total == 0:  # its first thread has ended; the others report their memory
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
    """Read a file of ``/proc``, with half of the system calls that `open` makes."""
    fd, content = os.open(path, os.O_RDONLY), b""
    try:
        while part := os.read(fd, 1 << 13):
            content += part
    finally:
        os.close(fd)
    return content


def deleted_files(pids: Iterable[int], device: int) -> dict[int, int]:
    """Return the sizes of files without a name that processes have open or mapped.

    Args:
        pids: Their ids.
        device: The file system.

    Returns:
        Bytes by inode; 0 if a file is only mapped, so that its size is unknown.
    """
    found: dict[int, int] = {}
    for pid in pids:
        try:
            # A thread may have descriptors of its own.
            for task in os.listdir(f"/proc/{pid}/task"):
                found |= _open_deleted(f"/proc/{pid}/task/{task}", device)
            for inode in _mapped_deleted(pid, device):
                found.setdefault(inode, 0)
        except OSError:
            continue  # it has just ended
    return found


def _open_deleted(task: str, device: int) -> dict[int, int]:
    found = {}
    for fd in os.listdir(f"{task}/fd"):
        with contextlib.suppress(FileNotFoundError):  # it has just been closed
            status = os.stat(f"{task}/fd/{fd}")
            if stat.S_ISREG(status.st_mode) and not status.st_nlink and status.st_dev == device:
                found[status.st_ino] = status.st_size
    return found


def _mapped_deleted(pid: int, device: int) -> Iterable[int]:
    here = f"{os.major(device):02x}:{os.minor(device):02x}".encode()
    # Bounded, since the kernel is slow to write it.
    with open(f"/proc/{pid}/maps", "rb", buffering=0) as maps:
        text = b""
        while len(text) < MOST_OF_MAPS and (part := maps.read(1 << 14)):
            text += part
        for line in text.splitlines():
            if line.endswith(b"(deleted)"):
                fields = line.split(None, 5)
                if fields[3] == here:
                    yield int(fields[4])


# This process and its children --------------------------------------------------------------------


def reset_signals() -> None:
    """Reset what the host's process may have passed on: blocked and ignored signals, the umask."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:  # Python's own
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    os.umask(0o022)


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, on Linux."""
    if sys.platform == "linux":
        prctl(PR_SET_CHILD_SUBREAPER, 1)


def has_ended(child: int) -> bool:
    """Return whether a child has ended. It isn't waited for, so that its id isn't reused."""
    if sys.platform == "linux":
        return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    done = subprocess.run(["ps", "-o", "stat=", "-p", str(child)], capture_output=True, check=False)
    return done.stdout.strip()[:1] in (b"", b"Z")


@contextlib.contextmanager
def wakes_on_child() -> Iterator[int]:
    """Open a descriptor that is readable when a child has ended."""
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


# Ending others ------------------------------------------------------------------------------------


def kill_if(pid: int, meant: Callable[[], bool]) -> None:
    """Kill a process, unless its id was reused.

    A descriptor of a process always refers to the same process, its id may not.

    Args:
        pid: Its id.
        meant: Returns whether the process with this id is the one to kill.
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


def end_group(group: int, reaped: Callable[[int, int, Any], None]) -> bool:
    """Kill a process group at once, and wait until it is empty.

    Args:
        group: The id of a child that hasn't been waited for.
        reaped: Called for each child with its id, exit code and resource usage.

    Returns:
        Whether all have ended.
    """
    deadline = monotonic() + ENDING
    while monotonic() < deadline:
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass  # macOS raises it for a group of zombies
        try:
            pid, status, used = os.wait4(-group, 0)
        except ChildProcessError:
            sleep(0.0005)  # a grandchild whose parent is ending
            continue
        reaped(pid, os.waitstatus_to_exitcode(status), used)
    return False


def end_descendants(root: int) -> None:
    """Kill the descendants of a process, if they are few."""
    for _ in range(100):
        found = list(members(root))
        if not found:
            return
        for pid in found:
            kill_if(pid, lambda pid=pid: pid in members(root))  # type: ignore[misc]
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue


def end_session(session: int) -> None:
    """Kill the processes of a session in all groups, except its leader.

    Args:
        session: The id of its leader, a child that hasn't been waited for, so that the id isn't
            reused.
    """
    if sys.platform != "linux":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(session, signal.SIGKILL)
        return
    deadline = monotonic() + ENDING
    while monotonic() < deadline:
        pids = set(map(int, filter(str.isdigit, os.listdir("/proc")))) - {session}
        found = [pid for pid in pids if _runs_in(pid, session)]
        for pid in found:
            kill_if(pid, lambda pid=pid: _runs_in(pid, session))  # type: ignore[misc]
        if not found:
            return
        sleep(0.001)


def _runs_in(pid: int, session: int) -> bool:
    """Return whether a process belongs to a session and hasn't ended."""
    stat = stat_of(pid)
    return stat is not None and stat.session == session and not stat.ended
