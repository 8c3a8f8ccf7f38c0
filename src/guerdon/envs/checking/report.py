"""`EnvironmentReport`: what `check_environment` found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from guerdon.errors import EnvError

__all__ = ["CheckLine", "EnvironmentReport"]


@dataclass(frozen=True, slots=True)
class CheckLine:
    """What one check found.

    Example:
        >>> from guerdon.envs import CheckLine
        >>> CheckLine("it can be made, with a rubric", "ok").said
        ''

    Attributes:
        name: What was looked at.
        status: ``ok``, ``problem``, or ``note`` for what couldn't be looked at, or may be meant.
        said: What was found, and what would be right.
    """

    name: str
    status: Literal["ok", "problem", "note"]
    said: str = ""


@dataclass(slots=True)
class EnvironmentReport:
    """What `check_environment` found.

    Example:
        >>> from guerdon.envs import CheckLine, EnvironmentReport
        >>> report = EnvironmentReport([CheckLine("it can be closed", "problem", "it raises")])
        >>> report.ok, [line.said for line in report.problems]
        (False, ['it raises'])

    Attributes:
        lines: One a check, in the order in which they ran.
    """

    lines: list[CheckLine] = field(default_factory=list)

    @property
    def problems(self) -> list[CheckLine]:
        """What has to be mended."""
        return [line for line in self.lines if line.status == "problem"]

    @property
    def ok(self) -> bool:
        """Whether there is nothing to mend."""
        return not self.problems

    def raise_for_problems(self) -> None:
        """Raise what was found, for tests.

        Raises:
            EnvError: There are problems; it lists all of them.
        """
        if self.problems:
            raise EnvError("; ".join(f"{line.name}: {line.said}" for line in self.problems))
