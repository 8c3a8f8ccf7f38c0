"""Alternating rounds, the results of benchmarks, and their table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

Pairs = list[tuple[float, float]]


def take_turns(ours: Callable[[], float], theirs: Callable[[], float], rounds: int) -> Pairs:
    """Run both `rounds` times in alternation: ours, theirs, ours, theirs…

    Args:
        ours: Does the work once, and returns the seconds it took.
        theirs: Does the same for the other side of the comparison.
        rounds: The number of rounds.
    """
    return [(ours(), theirs()) for _ in range(rounds)]


@dataclass(slots=True)
class Measured:
    """A row of the table with measured times.

    The ratio compares the fastest rounds, because other load on the machine only makes rounds
    slower. `spread` is the range of the ratios of single rounds.

    Attributes:
        name: The name of the measurement.
        against: The name of the other side of the comparison.
        bar: The largest acceptable ratio or, if `absolute`, time in seconds.
        pairs: The seconds of each round, ours and theirs, for `per` units of work.
        per: The number of units of work in a round.
        unit: The name of the unit.
        absolute: Whether the bar is in seconds.
        more: Whether the bar limits our additional seconds per unit.
        plus: Seconds that are allowed in addition to the ratio.
        missing: Why the comparison was impossible.
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
        """Our seconds per unit in the fastest round."""
        return min(ours for ours, _ in self.pairs) / self.per if self.pairs else None

    @property
    def theirs(self) -> float | None:
        """Their seconds per unit in the fastest round; None without a comparison."""
        seconds = [theirs for _, theirs in self.pairs if theirs > 0]
        return min(seconds) / self.per if seconds else None

    @property
    def ratio(self) -> float | None:
        """Our time divided by theirs."""
        return self.ours / self.theirs if self.ours and self.theirs else None

    @property
    def spread(self) -> tuple[float, float] | None:
        """The lowest and highest ratio of a round."""
        ratios = [ours / theirs for ours, theirs in self.pairs if theirs > 0]
        return (min(ratios), max(ratios)) if ratios else None

    @property
    def extra(self) -> float | None:
        """Our additional seconds per unit."""
        return None if self.ours is None or self.theirs is None else self.ours - self.theirs

    @property
    def met(self) -> bool | None:
        """Whether the bar is met; None if it could not be measured."""
        if self.plus and self.ours is not None and self.theirs is not None:
            return self.ours <= self.bar * self.theirs + self.plus
        value = self.ours if self.absolute else self.extra if self.more else self.ratio
        return None if value is None else value <= self.bar

    def cells(self) -> list[str]:
        """Return the cells of the row, except for the last."""
        bar = f"≤ {self.bar:.3g}×"
        if self.absolute:
            bar = f"≤ {self.bar:g} s"
        elif self.more:
            bar = f"≤ {seconds(self.bar)} more"
        elif self.plus:
            bar += f" + {seconds(self.plus)}"
        spread, ratio = self.spread, self.ratio
        compared = "–" if ratio is None else f"{ratio:.3f}×"
        if self.more and self.extra is not None:  # the ratio to an empty loop is meaningless
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
        """Return all values in a form for JSON."""
        derived = ("ours", "theirs", "ratio", "extra", "spread", "met")
        return asdict(self) | {name: getattr(self, name) for name in derived}


@dataclass(slots=True)
class Counted:
    """A row of the table with counts instead of times.

    Attributes:
        name: The name of the count.
        against: The name of the other side of the comparison.
        bar: The largest acceptable difference, or None.
        ours: Our count.
        theirs: The other count; None without a comparison.
        unit: The unit; ``"B"`` for bytes.
        missing: Why counting was impossible.
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
        """Whether the bar is met; None without a bar or a count."""
        if self.bar is None or self.ours is None:
            return None
        return self.ours - (self.theirs or 0) <= self.bar

    def cells(self) -> list[str]:
        """Return the cells of the row, except for the last."""
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
        """Return all values in a form for JSON."""
        return asdict(self) | {"met": self.met}


@dataclass(slots=True)
class Findings:
    """The results of a benchmark: rows of the table, and notes below it."""

    lines: list[Measured | Counted] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def table(lines: list[Measured | Counted]) -> Table:
    """Return the table of results."""
    out = Table(box=SIMPLE_HEAD, pad_edge=False)
    out.add_column("benchmark")
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
        return "no bar"
    met = {True: "[green]met[/]", False: "[bold red]not met[/]", None: "[yellow]not measured[/]"}
    return met[line.met]


def amount(value: float | None, unit: str) -> str:
    """Format a count; bytes get a suitable unit."""
    if value is None:
        return "–"
    if unit != "B":
        return f"{value:,.0f} {unit}".rstrip()
    sizes = ((1e6, "MB"), (1e3, "kB"), (1, "B"))
    factor, name = next((each for each in sizes if abs(value) >= each[0]), (1, "B"))
    return f"{value / factor:.3g} {name}"


def seconds(value: float | None, unit: str = "") -> str:
    """Format a duration in a suitable unit."""
    if value is None:
        return "–"
    for factor, name in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if value * factor >= 1 or name == "µs":
            break
    return f"{value * factor:.3g} {name}" + (f"/{unit}" if unit else "")
