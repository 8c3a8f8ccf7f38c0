"""``guerdon score``: score recorded rollouts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from guerdon._logging import plain
from guerdon._validation import check_choice
from guerdon.cli import options
from guerdon.cli.console import (
    alarm,
    cell,
    number,
    print_json,
    print_parts,
    progress,
    share,
    table,
)
from guerdon.errors import InvalidArgumentError, ScoringError
from guerdon.rollouts.crediting import CreditSettings
from guerdon.rollouts.scoring.job import ENGINES, ScoringJob, ScoringReport
from guerdon.rollouts.scoring.scorers import SandboxSettings
from guerdon.rollouts.scoring.summary import GroupStats, GroupSummary, Mean, Summary
from guerdon.sandbox.protocol import Limits
from guerdon.types.score import named_path


def score(
    rollouts: options.Rollouts,
    reward: Annotated[
        str,
        typer.Option(
            "--reward",
            "-r",
            metavar="SPEC",
            help="The reward: [bold]reward.yaml[/bold], or a rubric or reward function as "
            "[bold]file.py:name[/bold] or [bold]module:name[/bold]; with [bold]trl:[/bold], "
            "[bold]verl:[/bold], [bold]verifiers:[/bold] or [bold]openrlhf:[/bold] before it, a "
            "reward function of that library.",
        ),
    ],
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            metavar="F",
            help="The file for the result rows, one per rollout, in order: JSONL, or Parquet if it "
            "ends with [bold].parquet[/bold]; [bold]-[/bold] is standard output. Without it only "
            "the summary is printed.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            "-w",
            min=1,
            help="How many processes score, by default 1, or one for each free CPU of a Ray "
            "cluster; with --sandbox, how many calls run at the same time.",
        ),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(
            metavar="|".join(ENGINES), help="Where the workers are: on this machine, or on Ray."
        ),
    ] = "processes",
    resume: Annotated[bool, typer.Option("--resume", help="Continue after the rows in --out.")] = (
        False
    ),
    by: options.By = None,
    passing: Annotated[
        float | None,
        typer.Option(
            metavar="SCORE", help="Also report the accuracy: the share of valid scores >= this."
        ),
    ] = None,
    format: options.Format = None,
    ground_truth: options.GroundTruth = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            "-p",
            metavar="NAME=VALUE",
            help="A keyword argument for a reward function: JSON if it parses, else text. "
            "Repeatable.",
        ),
    ] = None,
    credit: Annotated[
        str | None,
        typer.Option(
            metavar="METHOD",
            help="Also compute each step's advantage within its group: gigpo, hgpo, grpo, dr_grpo, "
            "rloo, group_normalized_returns, mt_grpo, pure.",
        ),
    ] = None,
    gamma: Annotated[
        float | None, typer.Option(metavar="γ", help="The discount, in [0, 1].")
    ] = None,
    omega: Annotated[
        float | None, typer.Option(metavar="ω", help="The weight of the step advantages.")
    ] = None,
    state_key: Annotated[
        str,
        typer.Option(
            metavar="KEY",
            help="What makes two steps the same state: [bold]last[/bold] (the last message of the "
            "environment or the user), [bold]last-K[/bold], [bold]history[/bold], or "
            "[bold]file.py:function[/bold].",
        ),
    ] = "last",
    credit_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Another option of the method, such as normalize=mean. Repeatable.",
        ),
    ] = None,
    score_failed: options.ScoreFailed = False,
    sandbox: Annotated[
        str,
        typer.Option(
            metavar="LEVEL",
            help="Where the reward runs: [bold]none[/bold], in this process, for code you wrote; "
            "[bold]strict[/bold], isolated from network, files and other processes; "
            "[bold]auto[/bold], strict or an error; [bold]process[/bold], protected against "
            "accidents, not against malice; or the name of a plug-in.",
        ),
    ] = "none",
    allow_read: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH", help="A file or folder that a sandboxed reward may read. Repeatable."
        ),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A limit of each sandboxed call: seconds, cpu_seconds, memory_bytes, processes, "
            "output_bytes, file_bytes, files. Repeatable.",
        ),
    ] = None,
    reuse: Annotated[
        bool,
        typer.Option(
            "--reuse",
            help="Score rollouts of half a second in one copy of the sandboxed reward: much "
            "faster, but each sees the state that those before it left.",
        ),
    ] = False,
    at: options.At = None,
    services: options.Services = None,
    trees: options.Trees = False,
    keep_going: options.KeepGoing = False,
    as_json: options.AsJson = False,
) -> None:
    """Score recorded rollouts with a reward.

    Each assistant turn is an action, and what follows it is its observation. A rubric is reset and
    replayed over each rollout; a reward function is called with its messages. Each rollout becomes
    a result row: its score, whether that is valid, every component, the reward of each step, and
    what failed. Steps are numbered by the assistant turn, from 0.

    With --credit, and with a batch reward function, the rollouts of a group are scored together,
    and must be consecutive in the file.

    With --sandbox, an untrusted reward is loaded and called in a sandbox only; without --reuse, no
    call sees what another one changed.

    [bold]Exit codes[/bold]: 0, every row has a valid score. 1, some rows failed or got no credit.
    2, the command could not run, or a service is down. 130, ctrl-C. After both, every finished row
    is kept, and --resume continues from there.
    """  # fmt: skip
    job = ScoringJob(
        rollouts,
        reward,
        out,
        workers=workers,
        engine=engine,
        resume=resume,
        by=by,
        passing=passing,
        format=format,
        ground_truth=ground_truth,
        parameters=_named("--param", param),
        score_failed=score_failed,
        credit=_credit(credit, state_key, credit_option, gamma=gamma, omega=omega),
        sandbox=_sandbox(sandbox, allow_read, limit, reuse),
        at=at,
        services=services,
        trees=trees,
        keep_going=keep_going,
    )
    with progress(rollouts, "scoring") as show:
        report = job.run(show)
    on_stderr = out == "-"  # which has the rows
    if as_json:
        print_json(report_data(report, job), stderr=on_stderr)
    else:
        print_parts(report_tables(report, job), stderr=on_stderr)
    if report.stopped is not None:
        raise ScoringError(report.stopped)
    groups = report.summary.groups
    if report.interrupted:
        raise typer.Exit(options.ExitCode.INTERRUPTED)
    if report.summary.failed or (groups is not None and groups.uncredited):
        raise typer.Exit(options.ExitCode.FAILED)


def _named(option: str, given: list[str] | None) -> dict[str, Any]:
    """The values of a repeated ``NAME=VALUE`` option."""
    named: dict[str, Any] = {}
    for each in given or ():
        name, equals, value = each.partition("=")
        if not equals or not name.isidentifier():
            raise InvalidArgumentError(f"{option} must be NAME=VALUE, got {each!r}")
        if name in named:
            raise InvalidArgumentError(f"{option} {name} is given twice")
        try:
            named[name] = json.loads(value)
        except (ValueError, RecursionError):
            named[name] = value
    return named


def _credit(
    method: str | None,
    state_key: str,
    given: list[str] | None,
    **shortcuts: float | None,
) -> CreditSettings | None:
    own = [f"{name}={value}" for name, value in shortcuts.items() if value is not None]
    known = _named("--credit-option", own + (given or []))
    if method is not None:
        return CreditSettings(method, state_key, known)
    _refuse("--credit METHOD", dict.fromkeys(known, True) | {"state-key": state_key != "last"})
    return None


def _sandbox(
    level: str, allow_read: list[str] | None, given: list[str] | None, reuse: bool
) -> SandboxSettings | None:
    limits = _named("--limit", given)
    for name in limits:
        check_choice("--limit", name, [field.name for field in fields(Limits)])
    if level != "none":
        return SandboxSettings(level, Limits(**limits), tuple(allow_read or ()), reuse)
    _refuse("--sandbox auto", {"--limit": limits, "--allow-read": allow_read, "--reuse": reuse})
    return None


def _refuse(required: str, given: dict[str, Any]) -> None:
    unused = " and ".join(option for option, value in given.items() if value)
    if unused:
        raise InvalidArgumentError(f"{unused}: these options require {required}")


# The report --------------------------------------------------------------------------------------

# More parts than this make rows of a table too wide to read.
MAX_COLUMNS = 8

# How many groups are listed, and how many scores of each; --json has more.
MAX_GROUPS = 20
MAX_SCORES = 8

# Larger anchor groups are counted together.
LARGE = 8


def report_data(report: ScoringReport, job: ScoringJob) -> dict[str, Any]:
    """The report as JSON data."""
    return {
        "reward": job.reward,
        "fingerprint": report.fingerprint,
        **({"sandbox": report.sandbox} if report.sandbox is not None else {}),
        "interrupted": report.interrupted,
        "resumed": report.resumed,
        "seconds": round(report.seconds, 6),
        "rows_per_second": round(report.rate, 1),
        **report.summary.to_dict(),
    }


def report_tables(report: ScoringReport, job: ScoringJob) -> Iterator[Table | Text]:
    """The report as tables."""
    summary = report.summary
    parts = dict(sorted(summary.parts.items()))
    shown = dict(list(parts.items())[:MAX_COLUMNS])
    columns = {**shown, "all" if shown else "": summary}
    rows = table(plain(job.by or ""), *map(plain, columns), numbers=True)
    for label, cells in _lines(list(columns.values())):
        rows.add_row(label, *cells)
    yield rows
    if len(parts) > len(shown):
        yield Text(f"{len(parts) - len(shown)} more values of {plain(str(job.by))} are in --json")
    if summary.groups is not None:
        yield from group_tables(summary.groups, job.credit)
    if summary.failures:
        failures = table("failed with", "rows", "first error")
        failures.columns[1].justify = "right"
        for kind, count in summary.failures.most_common():
            failures.add_row(cell(kind), f"{count:,}", cell(summary.first_failures[kind]))
        yield failures
    yield Text(_last_lines(report, job))


def _lines(summaries: list[Summary]) -> Iterator[tuple[str | Text, list[str]]]:
    """The lines of the table: a label, and a cell for each summary, the last of which is of all."""

    def cells(show: Callable[[Summary], str]) -> list[str]:
        return list(map(show, summaries))

    whole = summaries[-1]
    yield "rows", cells(lambda each: f"{each.rows:,}")
    if whole.passing is not None:
        label = f"accuracy (score ≥ {whole.passing:g})"
        yield label, cells(lambda each: share(each.accuracy))
    yield "mean score", cells(lambda each: number(each.score.value))
    yield "scored 0", cells(lambda each: f"{each.zeros:,}")
    yield "[bold]failed[/]", cells(lambda each: alarm(each.failed))
    if whole.noted:
        yield "with a note", cells(lambda each: f"{each.noted:,}")
    if whole.dealt_with:
        yield "failures dealt with", cells(lambda each: f"{each.dealt_with:,}")
    if whole.components:
        yield "[bold]mean of component[/]", []
    for name in whole.components:
        means = (each.components.get(name, Mean()) for each in summaries)
        yield cell(f"  {named_path(name, whole.rubrics)}"), [number(mean.value) for mean in means]
    if whole.gates:
        yield "[bold]stopped by gate[/]", []
    for gate in whole.gates:
        counts = [f"{each.stopped[gate]:,}" for each in summaries]
        label = named_path(gate, whole.rubrics) or "the reward itself"
        yield cell(f"  {label}"), counts


def _last_lines(report: ScoringReport, job: ScoringJob) -> str:
    parts = [f"{report.scored:,} rows in {report.seconds:.2f} s, {report.rate:,.0f} a second"]
    if report.resumed:
        parts.append(f"{report.resumed:,} were there already")
    if job.out not in (None, "-"):
        parts.append(f"written to {plain(str(job.out))}")
    if report.interrupted:
        parts.append("interrupted: every finished row is kept, --resume continues")
    lines = ["; ".join(parts), f"reward {report.fingerprint}"]
    if report.sandbox is not None:
        lines.append(f"sandbox {report.sandbox['level']}: {report.sandbox['promise']}")
    return "\n".join(lines)


def group_tables(groups: GroupSummary, credit: CreditSettings | None) -> Iterator[Table | Text]:
    """The groups as tables."""
    columns = ["group", "rows", "mean score", "scores"]
    columns += ["steps"] if credit is not None else []
    columns += ["in shared states"] if groups.anchors else []
    by_group = table(*columns, "", numbers=True)
    by_group.columns[3].justify = by_group.columns[-1].justify = "left"
    for stats in groups.first[:MAX_GROUPS]:
        scores = " ".join(f"{score:.3g}" for score in stats.scores[:MAX_SCORES])
        more = " …" if len(stats.scores) > MAX_SCORES else ""
        cells = [f"{stats.rows:,}", number(stats.mean_score), scores + more]
        cells += [f"{stats.steps:,}"] if credit is not None else []
        cells += [f"{stats.shared_steps:,}"] if groups.anchors else []
        by_group.add_row(cell(str(stats.group)), *cells, _remark(stats))
    yield by_group
    if groups.groups > MAX_GROUPS:
        yield Text(f"{groups.groups - MAX_GROUPS:,} more groups; --json lists the first 100")
    counts = table(f"credit: {credit.method}" if credit is not None else "groups", "", numbers=True)
    for label, count in _group_counts(groups, credit):
        counts.add_row(label, count)
    yield counts


def _remark(stats: GroupStats) -> str:
    if stats.uncredited:
        return "[bold red]no credit[/]"
    if not stats.scores:
        return "[bold red]no valid score[/]"
    if len(stats.scores) == 1:
        return "one valid score"
    return "dead" if stats.dead else ""


def _group_counts(groups: GroupSummary, credit: CreditSettings | None) -> Iterator[tuple[str, str]]:
    yield "groups", f"{groups.groups:,}"
    yield "  dead: all scores are the same", f"{groups.dead:,}"
    yield "  of one valid score", f"{groups.alone:,}"
    if groups.without:
        yield "rollouts without a group", f"{groups.without:,}"
    if groups.uncredited:
        yield "[bold red]groups without credit[/]", alarm(groups.uncredited)
    if credit is None:
        return
    yield "steps with an advantage", f"{groups.steps:,}"
    if not groups.anchors:
        return
    coverage = f"{groups.shared_steps:,} ({groups.anchor_coverage or 0.0:.1%})"
    yield "  in states that others share", coverage
    yield "anchor groups", f"{groups.anchors.total():,}"
    for size, count in sorted(groups.anchors.items()):
        if size <= LARGE:
            yield f"  of {size} steps" if size > 1 else "  of one step", f"{count:,}"
    large = sum(count for size, count in groups.anchors.items() if size > LARGE)
    if large:
        yield f"  of more than {LARGE} steps", f"{large:,}"
    yield "  of two or more, all returns the same", f"{groups.dead_anchors:,}"
