"""The results of the arena in tables and in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from guerdon.arena.methods import METHODS
from guerdon.arena.model import Floats
from guerdon.arena.protocol import Hypothesis, Protocol
from guerdon.arena.runner import MethodFailure, MethodResult, Results
from guerdon.arena.statistics import Estimate, Paired, compare, median
from guerdon.arena.worlds import find_world

__all__ = ["Row", "findings", "page", "rows_by_world"]


@dataclass(frozen=True, slots=True)
class Row:
    """A method in a world, in numbers.

    Attributes:
        result: The results.
        updates: The median number of updates to the target; infinite if most seeds didn't reach it.
        steps: The median number of environment steps to the target.
        area: The median of the mean normalized return.
        final: The median normalized return at the end.
        versus: The updates to the target beside those of the baseline on the same seeds, where a
            seed that didn't reach it counts as one update more than there were; None for the
            baseline itself.
    """

    result: MethodResult
    updates: Estimate
    steps: Estimate
    area: Estimate
    final: Estimate
    versus: Paired | None

    @property
    def verdict(self) -> str:
        """``faster`` or ``slower`` than the baseline, or ``""`` if the interval contains 1."""
        if self.versus is None:
            return ""
        ratio = self.versus.ratio
        return "faster" if ratio.high < 1 else "slower" if ratio.low > 1 else ""


def rows_by_world(results: Results, protocol: Protocol) -> dict[str, list[Row]]:
    """Return the rows of each world, the largest area first; failures have none."""
    latest = {(each.world, each.method): each for each in results}
    valid = [each for each in latest.values() if isinstance(each, MethodResult)]
    rows: dict[str, list[Row]] = {}
    for world in dict.fromkeys(each.world for each in valid):
        of_world = [each for each in valid if each.world == world]
        baseline = next((each for each in of_world if each.method == protocol.baseline), None)
        made = [_row(each, baseline, protocol) for each in of_world]
        rows[world] = sorted(made, key=lambda row: -row.area.value)
    return rows


def _row(result: MethodResult, baseline: MethodResult | None, protocol: Protocol) -> Row:
    samples = protocol.bootstrap
    versus = None
    if baseline is not None and baseline is not result:
        versus = compare(_censored(result, protocol), _censored(baseline, protocol), samples)
    return Row(
        result=result,
        updates=median(_numbers(result.updates), samples),
        steps=median(_numbers(result.steps), samples),
        area=median(_numbers(result.area), samples),
        final=median(_numbers(result.final), samples),
        versus=versus,
    )


def _numbers(values: Sequence[float | None]) -> Floats:
    return np.array([math.inf if each is None else each for each in values], np.float64)


def _censored(result: MethodResult, protocol: Protocol) -> Floats:
    # A policy that is at the target before the first update would divide by 0.
    return np.clip(_numbers(result.updates), 0.5, protocol.updates + 1)


# Words -------------------------------------------------------------------------------------------


def findings(rows: dict[str, list[Row]], protocol: Protocol) -> Iterator[str]:
    """Yield a sentence for each method: in which worlds it is faster than the baseline, or slower.

    Args:
        rows: The rows of each world.
        protocol: The protocol.
    """
    methods = dict.fromkeys(row.result.method for each in rows.values() for row in each)
    for method in methods:
        if method == protocol.baseline:
            continue
        own = {
            world: row
            for world, each in rows.items()
            for row in each
            if row.result.method == method and row.versus is not None
        }
        yield f"`{method}`: {_compared(own) or 'no difference outside the intervals'}."


def _compared(rows: dict[str, Row]) -> str:
    """Return the worlds in which a method is faster, slower or below the target."""
    worlds: dict[str, list[str]] = {"faster": [], "slower": [], "below the target": []}
    for world, row in rows.items():
        if row.verdict and row.versus is not None:
            worlds[row.verdict].append(f"{world} ({shown_interval(row.versus.ratio)})")
        if math.isinf(row.updates.value):
            worlds["below the target"].append(world)
    return "; ".join(f"{what} in {', '.join(where)}" for what, where in worlds.items() if where)


def judged(hypothesis: Hypothesis, rows: dict[str, list[Row]], protocol: Protocol) -> str:
    """Return a registered claim with the numbers that it is about."""
    worlds = list(rows) if hypothesis.worlds == "all" else hypothesis.worlds
    parts = []
    for world in worlds:
        own = next(
            (row for row in rows.get(world, ()) if row.result.method == hypothesis.method), None
        )
        if own is None:
            parts.append(f"{world}: not run")
        elif hypothesis.worlds == "all":
            ahead = [row.result.method for row in rows[world] if row.area.low > own.area.high]
            parts.append(f"{world}: {'behind ' + ', '.join(ahead) if ahead else 'yes'}")
        elif own.versus is not None:
            parts.append(f"{world}: {shown_interval(own.versus.ratio)}, p = {own.versus.p:.2g}")
    return f"*{hypothesis.method}: {hypothesis.claim}.* {'; '.join(parts)}."


def shown_interval(each: Estimate, digits: int = 2) -> str:
    return f"{shown(each.value, digits)} [{shown(each.low, digits)}, {shown(each.high, digits)}]"


def shown(value: float, digits: int = 0) -> str:
    if math.isinf(value):
        return "–"
    return "n/a" if math.isnan(value) else f"{value:,.{digits}f}"


# The page ----------------------------------------------------------------------------------------

HEADER = (
    "| method | rate | updates to {target:.0%} | steps to {target:.0%} | area | at the end | "
    "updates ÷ {baseline}'s | p | steps with credit | ms |\n" + "|---" * 10 + "|"
)
# The digits of each quality on the frozen policies.
DIGITS = {"bias": 2, "variance": 1, "signal_to_noise": 3, "correlation": 2, "coverage": 2}
FROZEN = (
    "| method | "
    + " | ".join(name.replace("_", " ") for name in DIGITS)
    + " |\n"
    + ("|---" * (len(DIGITS) + 1) + "|")
)


def page(results: Results, protocol: Protocol, *, plots: str | None = None) -> str:
    """Return the results as a page of Markdown.

    Args:
        results: The results.
        protocol: Their protocol.
        plots: The folder of the worlds' plots, relative to the page; None leaves them out.
    """
    rows = rows_by_world(results, protocol)
    parts = [
        "# Results of the credit arena",
        f"Written by `guerdon arena`: {protocol.evaluation_seeds} seeds, {protocol.updates} "
        f"updates of {protocol.loop.episodes} episodes, medians with 95 % intervals.",
        "## What was registered",
        *(f"- {judged(each, rows, protocol)}" for each in protocol.hypotheses),
        f"## Faster and slower than {protocol.baseline}",
        "Ratios of the median number of updates to the target, on the same seeds. Only methods "
        "whose interval doesn't contain 1 are listed. A seed that didn't reach the target counts "
        "as one update more than there were.",
        *(f"- {each}" for each in findings(rows, protocol)),
    ]
    for world, of_world in rows.items():
        parts += _section(world, of_world, protocol, plots)
    parts += ["## The methods", _about_methods()]
    failed = [each for each in results if isinstance(each, MethodFailure)]
    if failed:
        parts += [
            "## Failed",
            *(f"- {each.method} in {each.world}: {each.error}" for each in failed),
        ]
    return _joined(parts)


def _joined(parts: Sequence[str]) -> str:
    """Join blocks with empty lines, and items of a list without."""
    text = ""
    for before, part in zip(["", *parts], parts, strict=False):
        is_item = part.startswith("- ") and before.startswith("- ")
        text += ("\n" if is_item else "\n\n") * bool(text) + part
    return text + "\n"


def _section(world: str, rows: Sequence[Row], protocol: Protocol, plots: str | None) -> list[str]:
    first = rows[0].result
    found = find_world(world)
    about = found.about
    lines = [
        HEADER.format(target=protocol.target, baseline=protocol.baseline),
        *(_line(row) for row in rows),
    ]
    frozen = [FROZEN, *(_frozen_line(row.result) for row in rows)]
    pictures = []
    if plots:
        pictures = [
            f"![The states of {world}, by their value]({plots}/{found.name}-world.svg)",
            f"![Learning curves in {world}]({plots}/{found.name}.svg)",
        ]
    return [
        f"## {world}",
        f"{about[:1].upper()}{about[1:]}. The uniform policy returns {first.uniform:.3f}, the "
        f"optimal one {first.optimum:.3f}.",
        f"<pre>{escape(found.describe(found.initial()))}</pre>",
        *pictures,
        "\n".join(lines),
        f"On frozen policies with {', '.join(f'{share:.0%}' for share in protocol.frozen)} of the "
        "optimum:",
        "\n".join(frozen),
    ]


def _frozen_line(result: MethodResult) -> str:
    cells = [result.method]
    for name, digits in DIGITS.items():
        cells.append(" · ".join(shown(each[name], digits) for each in result.frozen.values()))
    return f"| {' | '.join(cells)} |"


def _line(row: Row) -> str:
    result, versus = row.result, row.versus
    cells = [
        result.method,
        f"{result.learning_rate:g}",
        shown_interval(row.updates, 0),
        shown_interval(row.steps, 0),
        shown_interval(row.area, 3),
        shown_interval(row.final, 3),
        *((shown_interval(versus.ratio), f"{versus.p:.2g}") if versus else ("", "")),
        f"{result.coverage:.0%}",
        f"{1e3 * result.seconds:.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def _about_methods() -> str:
    lines = ["| method | what it does | options |", "|---|---|---|"]
    lines += [
        f"| `{each.name}` | {each.about} | "
        f"{', '.join(f'{name} = {value}' for name, value in each.options.items())} |"
        for each in METHODS.values()
    ]
    return "\n".join(lines)
