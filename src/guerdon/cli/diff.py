"""``guerdon diff``: what a change of the reward does to the same rollouts."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from guerdon.cli.consoles import console
from guerdon.cli.diff_report import diff_as_json, diff_tables
from guerdon.cli.progress import progress
from guerdon.rollouts.comparing.job import ComparisonJob
from guerdon.rollouts.json_forms import as_text
from guerdon.rollouts.scoring.formats import FORMATS

__all__ = ["diff"]


def diff(
    before: Annotated[
        str,
        typer.Argument(
            metavar="A",
            show_default=False,
            help="The reward before: [bold]reward.yaml[/bold], [bold]file.py:name[/bold] or "
            "[bold]module:name[/bold].",
        ),
    ],
    after: Annotated[
        str, typer.Argument(metavar="B", show_default=False, help="The reward after, likewise.")
    ],
    rollouts: Annotated[
        str,
        typer.Argument(
            metavar="ROLLOUTS",
            show_default=False,
            help="One rollout a line: id, group, messages, ground_truth, and any further columns. "
            "[bold]-[/bold] reads standard input.",
        ),
    ],
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            metavar="COLUMN",
            show_default=False,
            help="Break the movement down by a column of the rollouts.",
        ),
    ] = None,
    top: Annotated[
        int,
        typer.Option(
            "--top",
            metavar="N",
            min=0,
            help="How many rollouts that moved most, and pairs that flipped, are told one by one.",
        ),
    ] = 10,
    format: Annotated[
        str,
        typer.Option("--format", metavar="|".join(FORMATS), help="How the rollouts are written."),
    ] = "jsonl",
    at: Annotated[
        int | None,
        typer.Option(
            "--at",
            metavar="N",
            min=0,
            show_default=False,
            help="Where the schedules of reward files stand: the episode, and the training step. "
            "By default at the start.",
        ),
    ] = None,
    score_failed: Annotated[
        bool,
        typer.Option(
            "--score-failed",
            help="Score episodes that ended with an error, too; else their rows are invalid.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the comparison as JSON, for scripts.")
    ] = False,
) -> None:
    """Score the same rollouts with two rewards, and compare.

    What changed in the reward: entries, weights, schedules, settings, code. How the scores moved,
    and which rollouts moved most. Which pairs within a group changed their order, and in how many
    groups another rollout is the best: to methods that normalise within a group, a shift of all
    scores is nothing, and another order is. The rollouts of a group may stand anywhere in the
    file, unless a reward scores batches.

    A rollout that has no valid score with one of the rewards is counted as that. It is no
    difference, and ranks nowhere.

    [bold]Exit codes[/bold]: 0, every row has a valid score with both, whatever moved. 1, some
    failed. 2, nothing could be done. 130, ctrl-C; what was scored up to there is compared.
    """  # fmt: skip
    job = ComparisonJob(
        before, after, rollouts, by=by, top=top, format=format, score_failed=score_failed, at=at
    )
    with progress(job, "comparing"):
        report = job.run()
    out = console()
    if as_json:
        text = json.dumps(
            as_text(diff_as_json(report, job)), ensure_ascii=False, indent=2, allow_nan=False
        )
        out.print(text, markup=False, highlight=False, soft_wrap=True)
    else:
        for part in diff_tables(report, job):
            out.print(part)
    if report.interrupted:
        raise typer.Exit(130)
    if report.comparison.failed:
        raise typer.Exit(1)
