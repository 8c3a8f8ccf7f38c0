"""Users and capabilities, which a process that runs as root gives up.

A process of an otherwise unused user can't signal, trace or read those of others. The user is
reserved by binding a socket name, which the kernel frees when the owner ends.
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

# linux/sched.h
CLONE_NEWUSER = 0x1000_0000
# The first kernel that counts the processes of a user in each user namespace.
COUNTS_IN_NAMESPACES = (5, 14)
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


# User ids that by convention are unassigned: between the users of systems and those that containers
# map, and, in a container with only 65536, between people and services.
UNASSIGNED = (range(66_000, 100_000), range(60_578, 61_184))


class ReservedUser:
    """A user id that no account, process or other sandbox has.

    Raises:
        SandboxError: All are taken.

    Attributes:
        uid: The id of the user, and of its group.
    """

    def __init__(self) -> None:
        busy = _busy_users()
        for uid in _candidates():
            name = _reserve(uid) if uid not in busy else None
            if name is not None:
                self.uid, self._name = uid, name
                return
        raise SandboxError("all unassigned user ids are taken, or missing in this user namespace")

    def close(self) -> None:
        """Release it."""
        self._name.close()


def unreachable(paths: Iterable[str]) -> list[str]:
    """Return the paths that a user can't read who owns no file and is in no group.

    Only the path itself and the folders above it are checked, not what is under it.
    """
    return [path for path in paths if not _others_can_read(path)]


def reading_capability() -> Capability | None:
    """Return the capability to keep if files can't be read otherwise; None if there is none.

    Containers lack the narrower one, which only reads, and have the wider one. Landlock refuses
    what else it allows.
    """
    permitted = permitted_capabilities()
    reading = (Capability.CAP_DAC_READ_SEARCH, Capability.CAP_DAC_OVERRIDE)
    return next((capability for capability in reading if permitted >> capability & 1), None)


def permitted_capabilities() -> int:
    """Return the capabilities that this process may use, a bit each."""
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
        uid: The id of the user and of its group.
        keep: One capability to keep; see `reading_capability`.

    Raises:
        OSError: A step was refused.
        SandboxError: It had no effect.
    """
    _empty_bounding_set()
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    if keep is not None:
        # Otherwise the change of user clears all.
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
    # Effective, permitted and inheritable: the low 32 bits, then the high ones.
    data = (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)
    call("capset", ctypes.byref(header), ctypes.byref(data))


def _empty_bounding_set() -> None:
    """Prevent programs from regaining a capability, though none is ever started."""
    for capability in range(64):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:  # without CAP_SETPCAP, and no_new_privs does the same; or beyond the last
            return


def has_spare_users() -> bool:
    """Return whether this user namespace has unassigned user ids."""
    return any(_candidates())


def enter_user_namespace() -> bool:
    """Move this process into a user namespace of its own, and return whether that succeeded.

    There the kernel counts its threads, and those of its descendants, apart from all others of the
    user. Containers usually forbid it.
    """
    release = os.uname().release.split(".")
    if tuple(map(int, release[:2])) < COUNTS_IN_NAMESPACES:
        return False
    try:
        call("unshare", CLONE_NEWUSER)
    except OSError:
        return False
    return True


def _candidates() -> Iterator[int]:
    """Yield the user ids to try, in a different order in each process, so that few collide."""
    mapped = _mapped_users()
    for numbers in UNASSIGNED:
        # Random: containers don't see each other's reservations.
        start = random.randrange(len(numbers))
        for uid in (*numbers[start:], *numbers[:start]):
            if any(uid in range_ for range_ in mapped) and not _has_account(uid):
                yield uid


def _mapped_users() -> list[range]:
    """Return the user ids of this user namespace."""
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
    """Return the user ids of all processes: real, effective and saved."""
    busy: set[int] = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/status", "rb") as status:
            for line in status:
                if line.startswith(b"Uid:"):
                    busy.update(map(int, line.split()[1:]))
    return busy


def _reserve(uid: int) -> socket.socket | None:
    """Bind the name that reserves a user; return None if another process has bound it."""
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
