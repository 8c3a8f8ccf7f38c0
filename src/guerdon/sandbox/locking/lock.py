"""`LockPlan`: the steps that make a process ``strict``, in their order.

::

    supervisor  prepare()               rules are read, filters assembled; nothing is locked
    ├─ program  lock_program(folder)    files, user, system calls
    └─ template lock_template()         the same; it may still fork and load a filter
       └─ call  lock_function_call()    no process any more, no signal but to itself

Files come before the user, since root may be needed to reach them, and the filter is the last,
since it forbids all the others.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from guerdon.errors import SandboxError, SandboxUnavailableError
from guerdon.sandbox.locking import privileges, rules
from guerdon.sandbox.locking.filters import Filter, assemble
from guerdon.sandbox.locking.landlock import FileRules, abi_version, restrict
from guerdon.sandbox.locking.syscalls import (
    ARCHITECTURES,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    prctl,
    this_architecture,
)

if TYPE_CHECKING:
    from landlockpy import Ruleset


@dataclass(slots=True)
class LockPlan:
    """Everything that locking needs, made before the fork; `prepare` makes it.

    Attributes:
        files: Which files may be read.
        uid: The user to become; None stays the present one.
        keep: The capability that reading needs if other users can't read the files; usually None.
    """

    files: FileRules
    uid: int | None
    keep: int | None
    _filters: dict[str, Filter] = field(repr=False)
    _parent: int = field(default_factory=os.getpid, repr=False)

    @classmethod
    def prepare(
        cls,
        read: Sequence[str],
        *,
        optional_read: Sequence[str] = (),
        uid: int | None = None,
    ) -> LockPlan:
        """Read the rules and assemble the filters.

        Args:
            read: Files and folders that may be read, with all that is under them.
            optional_read: The same, left out where they don't exist.
            uid: A reserved user's number; needed if this is root, and impossible otherwise.

        Raises:
            SandboxUnavailableError: Something is missing on this machine.
            SandboxError: Root without a user to become.
            InvalidArgumentError: A path isn't absolute, or one of ``read`` doesn't exist.
        """
        architecture = this_architecture()
        missing = requirements()
        if missing or architecture is None:
            raise _unavailable("; ".join(missing), missing)
        if (uid is None) != (os.geteuid() != 0):
            need = (
                "root needs a user to become" if uid is None else "only root becomes another user"
            )
            raise SandboxError(f"uid is {uid}; {need}")
        files = FileRules(read, optional_read)
        shut = privileges.unreachable(files.paths)
        keep = privileges.reading_capability() if shut else None
        if shut and uid is not None and keep is None:
            unreadable = [f"other users can't read {path}: chmod -R o+rX {path}" for path in shut]
            raise _unavailable(f"other users can't read {shut[0]}", unreadable)
        abi = abi_version()
        policies = (rules.template(abi), rules.program(abi), rules.function_call())
        filters = {policy.name: assemble(policy, architecture) for policy in policies}
        return cls(files, uid, keep, filters)

    def lock_template(self) -> None:
        """Lock a process that is to import a function and to fork its calls.

        Raises:
            SandboxError: A step was refused; the process must end then.
        """
        self._lock("template", None, None)
        self._parent = os.getpid()

    def lock_program(self, write: str | None = None, built: Ruleset | None = None) -> None:
        """Lock a process that is to run a program.

        Args:
            write: A folder that it may write in; None for none. As another user it must own it.
            built: The rules of its files, if they were built before the fork.

        Raises:
            SandboxError: A step was refused; the process must end then.
        """
        self._lock("program", write, built)

    def lock_function_call(self) -> None:
        """Lock a call in a copy of a locked template, or in the template itself.

        Raises:
            SandboxError: The kernel refused the filter; the process must end then.
        """
        # It ends with the template all the same: what ends that ends its group.
        self._filters["function_call"].load(os.getpid())

    def _lock(self, name: str, write: str | None, built: Ruleset | None) -> None:
        # No program that is started from here on gives a privilege; a filter requires that.
        _set(PR_SET_NO_NEW_PRIVS, 1, "no_new_privs")
        if built is None:
            with self.files.build(write) as built:
                restrict(built)
        else:
            restrict(built)
        if self.uid is not None:
            privileges.drop(self.uid, keep=self.keep)
        else:
            privileges.give_up(keep=self.keep)
        # After the change of user, which would undo it.
        _set(PR_SET_PDEATHSIG, signal.SIGKILL, "PR_SET_PDEATHSIG")
        if os.getppid() != self._parent:
            raise SandboxError("what started this process has ended already, or is another")
        self._filters[name].load(os.getpid())


def requirements() -> list[str]:
    """What is missing on this machine for ``strict``, each with how to fix it; usually nothing.

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
        missing += _missing_seccomp()
        missing += _missing_for_root() if os.geteuid() == 0 else []
    return missing + _missing_landlock()


def facts(plan: LockPlan | None = None) -> dict[str, str]:
    """What is in force on this machine, for people to read.

    Args:
        plan: How processes are locked; None reports the machine alone.
    """
    if sys.platform != "linux":
        return {"platform": sys.platform}
    found = {"architecture": os.uname().machine, "kernel": os.uname().release}
    try:
        found["Landlock"] = f"interface {abi_version()}"
    except ImportError:
        found["Landlock"] = "landlockpy is not installed"
    except OSError as error:
        found["Landlock"] = f"refused: {error}"
    if plan is not None:
        found["calls run as"] = "this user" if plan.uid is None else str(plan.uid)
        if plan.keep is not None:
            found["capability kept"] = privileges.CAPABILITY_NAMES[plan.keep]
    return found


def _set(option: int, value: int, name: str) -> None:
    try:
        prctl(option, value)
    except OSError as error:
        raise SandboxError(f"{name} was refused: {error}") from error


def _unavailable(why: str, missing: Sequence[str]) -> SandboxUnavailableError:
    return SandboxUnavailableError(
        f"strict doesn't work here: {why}", level="strict", missing=missing
    )


def _missing_for_root() -> list[str]:
    missing = [
        f"root has no {name} here: docker run --cap-add={name.removeprefix('CAP_')}, or run as an "
        "ordinary user: docker run --user 1000"
        for name in privileges.missing_privileges()
    ]
    if not privileges.has_spare_users():
        missing.append(
            "root has no other user to become in this user namespace: run as an ordinary user, or "
            "map 65536 users into it (/etc/subuid, /etc/subgid)"
        )
    return missing


def _missing_seccomp() -> list[str]:
    if os.path.exists("/proc/sys/kernel/seccomp/actions_avail"):
        return []
    return [
        "the kernel has no seccomp filters: use a kernel of 4.14 or later with "
        "CONFIG_SECCOMP_FILTER=y"
    ]


def _missing_landlock() -> list[str]:
    try:
        abi = abi_version()
    except ImportError:
        return ["landlockpy is not installed: pip install landlockpy==0.2.0"]
    except OSError as error:
        return [f"Landlock can't be asked ({error}): allow landlock_* in the container's seccomp"]
    if abi:
        return []
    return [
        "the kernel has no Landlock: use Linux 5.13 or later, with landlock in the list lsm= on "
        "its command line (cat /sys/kernel/security/lsm shows it)"
    ]
