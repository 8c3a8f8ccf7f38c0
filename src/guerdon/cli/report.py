"""What ``guerdon score`` prints at the end: tables for people, a dict for scripts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from guerdon.cli.consoles import plain
from guerdon.cli.group_report import group_tables
from guerdon.rollouts.scoring.job import Job, JobReport
from guerdon.rollouts.scoring.summary import Summary

__all__ = ["report_as_json", "report_tables"]

# More parts than this make rows of a table too wide to read.
MAX_COLUMNS = 8


def report_as_json(report: JobReport, reward: str) -> dict[str, Any]:
    """The report as JSON can hold it."""
    return {
        "reward": reward,
        "fingerprint": report.fingerprint,
        **({"sandbox": report.sandbox} if report.sandbox is not None else {}),
        "interrupted": report.interrupted,
        "resumed": report.resumed,
        "seconds": round(report.seconds, 6),
        "rows_per_second": round(_rate(report), 1),
        **report.summary.to_dict(),
    }


def report_tables(report: JobReport, job: Job) -> Iterator[Table | Text]:
    """The report for a person's eyes."""
    summary = report.summary
    parts = dict(sorted(summary.parts.items()))
    shown = dict(list(parts.items())[:MAX_COLUMNS])
    columns = {**shown, "all" if shown else "": summary}
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(Text(plain(job.by or "")), overflow="fold")
    for name in columns:
        table.add_column(Text(plain(name)), justify="right", overflow="fold")
    for label, cells in _lines(columns):
        table.add_row(label, *cells)
    yield table
    if len(parts) > len(shown):
        yield Text(f"{len(parts) - len(shown)} more values of {plain(str(job.by))} are in --json")
    if summary.groups is not None:
        yield from group_tables(summary.groups, job.credit)
    if summary.failures:
        yield _failures(summary)
    yield Text(_last_line(report, job))


def _lines(columns: dict[str, Summary]) -> Iterator[tuple[str | Text, list[str]]]:
    """The lines of the table: a label, and a cell for each column."""
    summaries = list(columns.values())
    everything = summaries[-1]
    yield "rows", [f"{each.rows:,}" for each in summaries]
    if everything.passing is not None:
        label = f"accuracy (score ≥ {everything.passing:g})"
        yield label, [_share(each.accuracy) for each in summaries]
    yield "mean score", [_number(each.score.value) for each in summaries]
    yield "scored 0", [f"{each.zeros:,}" for each in summaries]
    yield "[bold]failed[/]", [_alarm(each.failed) for each in summaries]
    if everything.noted:
        yield "with a note", [f"{each.noted:,}" for each in summaries]
    if everything.dealt_with:
        yield "failures dealt with", [f"{each.dealt_with:,}" for each in summaries]
    if everything.components:
        yield "[bold]mean of component[/]", []
    for name in everything.components:
        means = [each.components.get(name) for each in summaries]
        yield (
            Text(f"  {plain(name)}"),
            [_number(mean.value if mean is not None else None) for mean in means],
        )
    if everything.gates:
        yield "[bold]stopped by gate[/]", []
    for gate in everything.gates:
        yield (
            Text(f"  {plain(gate) or 'the reward itself'}"),
            [f"{each.stopped.get(gate, 0):,}" for each in summaries],
        )


def _failures(summary: Summary) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("failed with")
    table.add_column("rows", justify="right")
    table.add_column("the first says")
    for kind, count in sorted(summary.failures.items(), key=lambda item: -item[1]):
        said = summary.first_failures.get(kind, "")
        table.add_row(Text(plain(kind)), f"{count:,}", Text(plain(said)))
    return table


def _last_line(report: JobReport, job: Job) -> str:
    parts = [f"{report.scored:,} rows in {report.seconds:.2f} s, {_rate(report):,.0f} a second"]
    if report.resumed:
        parts.append(f"{report.resumed:,} were there already")
    if job.out not in (None, "-"):
        parts.append(f"written to {plain(str(job.out))}")
    if report.interrupted:
        parts.append("interrupted: every finished row is kept, --resume goes on")
    lines = ["; ".join(parts), f"reward {report.fingerprint}"]
    if report.sandbox is not None:
        lines.append(f"sandbox {report.sandbox['level']}: {report.sandbox['promise']}")
    return "\n".join(lines)


def _rate(report: JobReport) -> float:
    return report.scored / report.seconds if report.seconds else 0.0


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _alarm(count: int) -> str:
    return f"[bold red]{count:,}[/]" if count else "0"
