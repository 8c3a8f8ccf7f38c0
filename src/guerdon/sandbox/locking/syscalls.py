"""System calls: their numbers on each kind of processor, and making those Python lacks."""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass
from functools import cache

from guerdon.errors import InvalidArgumentError
from guerdon.sandbox.locking.syscall_numbers import NUMBERS

# The highest number that was in use when the rules were written (Linux 6.18). What has a higher one
# is newer than they are.
HIGHEST = 470

# linux/prctl.h
PR_SET_PDEATHSIG = 1
PR_SET_KEEPCAPS = 8
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4


@dataclass(frozen=True, slots=True)
class Architecture:
    """A kind of processor, as the kernel sees it.

    Attributes:
        name: As of ``uname -m``.
        audit: What the kernel passes to a filter (``AUDIT_ARCH_…`` of linux/audit.h).
        column: Its column in the table of numbers.
    """

    name: str
    audit: int
    column: int

    def number(self, call: str) -> int | None:
        """The number of a call; None where this architecture lacks it.

        Example:
            >>> from guerdon.sandbox.locking.syscalls import ARCHITECTURES
            >>> ARCHITECTURES["x86_64"].number("read"), ARCHITECTURES["aarch64"].number("open")
            (0, None)

        Raises:
            InvalidArgumentError: The name isn't in the table.
        """
        if call not in NUMBERS:
            raise InvalidArgumentError(f"{call!r} is not in the table of system calls")
        return NUMBERS[call][self.column]


ARCHITECTURES = {
    "x86_64": Architecture("x86_64", 0xC000_003E, 0),
    "aarch64": Architecture("aarch64", 0xC000_00B7, 1),
}


def this_architecture() -> Architecture | None:
    """The one that this interpreter is built for; None for one without a table.

    A 32-bit interpreter on a 64-bit kernel has none: it makes other calls.
    """
    if sys.platform != "linux" or sys.maxsize <= 2**32 or sys.byteorder != "little":
        return None
    return ARCHITECTURES.get(os.uname().machine)


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
    return _checked(_libc().syscall(*map(_wide, (number, *arguments))))


def prctl(option: int, *arguments: int) -> int:
    """Change or read an attribute of this thread (see the manual page).

    Raises:
        OSError: It was refused.
    """
    return _checked(_libc().prctl(option, *(*arguments, 0, 0, 0, 0)[:4]))


def _checked(result: int) -> int:
    if result == -1:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return int(result)


def _wide(argument: object) -> object:
    return ctypes.c_long(argument) if isinstance(argument, int) else argument
