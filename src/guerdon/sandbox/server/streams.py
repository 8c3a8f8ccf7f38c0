"""Python's standard streams, for a process whose descriptors were changed under it."""

from __future__ import annotations

import os
import sys

__all__ = ["open_streams"]


def open_streams() -> None:
    """Have streams on descriptors 0, 1 and 2, which are left open."""
    sys.stdin = os.fdopen(0, "r", encoding="utf-8", errors="surrogateescape", closefd=False)
    sys.stdout, sys.stderr = (
        os.fdopen(
            number, "w", buffering, encoding="utf-8", errors="backslashreplace", closefd=False
        )
        for number, buffering in ((1, -1), (2, 1))
    )
