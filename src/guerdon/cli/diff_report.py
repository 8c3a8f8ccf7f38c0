"""What ``guerdon diff`` prints: tables for people, a dict for scripts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from guerdon.cli.consoles import plain
from guerdon.rollouts.comparing.comparison import Comparison, RowMove
from guerdon.rollouts.comparing.group_comparison import GroupComparison
from guerdon.rollouts.comparing.job import ComparisonJob
from guerdon.rollouts.comparing.movement import Movement
from guerdon.rollouts.comparing.report import ComparisonReport

__all__ = ["diff_as_json", "diff_tables"]

# Of a rollout that moved, how many components are shown; of the reward, how many changes; of an
# id, a value or an error, how many characters. --json tells the rest.
COMPONENTS = 3
CHANGES = 40
WIDTH = 120


def diff_as_json(report: ComparisonReport, job: ComparisonJob) -> dict[str, Any]:
    """The comparison as JSON can hold it."""
    return {"before_reward": job.before, "after_reward": job.after, **report.to_dict()}


def diff_tables(report: ComparisonReport, job: ComparisonJob) -> Iterator[Table | Text]:
    """The comparison for a person's eyes."""
    found = report.comparison
    yield from _changes(report)
    yield _scores(found)
    if found.components:
        yield _components(found)
    if found.parts:
        yield _parts(found, job.by)
    if found.groups is not None:
        yield _groups(found.groups)
        if found.groups.flips:
            yield _flips(found.groups)
    if found.moved:
        yield _moved(found)
    for title, moves in (("valid before only", found.lost), ("valid after only", found.won)):
        if moves:
            yield _failures(title, moves)
    if found.failed:
        yield _kinds(found)
    yield Text(_last_lines(report, job))


def _changes(report: ComparisonReport) -> Iterator[Table | Text]:
    if not report.changes:
        same = report.fingerprint_before == report.fingerprint_after
        yield Text("one and the same reward" if same else "nothing that is told has changed")
        return
    table = _table("changed in the reward", "before", "after")
    for change in report.changes[:CHANGES]:
        where = change.where or "the reward"
        label = where if change.what == "changed" else f"{where}  ({change.what})"
        one, other = (_short(each) if each is not None else "–"
                      for each in (change.before, change.after))  # fmt: skip
        table.add_row(_cell(label), _cell(one), _cell(other))
    yield table
    if len(report.changes) > CHANGES:
        yield Text(f"{len(report.changes) - CHANGES:,} more changes are in --json")


def _scores(found: Comparison) -> Table:
    movement = found.movement
    table = _table("", "before", "after", "difference", numbers=True)
    table.add_row("rows", "", "", f"{movement.rows:,}")
    table.add_row("valid in both", "", "", f"{movement.both:,}")
    table.add_row("valid in one only", _alarm(found.only_before), _alarm(found.only_after), "")
    table.add_row("valid in neither", "", "", _alarm(found.neither))
    means = [each.score.value for each in (found.before, found.after)]
    table.add_row("mean score", *map(_number, means), "")
    table.add_row("  of those valid in both", *_three(movement))
    for share, value in movement.quantiles.items():
        name = {0.0: "lowest", 0.5: "median", 1.0: "highest"}.get(share, f"{share:.0%} quantile")
        table.add_row(f"  {name}", "", "", _signed(value))
    table.add_row("rose", "", "", f"{movement.rose:,}")
    table.add_row("fell", "", "", f"{movement.fell:,}")
    table.add_row("unmoved", "", "", f"{movement.unmoved:,}")
    return table


def _components(found: Comparison) -> Table:
    table = _table("mean of component", "before", "after", "difference", numbers=True)
    for name, movement in found.components.items():
        if movement.both:
            table.add_row(_cell(name), *_three(movement))
            continue
        means = [each.components.get(name) for each in (found.before, found.after)]
        values = [mean.value if mean is not None else None for mean in means]
        table.add_row(_cell(name), *map(_number, values), "")
    return table


def _parts(found: Comparison, by: str | None) -> Table:
    table = _table(plain(by or ""), "rows", "before", "after", "difference", "rose", "fell",
                   numbers=True)  # fmt: skip
    for name, movement in sorted(found.parts.items()):
        counts = f"{movement.rose:,}", f"{movement.fell:,}"
        table.add_row(_cell(name), f"{movement.both:,}", *_three(movement), *counts)
    return table


