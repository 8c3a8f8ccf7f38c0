"""`Outage`: notices that a service is down, by rows in a row that fail for it."""

from __future__ import annotations

import re
from typing import Generic, TypeVar

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


class Outage(Generic[T]):
    """Holds rows back while they fail for a service, so that they can be scored later.

    Example:
        >>> outage = Outage[str](ignored=False)
        >>> outage.add("a", None), outage.add("b", "no connection"), outage.add("c", None)
        (['a'], [], ['b', 'c'])
        >>> outage.stops is None
        True

    Args:
        ignored: Whether nothing is held back.

    Attributes:
        held: What is held back.
        stops: Why the run is to end, and how it is continued; None while it goes on.
    """

    stops: str | None = None

    def __init__(self, *, ignored: bool) -> None:
        self._ignored = ignored
        self.held: list[T] = []

    def add(self, item: T, failure: str | None) -> list[T]:
        """Add what belongs to the next row, and return what is held back no longer.

        Args:
            item: What belongs to the row.
            failure: The row's `service_failure`.
        """
        self.held.append(item)
        if failure is None or self._ignored:
            return self.end()
        if len(self.held) == OUTAGE_ROWS:
            self.stops = (
                f"stopped: {OUTAGE_ROWS} rows in a row failed with {failure}\n"
                "Nothing that was scored is lost. Make the service work (its address, its key, the "
                "name of the model) and run the command again, with --resume if it writes a file "
                "of rows; or use --keep-going to score on without the service"
            )
        return []

    def end(self) -> list[T]:
        """Return what is held back, after the last row; nothing if the run was stopped."""
        held, self.held = self.held, []
        return held if self.stops is None else []
