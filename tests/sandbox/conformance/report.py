"""`Report`: the results of a conformance run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, get_args

from guerdon.errors import SandboxError

Result = Literal["passed", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a case.

    Example:
        >>> from tests.sandbox.conformance import Outcome
        >>> Outcome("TCP", "network", "no server is reached", "passed", "EPERM", 0.02).result
        'passed'

    Attributes:
        name: The name of the case.
        group: The group of the case.
        proves: What is true of a sandbox that passes.
        result: ``passed``, ``failed``, or ``skipped`` if this machine lacks what the case needs.
        detail: The evidence, the failure, or why the case was skipped.
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
    """The results of a conformance run; printed, it is a table.

    Example:
        >>> from tests.sandbox.conformance import Outcome, Report
        >>> outcome = Outcome("TCP", "network", "no server is reached", "passed", "EPERM", 0.02)
        >>> print(Report("strict", (outcome,)))
        network
          passed   TCP                              EPERM
        strict: 1 passed

    Attributes:
        sandbox: The name of the sandbox.
        outcomes: One for each case, in their order.
    """

    sandbox: str
    outcomes: tuple[Outcome, ...]

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """The cases that failed."""
        return tuple(outcome for outcome in self.outcomes if outcome.result == "failed")

    def raise_for_failures(self) -> None:
        """Raise if a case failed.

        Raises:
            SandboxError: It names each, with what it proves and the detail.
        """
        if self.failed:
            lines = [
                f"{outcome.group}: {outcome.name} ({outcome.proves}): {outcome.detail}"
                for outcome in self.failed
            ]
            raise SandboxError(f"{self.sandbox} fails:\n  " + "\n  ".join(lines))

    def __str__(self) -> str:
        lines: list[str] = []
        for group, outcomes in groupby(self.outcomes, lambda outcome: outcome.group):
            lines.append(group)
            for outcome in outcomes:
                detail = " ".join(outcome.detail.split())[:90]
                lines.append(f"  {outcome.result:<7}  {outcome.name:<31}  {detail}")
        counts = Counter[str](outcome.result for outcome in self.outcomes)
        totals = ", ".join(f"{counts[each]} {each}" for each in get_args(Result) if counts[each])
        return "\n".join([*lines, f"{self.sandbox}: {totals or 'no case'}"])
