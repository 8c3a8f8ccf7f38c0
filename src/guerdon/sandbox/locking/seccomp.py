"""Loading a filter of system calls into the kernel."""

from __future__ import annotations

import ctypes
import sys

from guerdon.errors import SandboxError
from guerdon.sandbox.locking.bpf import Filter
from guerdon.sandbox.locking.kernel import PR_SET_NO_NEW_PRIVS, prctl, syscall

__all__ = ["LoadableFilter", "forbid_new_privileges"]

SECCOMP_SET_MODE_FILTER = 1


class _Program(ctypes.Structure):
    """``struct sock_fprog``."""

    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))


class LoadableFilter:
    """A filter in memory as the kernel takes it, so that loading it is one system call.

    It stays for good, and holds for all that the process starts. It is made before the fork and
    loaded after it.

    Args:
        filter: What was assembled.
        number: The number of seccomp(2) here.
    """

    def __init__(self, filter: Filter, *, number: int) -> None:
        self._code = ctypes.create_string_buffer(filter.code, len(filter.code))
        self._pid_at = filter.pid_at
        self._bytes = memoryview(self._code).cast("B")
        self._program = _Program(len(filter), ctypes.addressof(self._code))
        # Made here, as all that a call makes or touches first costs it a page of memory.
        self._given = (
            *map(ctypes.c_long, (number, SECCOMP_SET_MODE_FILTER, 0)),
            ctypes.byref(self._program),
        )

    def load(self, pid: int) -> None:
        """Put it on this thread.

        Args:
            pid: The number of this process.

        Raises:
            SandboxError: The kernel refused it.
        """
        for place in self._pid_at:
            self._bytes[place : place + 4] = pid.to_bytes(4, sys.byteorder)
        try:
            syscall(*self._given)
        except OSError as error:
            raise SandboxError(f"the filter of system calls was refused: {error}") from error


def forbid_new_privileges() -> None:
    """No program that is started from here on gives a privilege; a filter takes that first.

    Raises:
        SandboxError: The kernel refused.
    """
    try:
        prctl(PR_SET_NO_NEW_PRIVS, 1)
    except OSError as error:
        raise SandboxError(f"no_new_privs was refused: {error}") from error
