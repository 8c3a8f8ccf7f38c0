"""Rounds that take turns, what was measured, and the table of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

Pairs = list[tuple[float, float]]


def take_turns(ours: Callable[[], float], theirs: Callable[[], float], rounds: int) -> Pairs:
    """Let both run `rounds` times, one after the other: ours, theirs, ours, theirs…

    Args:
        ours: Does the work once; returns the seconds it took.
        theirs: The same of what it is compared with.
        rounds: How many times each runs.
    """
    return [(ours(), theirs()) for _ in range(rounds)]


@dataclass(slots=True)
class Measured:
    """One line of the table.

    The ratio is that of the fastest rounds: what else runs on the machine makes a round slower
    and never faster. `spread` tells the ratios of the single rounds.

    Attributes:
        name: What was measured.
        against: What it is compared with.
        bar: What the ratio (or, where `absolute`, our seconds) should not exceed.
        pairs: Seconds of each round, ours and theirs, each for `per` units of work.
        per: How many units of work a round does.
        unit: What one unit is.
        absolute: Whether the bar is in seconds.
        more: Whether the bar is for the seconds a unit that ours take more than theirs.
        plus: Seconds that ours may take beside what the ratio allows.
        missing: Why it could not be compared.
    """

    name: str
    against: str
    bar: float
    pairs: Pairs = field(default_factory=list)
    per: int = 1
    unit: str = ""
    absolute: bool = False
    more: bool = False
    plus: float = 0.0
    missing: str = ""

    @property
    def ours(self) -> float | None:
        """Seconds a unit, in our fastest round."""
        return min(ours for ours, _ in self.pairs) / self.per if self.pairs else None

    @property
    def theirs(self) -> float | None:
        """Seconds a unit, in their fastest round; None where there is nothing to compare with."""
        seconds = [theirs for _, theirs in self.pairs if theirs > 0]
        return min(seconds) / self.per if seconds else None

    @property
    def ratio(self) -> float | None:
        """Ours by theirs."""
        return self.ours / self.theirs if self.ours and self.theirs else None

    @property
    def spread(self) -> tuple[float, float] | None:
        """The lowest and highest ratio of a round."""
        ratios = [ours / theirs for ours, theirs in self.pairs if theirs > 0]
        return (min(ratios), max(ratios)) if ratios else None

    @property
    def extra(self) -> float | None:
        """Seconds a unit that ours take more than theirs."""
        return None if self.ours is None or self.theirs is None else self.ours - self.theirs

    @property
    def met(self) -> bool | None:
        """Whether the bar is met; None where that could not be measured."""
        if self.plus and self.ours is not None and self.theirs is not None:
            return self.ours <= self.bar * self.theirs + self.plus
        value = self.ours if self.absolute else self.extra if self.more else self.ratio
        return None if value is None else value <= self.bar

    def cells(self) -> list[str]:
        """Its cells in the table, but for the last."""
        bar = f"≤ {self.bar:.3g}×"
        if self.absolute:
            bar = f"≤ {self.bar:g} s"
        elif self.more:
            bar = f"≤ {seconds(self.bar)} more"
        elif self.plus:
            bar += f" + {seconds(self.plus)}"
        spread, ratio = self.spread, self.ratio
        compared = "–" if ratio is None else f"{ratio:.3f}×"
        if self.more and self.extra is not None:  # of a loop that does nothing, a ratio says little
            compared, spread = f"+{seconds(self.extra)}", None
        return [
            escape(self.name),
            seconds(self.ours, self.unit),
            escape(f"{self.against} ({self.missing})" if self.missing else self.against),
            seconds(self.theirs, self.unit),
            compared,
            "–" if spread is None else f"{spread[0]:.2f}…{spread[1]:.2f}",
            bar,
        ]

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        derived = ("ours", "theirs", "ratio", "extra", "spread", "met")
        return asdict(self) | {name: getattr(self, name) for name in derived}


@dataclass(slots=True)
class Counted:
    """One line of the table whose numbers are no times, and need no rounds.

    Attributes:
        name: What was counted.
        against: What it is compared with.
        bar: How many more than theirs there should be at most; None where there is no bar.
        ours: How many there are.
        theirs: How many there were; None where there is nothing to compare with.
        unit: What is counted; ``"B"`` for bytes.
        missing: Why it could not be counted.
    """

    name: str
    against: str
    bar: float | None = None
    ours: float | None = None
    theirs: float | None = None
    unit: str = ""
    missing: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the bar is met; None where there is none, or nothing was counted."""
        if self.bar is None or self.ours is None:
            return None
        return self.ours - (self.theirs or 0) <= self.bar

    def cells(self) -> list[str]:
        """Its cells in the table, but for the last."""
        bar = "–"
        if self.bar is not None:
            bar = f"≤ {amount(self.bar, self.unit)}" if self.bar else "none"
            bar += "" if self.theirs is None else " more"
        return [
            escape(self.name),
            amount(self.ours, self.unit),
            escape(f"{self.against} ({self.missing})" if self.missing else self.against),
            amount(self.theirs, self.unit),
            "–",
            "–",
            bar,
        ]

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return asdict(self) | {"met": self.met}


@dataclass(slots=True)
class Findings:
    """What a benchmark gave: lines of the table, and what else is worth telling."""

    lines: list[Measured | Counted] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def table(lines: list[Measured | Counted]) -> Table:
    """The table that a person reads."""
    out = Table(box=SIMPLE_HEAD, pad_edge=False)
    out.add_column("measured")
    out.add_column("ours", justify="right")
    out.add_column("against")
    out.add_column("theirs", justify="right")
    out.add_column("ratio", justify="right")
    out.add_column("of rounds", justify="right")
    out.add_column("bar", justify="right")
    out.add_column("", justify="left")
    for line in lines:
        out.add_row(*line.cells(), _verdict(line))
    return out


def _verdict(line: Measured | Counted) -> str:
    if line.bar is None and line.ours is not None:
        return "told"
    met = {True: "[green]met[/]", False: "[bold red]not met[/]", None: "[yellow]not measured[/]"}
    return met[line.met]


def amount(value: float | None, unit: str) -> str:
    """How many there are of something; bytes in the unit that suits their size."""
    if value is None:
        return "–"
    if unit != "B":
        return f"{value:,.0f} {unit}".rstrip()
    sizes = ((1e6, "MB"), (1e3, "kB"), (1, "B"))
    factor, name = next((each for each in sizes if abs(value) >= each[0]), (1, "B"))
    return f"{value / factor:.3g} {name}"


def seconds(value: float | None, unit: str = "") -> str:
    """A duration, in the unit of time that suits its size."""
    if value is None:
        return "–"
    for factor, name in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if value * factor >= 1 or name == "µs":
            break
    return f"{value * factor:.3g} {name}" + (f"/{unit}" if unit else "")
