"""``guerdon score``: score recorded rollouts."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Annotated, Any

import typer

from guerdon.cli.consoles import console
from guerdon.cli.progress import progress
from guerdon.cli.report import report_as_json, report_tables
from guerdon.errors import InvalidArgumentError
from guerdon.rollouts.json_forms import as_text
from guerdon.rollouts.scoring.formats import FORMATS
from guerdon.rollouts.scoring.job import Job, JobReport
from guerdon.rollouts.scoring.row_credit import CreditSettings
from guerdon.rollouts.scoring.sandboxing import SandboxSettings
from guerdon.sandbox.limits import Limits

__all__ = ["score"]


def score(
    rollouts: Annotated[
        str,
        typer.Argument(
            metavar="ROLLOUTS",
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
            help="The reward: [bold]reward.yaml[/bold], a pipeline; or [bold]file.py:name[/bold] "
            "or [bold]module:name[/bold], a rubric or a reward function on messages.",
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
        int,
        typer.Option(
            "--workers",
            "-w",
            min=1,
            help="How many processes score; with --sandbox, how many calls run at the same time.",
        ),
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
    format: Annotated[
        str,
        typer.Option("--format", metavar="|".join(FORMATS), help="How the rollouts are written."),
    ] = "jsonl",
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            "-p",
            metavar="NAME=VALUE",
            show_default=False,
            help="What a reward function is given by name; JSON where it is that, else text. "
            "May be repeated.",
        ),
    ] = None,
    credit: Annotated[
        str | None,
        typer.Option(
            "--credit",
            metavar="METHOD",
            show_default=False,
            help="Also give each step an advantage within its group: gigpo, hgpo, grpo, dr_grpo, "
            "rloo, group_normalized_returns, mt_grpo, pure.",
        ),
    ] = None,
    gamma: Annotated[
        float | None,
        typer.Option("--gamma", metavar="γ", show_default=False, help="The discount, in [0, 1]."),
    ] = None,
    omega: Annotated[
        float | None,
        typer.Option(
            "--omega", metavar="ω", show_default=False, help="The weight of the step advantages."
        ),
    ] = None,
    state_key: Annotated[
        str,
        typer.Option(
            "--state-key",
            metavar="KEY",
            help="What makes two steps the same state: [bold]last[/bold] (the last message of the "
            "environment or the user), [bold]last-K[/bold], [bold]history[/bold], or "
            "[bold]file.py:function[/bold].",
        ),
    ] = "last",
    credit_option: Annotated[
        list[str] | None,
        typer.Option(
            "--credit-option",
            metavar="NAME=VALUE",
            show_default=False,
            help="A further option of the method, such as normalize=mean. May be repeated.",
        ),
    ] = None,
    score_failed: Annotated[
        bool,
        typer.Option(
            "--score-failed",
            help="Score episodes that ended with an error, too; else their rows are invalid.",
        ),
    ] = False,
    sandbox: Annotated[
        str,
        typer.Option(
            "--sandbox",
            metavar="LEVEL",
            help="Where the reward runs: [bold]none[/bold], in this process, for code you wrote; "
            "[bold]strict[/bold], shut off from network, files and other processes; "
            "[bold]auto[/bold], strict or not at all; [bold]process[/bold], held against "
            "accidents, not against malice; or the name of a plug-in.",
        ),
    ] = "none",
    allow_read: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-read",
            metavar="PATH",
            show_default=False,
            help="A file or folder that a reward in a sandbox may read. May be repeated.",
        ),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            metavar="NAME=VALUE",
            show_default=False,
            help="What each call in a sandbox may use: seconds, cpu_seconds, memory_bytes, "
            "processes, output_bytes, file_bytes, files. May be repeated.",
        ),
    ] = None,
    at: Annotated[
        int | None,
        typer.Option(
            "--at",
            metavar="N",
            min=0,
            show_default=False,
            help="Where the schedules of a pipeline stand: the episode, or the training step. "
            "By default at the start.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON, for scripts.")
    ] = False,
) -> None:
    """Score recorded rollouts with a reward.

    Each assistant turn is an action, what follows it is its observation; a rubric is reset and
    replayed over each rollout, a reward function is called with its messages. Out comes a row for
    each: its score, whether that is valid, every component, the reward of each step, and what
    failed. Steps are numbered by the assistant turn, from 0.

    With --credit, and with a reward function of batches, the rollouts of a group are scored
    together, and must stand together in the file.

    With --sandbox, a reward that isn't trusted is loaded and called in a sandbox alone; each call
    begins where the one before it began.

    [bold]Exit codes[/bold]: 0, every row has a valid score. 1, some failed, or got no credit. 2,
    nothing could be done. 130, ctrl-C; every finished row is kept, and --resume goes on from
    there.
    """  # fmt: skip
    job = Job(
        rollouts,
        reward,
        out,
        workers=workers,
        resume=resume,
        by=by,
        passing=passing,
        format=format,
        parameters=_named("--param", param),
        score_failed=score_failed,
        credit=_credit(credit, state_key, credit_option, gamma=gamma, omega=omega),
        sandbox=_sandbox(sandbox, allow_read, limit),
        at=at,
    )
    with progress(job, "scoring"):
        report = job.run()
    _print(report, job, as_json)
    if report.interrupted:
        raise typer.Exit(130)
    groups = report.summary.groups
    if report.summary.failed or (groups is not None and groups.uncredited):
        raise typer.Exit(1)


def _named(option: str, given: list[str] | None) -> dict[str, Any]:
    """What was given as NAME=VALUE."""
    named: dict[str, Any] = {}
    for each in given or ():
        name, equals, value = each.partition("=")
        if not equals or not name.isidentifier():
            raise InvalidArgumentError(f"{option} {each!r}: it takes NAME=VALUE")
        if name in named:
            raise InvalidArgumentError(f"{option} {name}: it is given twice")
        try:
            named[name] = json.loads(value)
        except (ValueError, RecursionError):
            named[name] = value
    return named


def _credit(
    method: str | None, state_key: str, given: list[str] | None, **shorts: float | None
) -> CreditSettings | None:
    options = {name: value for name, value in shorts.items() if value is not None}
    for name, value in _named("--credit-option", given).items():
        if name in options:
            raise InvalidArgumentError(f"--credit-option {name}: it is given twice")
        options[name] = value
    if method is not None:
        return CreditSettings(method, state_key, options)
    if options or state_key != "last":
        asked = ", ".join([*options, *(["state key"] if state_key != "last" else [])])
        raise InvalidArgumentError(f"{asked}: no credit is asked for; add --credit METHOD")
    return None


def _sandbox(
    level: str, allow_read: list[str] | None, given: list[str] | None
) -> SandboxSettings | None:
    limits = _named("--limit", given)
    known = [field.name for field in fields(Limits)]
    for name in limits:
        if name not in known:
            raise InvalidArgumentError(f"--limit {name}: it takes {', '.join(known)}")
    if level != "none":
        return SandboxSettings(level, Limits(**limits), tuple(allow_read or ()))
    asked = [*(["--limit"] if limits else []), *(["--allow-read"] if allow_read else [])]
    if asked:
        raise InvalidArgumentError(
            f"{' and '.join(asked)}: no sandbox is asked for; add --sandbox auto"
        )
    return None


def _print(report: JobReport, job: Job, as_json: bool) -> None:
    # Where the rows themselves go to standard output, the summary steps aside.
    out = console(stderr=job.out == "-")
    if as_json:
        told = as_text(report_as_json(report, job.reward))
        text = json.dumps(told, ensure_ascii=False, indent=2, allow_nan=False)
        out.print(text, markup=False, highlight=False, soft_wrap=True)
    else:
        for part in report_tables(report, job):
            out.print(part)
