"""Where the command writes: to a terminal, or to a file that has no width of its own."""

from __future__ import annotations

import os

from rich.console import Console

__all__ = ["console"]

# Columns of a file or a pipe, where nobody has said otherwise.
FILE_WIDTH = 110


def console(*, stderr: bool = False) -> Console:
    """A console for standard output or standard error."""
    made = Console(stderr=stderr, emoji=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = FILE_WIDTH
    return made
