"""What ``guerdon score`` prints of groups: their scores, and what can be learnt from them."""

from __future__ import annotations

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from guerdon.cli.consoles import plain
from guerdon.rollouts.scoring.group_summary import GroupFacts, GroupSummary
from guerdon.rollouts.scoring.row_credit import CreditSettings

__all__ = ["group_tables"]

# More groups than this are told in --json alone; of each, no more scores than this.
SHOWN = 20
SCORES = 8

# Anchor groups above this size are counted together.
LARGE = 8


def group_tables(groups: GroupSummary, credit: CreditSettings | None) -> Iterator[Table | Text]:
    """The groups for a person's eyes."""
    yield _by_group(groups, credit)
    if groups.groups > SHOWN:
        yield Text(f"{groups.groups - SHOWN:,} more groups; --json tells the first 100")
    yield _counts(groups, credit)


def _by_group(groups: GroupSummary, credit: CreditSettings | None) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in ("group", "rows", "mean score"):
        table.add_column(title, justify="left" if title == "group" else "right")
    table.add_column("scores")
    if credit is not None:
        table.add_column("steps", justify="right")
    if groups.anchors:
        table.add_column("in shared states", justify="right")
    table.add_column("")
    for facts in groups.first[:SHOWN]:
        name = Text(plain(str(facts.name)))
        numbers = [f"{facts.rows:,}", _number(facts.mean), _scores(facts)]
        if credit is not None:
            numbers.append(f"{facts.steps:,}")
        if groups.anchors:
            numbers.append(f"{facts.shared:,}")
        table.add_row(name, *numbers, _remark(facts))
    return table


def _counts(groups: GroupSummary, credit: CreditSettings | None) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(f"credit: {credit.method}" if credit is not None else "groups")
    table.add_column("", justify="right")
    table.add_row("groups", f"{groups.groups:,}")
    table.add_row("  dead: all scores are the same", f"{groups.dead:,}")
    table.add_row("  of one valid score", f"{groups.alone:,}")
    if groups.without:
        table.add_row("rollouts without a group", f"{groups.without:,}")
    if groups.uncredited:
        table.add_row("[bold red]groups without credit[/]", f"[bold red]{groups.uncredited:,}[/]")
    if credit is None:
        return table
    table.add_row("steps with an advantage", f"{groups.steps:,}")
    if groups.anchors:
        table.add_row("  in states that others share", _share(groups))
        table.add_row("anchor groups", f"{sum(groups.anchors.values()):,}")
        for label, count in _sizes(groups):
            table.add_row(f"  of {label}", f"{count:,}")
        table.add_row("  of two or more, all returns the same", f"{groups.dead_anchors:,}")
    return table


def _sizes(groups: GroupSummary) -> Iterator[tuple[str, int]]:
    for size, count in sorted(groups.anchors.items()):
        if size <= LARGE:
            yield (f"{size} steps" if size > 1 else "one step"), count
    large = sum(count for size, count in groups.anchors.items() if size > LARGE)
    if large:
        yield f"more than {LARGE} steps", large


def _share(groups: GroupSummary) -> str:
    return f"{groups.shared:,} ({groups.anchor_coverage or 0.0:.1%})"


def _scores(facts: GroupFacts) -> str:
    shown = " ".join(f"{score:.3g}" for score in facts.scores[:SCORES])
    return f"{shown} …" if len(facts.scores) > SCORES else shown


def _remark(facts: GroupFacts) -> str:
    if facts.uncredited:
        return "[bold red]no credit[/]"
    if not facts.scores:
        return "[bold red]no valid score[/]"
    if len(facts.scores) == 1:
        return "one valid score"
    return "dead" if facts.is_dead else ""


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
