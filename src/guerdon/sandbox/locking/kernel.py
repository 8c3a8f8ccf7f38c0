"""The system calls for which Python has no function, through the C library."""

from __future__ import annotations

import ctypes
import os
from functools import cache

__all__ = ["prctl", "syscall"]

PR_SET_PDEATHSIG = 1
PR_SET_KEEPCAPS = 8
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4


@cache
def _libc() -> ctypes.CDLL:
    # The C library is in the process already: to look for it would start another program.
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    library.prctl.restype = ctypes.c_int
    library.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    return library


def syscall(number: object, *arguments: object) -> int:
    """Make a system call.

    Args:
        number: Its number on this architecture.
        *arguments: Objects of ctypes; a plain int is taken as 64 bits.

    Raises:
        OSError: It failed.
    """
    result = _libc().syscall(*map(_wide, (number, *arguments)))
    if result == -1:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return int(result)


def prctl(option: int, *arguments: int) -> int:
    """Ask something of the kernel about this thread (prctl(2)).

    Raises:
        OSError: It was refused.
    """
    result = _libc().prctl(option, *(*arguments, 0, 0, 0, 0)[:4])
    if result == -1:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return int(result)


def _wide(argument: object) -> object:
    return ctypes.c_long(argument) if isinstance(argument, int) else argument
