"""Python's standard streams, for a process whose descriptors were changed under it."""

from __future__ import annotations

import os
import sys

__all__ = ["open_streams"]


def open_streams() -> None:
    """Have streams on descriptors 0, 1 and 2, which are left open."""
    given = os.fdopen(0, "r", encoding="utf-8", errors="surrogateescape", closefd=False)
    printed, told = (
        os.fdopen(
            number, "w", buffering, encoding="utf-8", errors="backslashreplace", closefd=False
        )
        for number, buffering in ((1, -1), (2, 1))
    )
    sys.stdin = sys.__stdin__ = given  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = printed  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = told  # type: ignore[misc]
