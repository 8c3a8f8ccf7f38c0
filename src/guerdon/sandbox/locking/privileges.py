"""Users and capabilities: what a process gives up that runs as root.

A user as whom nothing else runs can't signal, trace or read the processes of others, and has a
count of processes of its own. It is reserved by binding a name, which the kernel frees when the
owner ends, however it ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import socket
from collections.abc import Iterable, Iterator
from enum import IntEnum

from guerdon.errors import SandboxError
from guerdon.sandbox.locking.syscalls import call, prctl

# linux/prctl.h and linux/capability.h
PR_SET_KEEPCAPS, PR_CAPBSET_DROP, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 8, 24, 47, 4
CAPABILITY_VERSION_3 = 0x2008_0522


class Capability(IntEnum):
    """The capabilities that are needed here (linux/capability.h)."""

    CAP_DAC_OVERRIDE = 1
    CAP_DAC_READ_SEARCH = 2
    CAP_KILL = 5
    CAP_SETGID = 6
    CAP_SETUID = 7


# Numbers that by convention are not assigned: between the users that systems make and those that
# containers map, and, in a container that has only 65536, between people and services.
UNASSIGNED = (range(66_000, 100_000), range(60_578, 61_184))


class ReservedUser:
    """A user's number that no account, no process and no other sandbox has.

    Raises:
        SandboxError: All are taken.

    Attributes:
        uid: The number, of its group as well.
    """

    def __init__(self) -> None:
        busy = _busy_users()
        for uid in _candidates():
            name = _reserve(uid) if uid not in busy else None
            if name is not None:
                self.uid, self._name = uid, name
                return
        raise SandboxError(
            "every unassigned user's number is taken, or isn't one of this user namespace"
        )

    def close(self) -> None:
        """Release it for others."""
        self._name.close()


def unreachable(paths: Iterable[str]) -> list[str]:
    """Which of these paths a user can't read who owns no file and is in no group.

    Only the path itself and the folders above it are checked, not what is under it.
    """
    return [path for path in paths if not _others_can_read(path)]


def reading_capability() -> Capability | None:
    """The capability to keep if files can't be read otherwise; None if this process has none.

    Containers lack the narrower one, which reads everything, and have the wider one. Landlock
    refuses what it allows besides.
    """
    permitted = permitted_capabilities()
    reading = (Capability.CAP_DAC_READ_SEARCH, Capability.CAP_DAC_OVERRIDE)
    return next((capability for capability in reading if permitted >> capability & 1), None)


def permitted_capabilities() -> int:
    """The capabilities that this process may use, a bit each."""
    with open("/proc/self/status", "rb") as status:
        for line in status:
            if line.startswith(b"CapPrm:"):
                return int(line.split()[1], 16)
    return 0


def give_up(*, keep: int | None = None) -> None:
    """Give up all capabilities, as the present user.

    Args:
        keep: One to keep.

    Raises:
        OSError: It was refused.
    """
    _set_capabilities(0 if keep is None else 1 << keep)
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)


def drop(uid: int, *, keep: int | None = None) -> None:
    """Become another user for good, without a group or a capability.

    Args:
        uid: The user's number, and its group's.
        keep: One capability to keep; see `reading_capability`.

    Raises:
        OSError: A step was refused.
        SandboxError: It had no effect.
    """
    _empty_bounding_set()
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    if keep is not None:
        # Else the change of user takes them all away.
        prctl(PR_SET_KEEPCAPS, 1)
    os.setresuid(uid, uid, uid)
    give_up(keep=keep)
    if os.getresuid() != (uid,) * 3 or os.getresgid() != (uid,) * 3 or os.getgroups():
        raise SandboxError(f"becoming user {uid} had no effect: {os.getresuid()}, {os.getresgid()}")


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def _set_capabilities(bits: int) -> None:
    header = _CapabilityHeader(CAPABILITY_VERSION_3, 0)
    low, high = bits & 0xFFFF_FFFF, bits >> 32
    # Effective, permitted, inheritable, of the low 32 and then of the others.
    data = (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)
    call("capset", ctypes.byref(header), ctypes.byref(data))


def _empty_bounding_set() -> None:
    """Keep programs from giving a capability back, though none is ever started."""
    for capability in range(64):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:  # without CAP_SETPCAP, and no_new_privs does the same; or beyond the last
            return


def has_spare_users() -> bool:
    """Whether this user namespace has numbers that by convention are not assigned."""
    return any(_candidates())


def _candidates() -> Iterator[int]:
    """The numbers to try, in an order that differs between processes, so that few collide."""
    mapped = _mapped_users()
    for numbers in UNASSIGNED:
        # Random: two containers don't see what the other has reserved.
        start = random.randrange(len(numbers))
        for uid in (*numbers[start:], *numbers[:start]):
            if any(uid in range_ for range_ in mapped) and not _has_account(uid):
                yield uid


def _mapped_users() -> list[range]:
    """The users that there are in this user namespace."""
    with open("/proc/self/uid_map") as lines:
        entries = [[int(field) for field in line.split()] for line in lines]
    return [range(first, first + count) for first, _, count in entries]


def _has_account(uid: int) -> bool:
    import grp
    import pwd

    for look_up in (pwd.getpwuid, grp.getgrgid):
        with contextlib.suppress(KeyError):
            look_up(uid)
            return True
    return False


def _busy_users() -> set[int]:
    """The users that processes here run as, their real and saved ones too."""
    busy: set[int] = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/status", "rb") as status:
            for line in status:
                if line.startswith(b"Uid:"):
                    busy.update(map(int, line.split()[1:]))
    return busy


def _reserve(uid: int) -> socket.socket | None:
    """Bind the name that reserves a user; None if another process has bound it."""
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(f"\0guerdon-uid-{uid}")
    except OSError:
        name.close()
        return None
    return name


def _others_can_read(path: str) -> bool:
    path = os.path.realpath(path)
    parts = [path]
    while parts[-1] != "/":
        parts.append(os.path.dirname(parts[-1]))
    try:
        modes = [os.stat(part).st_mode for part in parts]
    except OSError:
        return False
    reading = 0o5 if os.path.isdir(path) else 0o4
    return modes[0] & reading == reading and all(mode & 0o1 for mode in modes[1:])
