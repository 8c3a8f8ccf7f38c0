"""Where the command writes: to a terminal, or to a file that has no width of its own."""

from __future__ import annotations

import os

from rich.console import Console

__all__ = ["console", "plain"]

# Columns of a file or a pipe, where nobody has said otherwise.
FILE_WIDTH = 110


def console(*, stderr: bool = False) -> Console:
    """A console for standard output or standard error."""
    made = Console(stderr=stderr, emoji=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = FILE_WIDTH
    return made


def plain(text: str) -> str:
    r"""Text from a file, on one line, with what would steer a terminal told as its escape.

    Example:
        >>> plain("q7\x1b[2J")
        'q7\\x1b[2J'
    """
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "backslashreplace").decode()
        for each in text
    )
