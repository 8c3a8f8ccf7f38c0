"""Printing: consoles, tables, JSON, warnings, and the progress of a run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from guerdon._logging import plain
from guerdon.rollouts.json_forms import as_text

# Columns of a file or a pipe, which have no width of their own.
FILE_WIDTH = 110


def console(*, stderr: bool = False) -> Console:
    """A console for standard output or standard error."""
    made = Console(stderr=stderr, emoji=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = FILE_WIDTH
    return made


def print_parts(parts: Iterable[Table | Text], *, stderr: bool = False) -> None:
    """Print tables and texts."""
    out = console(stderr=stderr)
    for part in parts:
        out.print(part)


def print_json(data: Any, *, stderr: bool = False) -> None:
    """Print data as strict JSON; values that JSON doesn't have become text."""
    text = json.dumps(as_text(data), ensure_ascii=False, indent=2, allow_nan=False)
    one_line(text, stderr=stderr)


def one_line(text: str, *, stderr: bool = False) -> None:
    """Print text unchanged: without wrapping, markup or colours."""
    console(stderr=stderr).print(text, markup=False, highlight=False, soft_wrap=True)


def warn(text: str) -> None:
    """Print a warning to standard error."""
    line = f"[bold yellow]warning:[/] {escape(text)}"
    console(stderr=True).print(line, highlight=False, soft_wrap=True)


def table(*titles: str, numbers: bool = False, header: bool = True) -> Table:
    """An empty table.

    Args:
        *titles: The titles of the columns.
        numbers: Whether all columns but the first have numbers, which are aligned right.
        header: Whether the titles are shown.
    """
    made = Table(box=SIMPLE_HEAD, pad_edge=False, show_header=header)
    for place, title in enumerate(titles):
        made.add_column(Text(title), justify="right" if numbers and place else "left",
                        overflow="fold")  # fmt: skip
    return made


def cell(text: str) -> Text:
    """A cell with text from a file, which is neither markup nor can steer a terminal."""
    return Text(plain(text))


def number(value: float | None) -> str:
    """A number with three decimals; a dash for None."""
    return "–" if value is None else f"{value + 0.0:.3f}"  # -0.0 as 0.0


def share(value: float | None) -> str:
    """A share in percent; a dash for None."""
    return "–" if value is None else f"{value:.1%}"


def alarm(count: int) -> str:
    """A count that is red unless it is 0."""
    return f"[bold red]{count:,}[/]" if count else "0"


@contextmanager
def progress(rollouts: str, doing: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show the progress through a file on standard error, if that is a terminal.

    Args:
        rollouts: The file.
        doing: What is done, such as ``"scoring"``.

    Yields:
        A function that is called with the number of finished rows and of bytes read.
    """
    err = console(stderr=True)
    if not err.is_terminal:
        yield None
        return
    size = os.path.getsize(rollouts) if os.path.isfile(rollouts) else None
    columns = (
        TextColumn(doing),
        BarColumn(),
        DownloadColumn(),
        TextColumn("{task.fields[rows]:,} rows"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(doing, total=size, rows=0)
        yield lambda rows, read: bar.update(task, completed=read, rows=rows)
