"""``guerdon score``: score recorded rollouts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from guerdon.cli.consoles import console
from guerdon.cli.report import report_as_json, report_tables
from guerdon.rollouts.job import Job, JobReport

__all__ = ["score"]


def score(
    rollouts: Annotated[
        str,
        typer.Argument(
            metavar="ROLLOUTS.jsonl",
            help="One rollout a line: id, group, messages, ground_truth, and any further columns. "
            "[bold]-[/bold] reads standard input.",
            show_default=False,
        ),
    ],
    reward: Annotated[
        str,
        typer.Option(
            "--reward",
            "-r",
            metavar="SPEC",
            show_default=False,
            help="The reward, as [bold]file.py:name[/bold] or [bold]module:name[/bold].",
        ),
    ],
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            metavar="F.jsonl",
            show_default=False,
            help="Where the result rows go, one a rollout, in order; [bold]-[/bold] is standard "
            "output. Without it there is only the summary.",
        ),
    ] = None,
    workers: Annotated[
        int, typer.Option("--workers", "-w", min=1, help="How many processes score.")
    ] = 1,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on after the rows that stand in --out already.")
    ] = False,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            metavar="COLUMN",
            show_default=False,
            help="Break the summary down by a column of the rollouts.",
        ),
    ] = None,
    passing: Annotated[
        float | None,
        typer.Option(
            "--passing",
            metavar="SCORE",
            show_default=False,
            help="Also tell the accuracy: the share of valid scores of at least this.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON, for scripts.")
    ] = False,
) -> None:
    """Score recorded rollouts with a reward.

    Each assistant turn is an action, what follows it is its observation; the reward is reset and
    replayed over each rollout. Out comes a row for each: its score, whether that is valid, every
    component, the reward of each step, and what failed.

    [bold]Exit codes[/bold]: 0, every row has a valid score. 1, some failed. 2, nothing could be
    done. 130, ctrl-C; every finished row is kept, and --resume goes on from there.
    """  # fmt: skip
    job = Job(rollouts, reward, out, workers, resume, by, passing)
    with _progress(job):
        report = job.run()
    _print(report, job, as_json)
    if report.interrupted:
        raise typer.Exit(130)
    if report.summary.failed:
        raise typer.Exit(1)


def _print(report: JobReport, job: Job, as_json: bool) -> None:
    # Where the rows themselves go to standard output, the summary steps aside.
    out = console(stderr=job.out == "-")
    if as_json:
        text = json.dumps(report_as_json(report, job.reward), ensure_ascii=False, indent=2)
        out.print(text, markup=False, highlight=False, soft_wrap=True)
    else:
        for part in report_tables(report, job):
            out.print(part)


@contextmanager
def _progress(job: Job) -> Iterator[None]:
    err = console(stderr=True)
    if not err.is_terminal:
        yield
        return
    size = os.path.getsize(job.rollouts) if os.path.isfile(job.rollouts) else None
    columns = (
        TextColumn("scoring"),
        BarColumn(),
        DownloadColumn(),
        TextColumn("{task.fields[rows]:,} rows"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("scoring", total=size, rows=0)

        def show(rows: int, read: int) -> None:
            bar.update(task, completed=read, rows=rows)

        job.progress = show
        yield
