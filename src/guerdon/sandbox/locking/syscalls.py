"""`Architecture`: what a system call's number is, on each kind of processor."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from guerdon.errors import InvalidArgumentError
from guerdon.sandbox.locking.syscall_numbers import NUMBERS

__all__ = ["ARCHITECTURES", "Architecture", "this_architecture"]

# The highest number that was in use when the rules were written (Linux 6.18). What has a higher one
# is newer than they are.
HIGHEST = 470


@dataclass(frozen=True, slots=True)
class Architecture:
    """A kind of processor, as the kernel sees it.

    Attributes:
        name: As of ``uname -m``.
        audit: How the kernel names it to a filter (``AUDIT_ARCH_…`` of linux/audit.h).
        column: Its column in the table of numbers.
    """

    name: str
    audit: int
    column: int

    def number(self, call: str) -> int | None:
        """The number of a call; None where this architecture has none of that name.

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
    """The one that this interpreter is built for; None where it is none of these.

    A 32-bit interpreter on a 64-bit kernel is none: it makes other calls.
    """
    if sys.platform != "linux" or sys.maxsize <= 2**32 or sys.byteorder != "little":
        return None
    return ARCHITECTURES.get(os.uname().machine)
