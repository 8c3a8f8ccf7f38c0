"""What this machine has, as far as cases need it."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import sys
from functools import cache
from typing import Literal

from guerdon.sandbox.conformance.preamble import NUMBERS

__all__ = ["lacks", "machine"]

_X32 = 0x40000000


def machine() -> str:
    """The architecture, ``x86_64`` or ``aarch64`` where there are system calls to name."""
    return os.uname().machine if sys.platform == "linux" else sys.platform


@cache
def lacks(kind: Literal["system call", "socket", "x32", "x86"], name: str = "") -> str | None:
    """Why a case can't be tried here; None where it can.

    The calls are made with arguments that no kernel takes, so nothing comes of them.

    Args:
        kind: What the case needs.
        name: Which one.
    """
    here = machine()
    if kind == "socket":
        return _lacks_family(name)
    if here != "x86_64" and (kind != "system call" or here != "aarch64"):
        return f"not on {here}"
    if kind == "x86":
        return None
    number = _X32 | NUMBERS["getpid"][0] if kind == "x32" else NUMBERS[name][here == "aarch64"]
    kernel = ctypes.CDLL(None, use_errno=True)
    answer = kernel.syscall(*(ctypes.c_long(word) for word in (number, -1, 0, 0, 0, 0, 0)))
    missing = answer == -1 and ctypes.get_errno() == errno.ENOSYS
    return f"this kernel has no {name or kind}" if missing else None


def _lacks_family(name: str) -> str | None:
    if name == "AF_INET6":
        try:
            with socket.create_server(("::1", 0), family=socket.AF_INET6):
                return None
        except OSError as error:
            return f"this machine has no IPv6: {error.strerror}"
    return None if hasattr(socket, name) else f"Python has no {name} here"
