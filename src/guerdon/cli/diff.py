"""``guerdon diff``: what a change of the reward does to the same rollouts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from guerdon._logging import plain
from guerdon.cli import options
from guerdon.cli.console import (
    alarm,
    cell,
    number,
    print_json,
    print_parts,
    progress,
    table,
)
from guerdon.errors import ScoringError
from guerdon.rollouts.comparing.comparison import (
    Comparison,
    ComparisonJob,
    ComparisonReport,
    Movement,
    RowMove,
)
from guerdon.rollouts.comparing.group_comparison import GroupComparison
from guerdon.rollouts.scoring.summary import Mean
from guerdon.types.score import named_path


def diff(
    before: Annotated[
        str,
        typer.Argument(
            metavar="A",
            help="The reward before: [bold]reward.yaml[/bold], [bold]file.py:name[/bold] or "
            "[bold]module:name[/bold].",
        ),
    ],
    after: Annotated[str, typer.Argument(metavar="B", help="The reward after, in the same form.")],
    rollouts: options.Rollouts,
    by: options.By = None,
    top: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            help="How many of the rollouts that moved most, and of the flipped pairs, to list.",
        ),
    ] = 10,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            metavar="F",
            help="The file for the result rows of both rewards as JSONL, for "
            "[bold]guerdon view[/bold]; [bold]-[/bold] is standard output.",
        ),
    ] = None,
    format: options.Format = None,
    ground_truth: options.GroundTruth = None,
    at: options.At = None,
    services: options.Services = None,
    score_failed: options.ScoreFailed = False,
    trees: options.Trees = False,
    keep_going: options.KeepGoing = False,
    as_json: options.AsJson = False,
) -> None:
    """Score the same rollouts with two rewards, and compare.

    What changed in the reward: entries, weights, schedules, settings, code. How the scores moved,
    and which rollouts moved most. Which pairs within a group changed their order, and in how many
    groups another rollout is the best: methods that normalize within a group don't see a shift of
    all scores, but they do see another order. The rollouts of a group may be anywhere in the file,
    unless a reward scores batches.

    A rollout without a valid score from one of the rewards is counted as such. It is neither a
    difference nor ranked.

    [bold]Exit codes[/bold]: 0, every row has a valid score from both, whatever moved. 1, some rows
    failed. 2, the command could not run, or a service is down. 130, ctrl-C. After both, the rows
    scored up to there are compared.
    """  # fmt: skip
    job = ComparisonJob(
        before, after, rollouts, by=by, top=top, format=format, score_failed=score_failed, at=at,
        services=services, out=out, trees=trees, ground_truth=ground_truth, keep_going=keep_going,
    )  # fmt: skip
    with progress(rollouts, "comparing") as show:
        report = job.run(show)
    on_stderr = out == "-"  # which has the rows
    if as_json:
        data = {"before_reward": before, "after_reward": after, **report.to_dict()}
        print_json(data, stderr=on_stderr)
    else:
        print_parts(diff_tables(report, job), stderr=on_stderr)
    if report.stopped is not None:
        raise ScoringError(report.stopped)
    if report.interrupted:
        raise typer.Exit(options.ExitCode.INTERRUPTED)
    if report.comparison.failed:
        raise typer.Exit(options.ExitCode.FAILED)


# The report --------------------------------------------------------------------------------------

# How many components of a rollout that moved are shown, and how many changes of the reward; how
# many characters of an id, a value or an error. --json has the rest.
MAX_COMPONENTS = 3
MAX_CHANGES = 40
MAX_TEXT = 120


def diff_tables(report: ComparisonReport, job: ComparisonJob) -> Iterator[Table | Text]:
    """The comparison as tables."""
    found = report.comparison
    groups = found.groups
    yield from _changes(report)
    yield _scores(found)
    if found.components:
        yield _components(found)
    if found.parts:
        yield _parts(found, job.by)
    if groups is not None:
        yield _groups(groups)
        if groups.flips:
            yield _flips(groups)
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
        yield Text("one and the same reward" if same else "no change that can be shown")
        return
    changes = table("changed in the reward", "before", "after")
    for change in report.changes[:MAX_CHANGES]:
        where = change.where or "the reward"
        label = where if change.what == "changed" else f"{where}  ({change.what})"
        changes.add_row(cell(label), _short(change.before), _short(change.after))
    yield changes
    if len(report.changes) > MAX_CHANGES:
        yield Text(f"{len(report.changes) - MAX_CHANGES:,} more changes are in --json")


def _scores(found: Comparison) -> Table:
    movement = found.movement
    scores = table("", "before", "after", "difference", numbers=True)
    scores.add_row("rows", "", "", f"{movement.rows:,}")
    scores.add_row("valid in both", "", "", f"{movement.both:,}")
    scores.add_row("valid in one only", alarm(found.only_before), alarm(found.only_after), "")
    scores.add_row("valid in neither", "", "", alarm(found.neither))
    means = [number(each.score.value) for each in (found.before, found.after)]
    scores.add_row("mean score", *means, "")
    scores.add_row("  of those valid in both", *_means(movement))
    for at, value in movement.quantiles().items():
        name = {0.0: "lowest", 0.5: "median", 1.0: "highest"}.get(at, f"{at:.0%} quantile")
        scores.add_row(f"  {name}", "", "", _signed(value))
    scores.add_row("rose", "", "", f"{movement.rose:,}")
    scores.add_row("fell", "", "", f"{movement.fell:,}")
    scores.add_row("unmoved", "", "", f"{movement.unmoved:,}")
    return scores


def _components(found: Comparison) -> Table:
    components = table("mean of component", "before", "after", "difference", numbers=True)
    rubrics = {**found.before.rubrics, **found.after.rubrics}
    for name, movement in found.components.items():
        label = cell(named_path(name, rubrics))
        if movement.both:
            components.add_row(label, *_means(movement))
            continue
        means = (each.components.get(name, Mean()) for each in (found.before, found.after))
        components.add_row(label, *(number(mean.value) for mean in means), "")
    return components


def _parts(found: Comparison, by: str | None) -> Table:
    titles = plain(by or ""), "rows", "before", "after", "difference", "rose", "fell"
    parts = table(*titles, numbers=True)
    for name, movement in sorted(found.parts.items()):
        counts = f"{movement.rose:,}", f"{movement.fell:,}"
        parts.add_row(cell(name), f"{movement.both:,}", *_means(movement), *counts)
    return parts


def _groups(groups: GroupComparison) -> Table:
    pairs, compared = groups.pairs, groups.compared
    found = table("within groups", "", numbers=True)
    found.add_row("groups", f"{groups.groups:,}")
    found.add_row("  of two or more valid in both", f"{compared:,}")
    if groups.rows_without_group:
        found.add_row("rollouts without a group", f"{groups.rows_without_group:,}")
    found.add_row("pairs", f"{pairs.pairs:,}")
    found.add_row("  [bold]flipped[/]", _of(pairs.flipped, pairs.pairs))
    found.add_row("  a tie was broken", _of(pairs.ties_broken, pairs.pairs))
    found.add_row("  a tie was made", _of(pairs.ties_made, pairs.pairs))
    found.add_row("groups with a flipped pair", _of(groups.with_flips, compared))
    found.add_row("groups whose best rollout changed", _of(groups.best_changed, compared))
    found.add_row("  a tie for the best broken or made", _of(groups.best_tied, compared))
    found.add_row("groups whose scores are all the same, before", f"{groups.dead_before:,}")
    found.add_row("  after", f"{groups.dead_after:,}")
    found.add_row("mean of Kendall's τ_b", number(groups.mean_tau))
    return found


def _flips(groups: GroupComparison) -> Table:
    flips = table("clearest flips: group", "better before", "scores", "better after", "scores")
    for flip in groups.flips:
        flips.add_row(
            _short(flip.group),
            _short(flip.better_before),
            f"{_brief(flip.before[0])} → {_brief(flip.after[0])}",
            _short(flip.better_after),
            f"{_brief(flip.before[1])} → {_brief(flip.after[1])}",
        )
    return flips


def _moved(found: Comparison) -> Table:
    titles = "moved most: id", "group", "before", "after", "difference", "components"
    moved = table(*titles, numbers=True)
    moved.columns[1].justify = moved.columns[-1].justify = "left"
    for move in found.moved:
        moved.add_row(
            _short(move.id),
            _short(move.group),
            number(move.before),
            number(move.after),
            _signed(move.difference),
            cell(_of_components(move)),
        )
    return moved


def _of_components(move: RowMove) -> str:
    """The components that moved most, and those of one reward only."""
    before, after = move.components_before, move.components_after
    changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    changed.sort(key=lambda name: -abs(after.get(name, 0.0) - before.get(name, 0.0)))
    shown = [
        f"{name} {_brief(before.get(name))} → {_brief(after.get(name))}"
        for name in changed[:MAX_COMPONENTS]
    ]
    return ", ".join(shown) + (" …" if len(changed) > len(shown) else "")


def _failures(title: str, moves: Iterable[RowMove]) -> Table:
    failures = table(f"{title}: id", "score", "the other failed with")
    for move in moves:
        score = move.after if move.before is None else move.before
        failures.add_row(_short(move.id), number(score), _short(move.error or ""))
    return failures


def _kinds(found: Comparison) -> Table:
    """How many rows failed with what, and the first error of each kind."""
    kinds = table("failed with", "before", "after", "first error")
    before, after = found.before, found.after
    for kind in {**before.failures, **after.failures}:
        first = before.first_failures.get(kind) or after.first_failures.get(kind, "")
        counts = (f"{each.failures[kind]:,}" for each in (before, after))
        kinds.add_row(cell(kind), *counts, _short(first))
    return kinds


def _last_lines(report: ComparisonReport, job: ComparisonJob) -> str:
    line = f"{report.comparison.rows:,} rows with both in {report.seconds:.2f} s"
    if report.interrupted:
        line += "; interrupted: only these are compared"
    lines = [line]
    if report.is_unsteady:
        lines.append("the reward returns another score when it is called again: not repeatable")
    lines.append(f"before {report.fingerprint_before} {plain(job.before)}")
    lines.append(f"after  {report.fingerprint_after} {plain(job.after)}")
    return "\n".join(lines)


def _short(value: Any) -> Text:
    value = "–" if value is None else value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return cell(text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…")


def _means(movement: Movement) -> tuple[str, str, str]:
    before, after = number(movement.before.value), number(movement.after.value)
    return before, after, _signed(movement.difference.value)


def _brief(value: float | None) -> str:
    return "–" if value is None else f"{value + 0.0:.3g}"  # -0.0 as 0.0


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.3f}" if value else "0.000"


def _of(count: int, total: int) -> str:
    return f"{count:,} ({count / total:.1%})" if total else f"{count:,}"
