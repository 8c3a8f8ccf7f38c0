"""`Report`: what came of a conformance run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from guerdon.errors import SandboxError

__all__ = ["Outcome", "Report", "Result"]

Result = Literal["held", "broken", "not tried"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a case.

    Example:
        >>> from guerdon.sandbox.conformance import Outcome
        >>> Outcome("TCP", "network", "no server is reached", "held", "EPERM", 0.02).result
        'held'

    Attributes:
        name: The case's.
        group: The case's.
        proves: The case's.
        result: ``held``, ``broken``, or ``not tried`` where this machine lacks what it takes.
        detail: The evidence, what went wrong, or why it wasn't tried.
        seconds: How long it took.
    """

    name: str
    group: str
    proves: str
    result: Result
    detail: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a conformance run; printed, it is a table.

    Example:
        >>> from guerdon.sandbox.conformance import Outcome, Report
        >>> held = Outcome("TCP", "network", "no server is reached", "held", "EPERM", 0.02)
        >>> print(Report("strict", (held,)))
        network
          held       TCP                              EPERM
        strict: 1 held

    Attributes:
        sandbox: The name of what was tried.
        outcomes: One for each case, in their order.
    """

    sandbox: str
    outcomes: tuple[Outcome, ...]

    @property
    def broken(self) -> tuple[Outcome, ...]:
        """The cases that weren't held."""
        return tuple(outcome for outcome in self.outcomes if outcome.result == "broken")

    @property
    def groups(self) -> dict[str, tuple[Outcome, ...]]:
        """The outcomes of each group."""
        return {
            group: tuple(outcomes)
            for group, outcomes in groupby(self.outcomes, lambda outcome: outcome.group)
        }

    def raise_for_failures(self) -> None:
        """Raise where a case wasn't held.

        Raises:
            SandboxError: It names each, with what it proves and the detail.
        """
        if self.broken:
            lines = [
                f"{outcome.group}: {outcome.name} ({outcome.proves}): {outcome.detail}"
                for outcome in self.broken
            ]
            raise SandboxError(f"{self.sandbox} doesn't hold:\n  " + "\n  ".join(lines))

    def __str__(self) -> str:
        lines: list[str] = []
        for group, outcomes in self.groups.items():
            lines.append(group)
            lines += [
                f"  {outcome.result:<9}  {outcome.name:<31}  {_short(outcome.detail)}"
                for outcome in outcomes
            ]
        counts = Counter[str](outcome.result for outcome in self.outcomes)
        totals = ", ".join(f"{counts[result]} {result}" for result in _RESULTS if counts[result])
        return "\n".join([*lines, f"{self.sandbox}: {totals or 'no case'}"])


_RESULTS = ("held", "broken", "not tried")


def _short(detail: str) -> str:
    line = " ".join(detail.split())
    return line if len(line) <= 90 else line[:89] + "…"
