"""`Outage`: notices that a service is down, by rows in a row that fail for it."""

from __future__ import annotations

import re
from typing import Generic, TypeVar

from guerdon.errors import ScoringError
from guerdon.rollouts.scoring.result_rows import ResultRow

T = TypeVar("T")

# So many rows in a row are an outage: fewer than are in flight, and more than one that is odd.
OUTAGE_ROWS = 10

UNAVAILABLE = re.compile(r"(?:^|: )(Service(?:Unavailable|Timeout)Error: .*)", re.DOTALL)


def service_failure(row: ResultRow) -> str | None:
    """The error of a row without a score, if a service was unavailable or too slow."""
    if row["is_score_valid"] or row["error"] is None:
        return None
    found = UNAVAILABLE.search(row["error"])
    return found and found[1]


class OutageError(Exception):
    """A service is down; its text is the error of the last row."""


class Outage(Generic[T]):
    """Holds rows back while they fail for a service, so that they can be scored later.

    Example:
        >>> outage = Outage[str](rows=2)
        >>> outage.add("a", None), outage.add("b", "no connection"), outage.add("c", None)
        (['a'], [], ['b', 'c'])

    Args:
        rows: How many such rows in a row are an outage; None for any number.
    """

    def __init__(self, rows: int | None = OUTAGE_ROWS) -> None:
        self._rows = rows
        self._held: list[T] = []

    def add(self, item: T, failure: str | None) -> list[T]:
        """Add what belongs to the next row, and return what is held back no longer.

        Args:
            item: What belongs to the row.
            failure: The row's `service_failure`.

        Raises:
            OutageError: So many rows in a row have failed; what belongs to them is dropped.
        """
        self._held.append(item)
        if failure is None or self._rows is None:
            return self.end()
        if len(self._held) == self._rows:
            raise OutageError(failure)
        return []

    def end(self) -> list[T]:
        """Return what is held back, after the last row."""
        held, self._held = self._held, []
        return held

    @property
    def is_suspected(self) -> bool:
        """Whether the last row failed for a service."""
        return bool(self._held)


def stopped(error: OutageError, hint: str, *, report: object) -> ScoringError:
    """The error of a run that an outage has ended.

    Args:
        error: The outage.
        hint: How to continue.
        report: The report on what was scored.
    """
    return ScoringError(
        f"stopped: {OUTAGE_ROWS} rows in a row failed with {error}\nNothing that was scored is "
        f"lost. Make the service work (its address, its key, the name of the model) and {hint}, or "
        "use --keep-going to score on without it",
        report=report,
    )
