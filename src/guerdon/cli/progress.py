"""A bar on the terminal while rollouts are read and scored."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from guerdon.cli.consoles import console

__all__ = ["progress"]


class _Reading(Protocol):
    """Something that reads rollouts, and says how far it is."""

    rollouts: str
    progress: Callable[[int, int], None] | None


@contextmanager
def progress(job: _Reading, doing: str) -> Iterator[None]:
    """Show how far a job is, on standard error where that is a terminal.

    Args:
        job: Told by its ``progress``.
        doing: What it does, such as ``"scoring"``.
    """
    err = console(stderr=True)
    if not err.is_terminal:
        yield
        return
    size = os.path.getsize(job.rollouts) if os.path.isfile(job.rollouts) else None
    columns = (
        TextColumn(doing),
        BarColumn(),
        DownloadColumn(),
        TextColumn("{task.fields[rows]:,} rows"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(doing, total=size, rows=0)

        def show(rows: int, read: int) -> None:
            bar.update(task, completed=read, rows=rows)

        job.progress = show
        yield
