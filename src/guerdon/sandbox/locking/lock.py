"""Limiting and locking processes: `LimitsLock` for ``process``, `StrictLock` for ``strict``.

::

    supervisor  StrictLock(read)        compiles filters; nothing is locked
    ├─ program  lock_program()          limits, files, user, system calls
    └─ template lock_template()         the same; it may still fork and load a filter
       └─ call  lock_function_call()    no processes, and signals to itself alone

Files come before the user, since root may be needed to reach them, and the filter is the last,
since it forbids all the others.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from guerdon.errors import SandboxError
from guerdon.sandbox.locking import privileges, rules
from guerdon.sandbox.locking.filters import assemble
from guerdon.sandbox.locking.landlock import FileRules, abi_version
from guerdon.sandbox.locking.privileges import Capability
from guerdon.sandbox.locking.rlimits import limit_call, limit_memory, limit_processes
from guerdon.sandbox.locking.syscalls import (
    ARCHITECTURES,
    PR_SET_PDEATHSIG,
    prctl,
    this_architecture,
)

if TYPE_CHECKING:
    from landlockpy import Ruleset


class LimitsLock:
    """Limits a process at the level ``process``.

    Attributes:
        uid: The user as whom it runs; None is the present one.
        closed_groups: Whether no process can leave its process group.
        descriptors: Descriptors that a locked template needs to limit its calls.
    """

    uid: int | None = None
    closed_groups = False

    def __init__(self) -> None:
        self.descriptors: list[int] = []

    def facts(self) -> dict[str, str]:
        """Return what is in force on this machine."""
        return {}

    @contextlib.contextmanager
    def fork(self, folder: str | None) -> Iterator[None]:
        """Prepare, in the supervisor, for the fork of a program that may write into a folder."""
        yield

    def lock_program(self, limits: dict[str, Any]) -> None:
        """Lock a process that will run a program.

        Raises:
            SandboxError: A step was refused. The process must end, as after all methods.
        """
        _die_with_parent()
        limit_call(limits)

    def lock_template(self, limits: dict[str, Any]) -> None:
        """Lock a template, before it imports user code. Its calls are limited one by one."""
        _die_with_parent()

    def limit_calls(self, limits: dict[str, Any]) -> None:
        """Limit the memory and threads of a locked template, before its first call."""
        limit_memory(limits)

    def lock_function_call(self, limits: dict[str, Any]) -> None:
        """Lock a copy of a locked template."""
        self.lock_program(limits)

    def close(self) -> None:
        """Release what it has reserved, such as the user."""


class StrictLock(LimitsLock):
    """Locks a process at the level ``strict``: its files, user and system calls, and limits.

    Args:
        read: Files and folders that may be read, with all that is under them.

    Attributes:
        files: Which files may be read.
        keep: The capability that reading needs; usually None, since other users can read the files.

    Raises:
        SandboxError: No user is available, or other users can't read the files.
    """

    closed_groups = True

    def __init__(self, read: Sequence[str]) -> None:
        super().__init__()
        self.files = FileRules(read)
        shut = privileges.unreachable(self.files.paths)
        self.keep = privileges.reading_capability() if shut else None
        root = os.geteuid() == 0
        if root and shut and self.keep is None:
            raise SandboxError(f"other users can't read {shut[0]}: chmod -R o+rX {shut[0]}")
        self._user = privileges.ReservedUser() if root else None
        self.uid = self._user.uid if self._user is not None else None
        # How many processes count that don't belong to calls: in a namespace, this one. There a
        # capability that is kept would have no effect.
        apart = not root and self.keep is None and privileges.enter_user_namespace()
        self._others = 0 if root else 1 if apart else None
        architecture, abi = this_architecture(), abi_version()
        assert architecture is not None  # see `requirements`
        policies = (rules.template(abi), rules.program(abi), rules.function_call())
        self._filters = {policy.name: assemble(policy, architecture) for policy in policies}
        self._parent = os.getpid()
        self._built: Ruleset | None = None

    def facts(self) -> dict[str, str]:
        """Return what is in force on this machine."""
        found = facts() | {
            "calls run as": "this user" if self.uid is None else str(self.uid),
            "threads": "counted every 20 ms" if self._others is None else "limited by the kernel",
        }
        return found if self.keep is None else found | {"capability kept": self.keep.name}

    @contextlib.contextmanager
    def fork(self, folder: str | None) -> Iterator[None]:
        """Build the file rules of the process that is forked."""
        with self.files.build(folder) as self._built:
            yield
        self._built = None

    def lock_program(self, limits: dict[str, Any]) -> None:
        """Limit and lock a process that will run a program."""
        self._lock("program", limits)

    def lock_template(self, limits: dict[str, Any]) -> None:
        """Limit and lock a template."""
        self.descriptors = [os.open("/proc/self/statm", os.O_RDONLY)]
        self._lock("template", limits)
        self._parent = os.getpid()

    def limit_calls(self, limits: dict[str, Any]) -> None:
        """Limit a template, and so its copies."""
        limit_memory(limits, self.descriptors[0])
        if self._others is not None:
            limit_processes(limits, others=self._others)

    def lock_function_call(self, limits: dict[str, Any]) -> None:
        """Load the filter of a call; it has the limits of its template."""
        # It ends with the template, which is in the same group.
        self._filters["function_call"].load(os.getpid())

    def close(self) -> None:
        """Release the user."""
        if self._user is not None:
            self._user.close()

    def _lock(self, policy: str, limits: dict[str, Any]) -> None:
        try:
            limit_call(limits, others=self._others)
            with self._built or self.files.build() as built:
                # This also sets no_new_privs, which the filter requires.
                built.restrict()
            if self.uid is not None:
                privileges.drop(self.uid, keep=self.keep)
            else:
                privileges.give_up(keep=self.keep)
            # After the change of user, which would undo it.
            _die_with_parent()
        except OSError as error:
            raise SandboxError(f"locking was refused: {error}") from error
        if os.getppid() != self._parent:
            raise SandboxError("what started this process has ended already, or is another")
        self._filters[policy].load(os.getpid())


def _die_with_parent() -> None:
    """Be killed when the parent ends, on Linux; a change of user undoes it."""
    if sys.platform == "linux":
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def requirements() -> list[str]:
    """Return what this machine lacks for ``strict``, each with how to fix it; usually nothing.

    Example:
        >>> from guerdon.sandbox.locking.lock import requirements
        >>> all("strict" in line or ": " in line for line in requirements())
        True
    """
    if sys.platform != "linux":
        name = {"darwin": "macOS", "win32": "Windows"}.get(sys.platform, sys.platform)
        return [
            f"this is {name}; strict needs Linux: run in a Linux container, or --sandbox process"
        ]
    missing = []
    if this_architecture() is None:
        known = " or ".join(ARCHITECTURES)
        missing.append(
            f"there is no filter for {os.uname().machine} with this Python: use a 64-bit Python on "
            f"{known}"
        )
    if not os.path.isdir("/proc/self/task"):
        missing.append("/proc isn't mounted: mount -t proc proc /proc")
    else:
        if not os.path.exists("/proc/sys/kernel/seccomp/actions_avail"):
            missing.append(
                "the kernel has no seccomp filters: use a kernel of 4.14 or later with "
                "CONFIG_SECCOMP_FILTER=y"
            )
        missing += _missing_for_root() if os.geteuid() == 0 else []
    return missing + _landlock()[1]


def facts() -> dict[str, str]:
    """Return what this machine has for ``strict``."""
    if sys.platform != "linux":
        return {"platform": sys.platform}
    machine, (landlock, _) = os.uname(), _landlock()
    return {"architecture": machine.machine, "kernel": machine.release, "Landlock": landlock}


def _missing_for_root() -> list[str]:
    permitted = privileges.permitted_capabilities()
    missing = [
        f"root has no {wanted.name} here: docker run --cap-add={wanted.name.removeprefix('CAP_')}, "
        "or run as an ordinary user: docker run --user 1000"
        for wanted in (Capability.CAP_SETUID, Capability.CAP_SETGID, Capability.CAP_KILL)
        if not permitted >> wanted & 1
    ]
    if not privileges.has_spare_users():
        missing.append(
            "root has no other user to become in this user namespace: run as an ordinary user, or "
            "map 65536 users into it (/etc/subuid, /etc/subgid)"
        )
    return missing


def _landlock() -> tuple[str, list[str]]:
    """Return the state of Landlock on this machine, and what is missing."""
    try:
        abi = abi_version()
    except ImportError:
        why = "landlockpy is not installed"
        return why, [f"{why}: pip install landlockpy==0.2.0"]
    except OSError as error:
        return f"refused: {error}", [
            f"Landlock is refused ({error}): allow landlock_* in the container's seccomp"
        ]
    if abi:
        return f"interface {abi}", []
    return "missing", [
        "the kernel has no Landlock: use Linux 5.13 or later, with landlock in the list lsm= on "
        "its command line (cat /sys/kernel/security/lsm shows it)"
    ]
