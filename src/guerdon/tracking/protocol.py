"""What a tracker is: the protocol that backends of one's own are written to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from guerdon.errors import MissingExtraError
from guerdon.tracking.records import TrackedRecord

__all__ = ["TrackedRun", "TrackerBackend"]


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """The run that is logged: the same for every process that opens its folder.

    Example:
        >>> from guerdon.tracking import RewardLogger
        >>> with RewardLogger("console", path="logs", run_name="first") as logger:
        ...     logger.run.name, logger.run.project, logger.run.folder.name
        ('first', 'guerdon', 'first')

    Attributes:
        id: Letters and digits; made once, and kept in the folder's ``run.json``.
        name: Its name, as a person reads it.
        project: The project (in MLflow: the experiment) that it belongs to.
        folder: Where what belongs to it is kept.
    """

    id: str
    name: str
    project: str
    folder: Path


@runtime_checkable
class TrackerBackend(Protocol):
    """Where records go. All its methods are called in one thread of its own, one after the other.

    What raises is tried again, later and later, up to every 30 s, until it works; the records wait
    on disk meanwhile. What blocks makes nobody else wait. A process that dies between ``write`` and
    the note that it has been written sends those records again: each has an ``id`` by which a
    backend can know it.

    Example:
        >>> from guerdon.tracking import RewardLogger
        >>> class Totals:
        ...     name = "totals"
        ...     def open(self, run): self.seen = []
        ...     def write(self, records): self.seen += [record.reward for record in records]
        ...     def close(self): pass
        >>> totals = Totals()
        >>> with RewardLogger(totals, path="logs") as logger:
        ...     logger.log_step(1, 0, 0.5, {"tests": 0.5}, "env-0")
        >>> totals.seen
        [0.5]

    Attributes:
        name: Letters, digits, ``-`` and ``_``; the spool is kept under it.
    """

    name: str

    def open(self, run: TrackedRun) -> None:
        """Connect. It is called before the first records, and again if it raised."""

    def write(self, records: Sequence[TrackedRecord]) -> None:
        """Take records, at least one; when it returns they are the tracker's care.

        Args:
            records: In the order they were logged. If it raises, all of them come again.

        Raises:
            TrackerError: It will never take one of them. They come again one by one, and the one
                that raises this alone is kept aside; whatever else is raised holds up what is
                behind it.
        """

    def close(self) -> None:
        """End what `open` began. It is called once, and only after `open` has worked."""


def installed(package: str, *, extra: str, user: str) -> None:
    """Check that an optional package is there, without importing it.

    Raises:
        MissingExtraError: It isn't; the message names the extra.
    """
    if find_spec(package) is None:
        raise MissingExtraError(
            f"{user} needs the package {package}: pip install 'guerdon[{extra}]'", extra=extra
        )
    # They use it, and while the interpreter ends it can't be imported any more: a short script
    # that closes nothing would leave all it logged.
    import_module("concurrent.futures.thread")


def module(name: str) -> Any:
    """A module of an optional package, imported where it is first used."""
    return import_module(name)