def _groups(groups: GroupComparison) -> Table:
    table = _table("within groups", "", numbers=True)
    pairs = groups.pairs
    table.add_row("groups", f"{groups.groups:,}")
    table.add_row("  of two or more valid in both", f"{groups.compared:,}")
    if groups.alone:
        table.add_row("rollouts without a group", f"{groups.alone:,}")
    table.add_row("pairs", f"{pairs.pairs:,}")
    table.add_row("  [bold]flipped[/]", _share(pairs.flipped, pairs.pairs))
    table.add_row("  a tie was broken", _share(pairs.ties_broken, pairs.pairs))
    table.add_row("  a tie was made", _share(pairs.ties_made, pairs.pairs))
    table.add_row("groups with a flipped pair", _share(groups.with_flips, groups.compared))
    table.add_row("groups whose best rollout changed", _share(groups.best_changed, groups.compared))
    table.add_row("  a tie for the best broken or made", _share(groups.best_tied, groups.compared))
    table.add_row("groups whose scores are all the same, before", f"{groups.dead_before:,}")
    table.add_row("  after", f"{groups.dead_after:,}")
    table.add_row("mean of Kendall's τ_b", _number(groups.tau))
    return table


def _flips(groups: GroupComparison) -> Table:
    table = _table("clearest flips: group", "better before", "scores", "better after", "scores")
    for flip in groups.flips:
        table.add_row(
            _cell(_short(flip.group)),
            _cell(_short(flip.better_before)),
            f"{_brief(flip.before[0])} → {_brief(flip.after[0])}",
            _cell(_short(flip.better_after)),
            f"{_brief(flip.before[1])} → {_brief(flip.after[1])}",
        )
    return table


def _moved(found: Comparison) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("moved most: id", overflow="fold")
    table.add_column("group", overflow="fold")
    for title in ("before", "after", "difference"):
        table.add_column(title, justify="right")
    table.add_column("components", overflow="fold")
    for move in found.moved:
        table.add_row(
            _cell(_short(move.id)),
            _cell(_short(move.group) if move.group is not None else "–"),
            _number(move.before),
            _number(move.after),
            _signed(move.difference),
            _cell(_of_components(move)),
        )
    return table


def _of_components(move: RowMove) -> str:
    """The components that moved most, and those that came or went."""
    one, other = move.components_before, move.components_after
    changed = [
        (abs(other.get(name, 0.0) - one.get(name, 0.0)), name)
        for name in {**one, **other}
        if one.get(name) != other.get(name)
    ]
    shown = sorted(changed, key=lambda each: -each[0])[:COMPONENTS]
    said = [f"{name} {_brief(one.get(name))} → {_brief(other.get(name))}" for _, name in shown]
    return ", ".join(said) + (" …" if len(changed) > len(shown) else "")


def _failures(title: str, moves: tuple[RowMove, ...]) -> Table:
    table = _table(f"{title}: id", "score", "the other failed with")
    for move in moves:
        score = move.after if move.before is None else move.before
        table.add_row(_cell(_short(move.id)), _number(score), _cell(_cut(move.error or "")))
    return table


def _kinds(found: Comparison) -> Table:
    """How many rows failed with what, and what the first says."""
    table = _table("failed with", "before", "after", "the first says")
    one, other = found.before, found.after
    for kind in {**one.failures, **other.failures}:
        said = one.first_failures.get(kind) or other.first_failures.get(kind, "")
        counts = (f"{each.failures.get(kind, 0):,}" for each in (one, other))
        table.add_row(_cell(kind), *counts, _cell(_cut(said)))
    return table


def _last_lines(report: ComparisonReport, job: ComparisonJob) -> str:
    line = f"{report.comparison.rows:,} rows with both in {report.seconds:.2f} s"
    if report.interrupted:
        line += "; interrupted: only these are compared"
    lines = [line]
    if report.is_unsteady:
        lines.append("the reward gives another score when it is asked again: it isn't repeatable")
    lines.append(f"before {report.fingerprint_before} {plain(job.before)}")
    lines.append(f"after  {report.fingerprint_after} {plain(job.after)}")
    return "\n".join(lines)


def _table(*titles: str, numbers: bool = False) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for place, title in enumerate(titles):
        justify = "right" if numbers and place else "left"
        table.add_column(Text(title), justify=justify, overflow="fold")  # type: ignore[arg-type]
    return table


def _cell(text: str) -> Text:
    return Text(plain(text))


def _short(value: Any) -> str:
    return _cut(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _cut(text: str) -> str:
    return text if len(text) <= WIDTH else text[:WIDTH] + "…"


def _three(movement: Movement) -> tuple[str, str, str]:
    means = _number(movement.mean_before), _number(movement.mean_after)
    return *means, _signed(movement.mean)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value + 0.0:.3f}"  # -0.0 as 0.0


def _brief(value: float | None) -> str:
    return "–" if value is None else f"{value + 0.0:.3g}"


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.3f}" if value else "0.000"


def _share(count: int, total: int) -> str:
    return f"{count:,} ({count / total:.1%})" if total else f"{count:,}"


def _alarm(count: int) -> str:
    return f"[bold red]{count:,}[/]" if count else "0"
