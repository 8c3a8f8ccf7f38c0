"""Trackers: the protocol of adapters, those that come with guerdon, and those of other packages."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol, TypeAlias, runtime_checkable

from guerdon._registry import Registry
from guerdon._validation import shown
from guerdon.errors import InvalidArgumentError, MissingExtraError
from guerdon.tracking.log import TrackedRun
from guerdon.tracking.records import TrackedRecord

__all__ = ["TrackerBackend"]

#: A backend as it is given to `RewardLogger`: a name, a tracker, or several.
Backend: TypeAlias = "str | TrackerBackend | Sequence[str | TrackerBackend]"


@runtime_checkable
class TrackerBackend(Protocol):
    """An adapter that sends records to a tracker. All its methods are called in one thread.

    If a method raises, it is called again after a pause of up to 30 s, until it succeeds; the
    records stay in the run's log meanwhile. A process that ends between ``write`` and the note that
    the records were written sends them again: each has an ``id`` to recognize it by.

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
        name: Letters, digits, ``-`` and ``_``; the position in the log is stored under it.
    """

    name: str

    def open(self, run: TrackedRun) -> None:
        """Connect. Called before the first records, and again if it raised."""

    def write(self, records: Sequence[TrackedRecord]) -> None:
        """Send records, at least one.

        Args:
            records: In the order they were logged. If it raises, all of them are passed again.

        Raises:
            TrackerError: One of them will never be accepted. They are passed again one by one, and
                the one that raises this alone is stored in ``trackers/{name}.refused.jsonl``. Any
                other exception delays all later records.
        """

    def close(self) -> None:
        """Disconnect. Called once, and only if `open` succeeded."""


def require(package: str, *, extra: str, user: str) -> None:
    """Check that an optional package is installed, without importing it.

    Raises:
        MissingExtraError: It isn't; the message names the extra.
    """
    if find_spec(package) is None:
        raise MissingExtraError(
            f"{user} needs the package {package}: pip install 'guerdon[{extra}]'", extra=extra
        )
    # The packages use it, and it can't be imported any more while the interpreter shuts down: a
    # short script that closes nothing would send nothing.
    import_module("concurrent.futures.thread")


def _built_in(name: str) -> Callable[..., Any]:
    """Return a factory that imports its tracker when it is called."""
    return lambda **options: getattr(import_module("guerdon.tracking"), name)(**options)


trackers: Registry[Callable[..., Any]] = Registry(
    "tracker", "guerdon.trackers", error=InvalidArgumentError
)
trackers.register("console", _built_in("ConsoleTracker"))
trackers.register("mlflow", _built_in("MlflowTracker"))
trackers.register("tensorboard", _built_in("TensorBoardTracker"))
trackers.register("wandb", _built_in("WandbTracker"))


def trackers_of(backend: Backend, options: dict[str, Any]) -> list[TrackerBackend]:
    """Return the trackers of a `backend` argument; ``"jsonl"`` is the run's log, which always is.

    Args:
        backend: A name, a tracker, or several of these.
        options: Arguments of the named tracker; they require exactly one name.

    Raises:
        InvalidArgumentError: A name is unknown, an option is not accepted, or two trackers have
            the same name.
        MissingExtraError: A tracker's package isn't installed.
    """
    several = isinstance(backend, Sequence) and not isinstance(backend, str)
    given: list[Any] = list(backend) if several else [backend]  # type: ignore[arg-type]
    others = [each for each in given if each != "jsonl"]
    named = [each for each in others if isinstance(each, str)]
    if options and len(named) != 1:
        raise InvalidArgumentError(
            f"unexpected arguments {', '.join(map(repr, options))}: options require exactly one "
            f"named tracker, got {len(named)}; pass configured trackers, such as "
            "[WandbTracker(mode='offline'), ConsoleTracker(every=100)]"
        )
    found = [_checked(_named(each, options) if isinstance(each, str) else each) for each in others]
    names = [tracker.name for tracker in found]
    if not given or len(set(names)) < len(names):
        raise InvalidArgumentError(
            f"`backend` must contain at least one tracker, with different names, got {names}; set "
            "tracker.name to use one class twice"
        )
    return found


def _named(name: str, options: dict[str, Any]) -> Any:
    try:
        return trackers[name](**options)
    except TypeError as error:
        if not options:
            raise
        raise InvalidArgumentError(f"tracker {name!r}: {error}") from error


def _checked(tracker: Any) -> TrackerBackend:
    if isinstance(tracker, TrackerBackend) and not inspect.isclass(tracker):
        name: Any = tracker.name
        if isinstance(name, str) and re.fullmatch(r"[\w-]+", name):
            return tracker
    raise InvalidArgumentError(
        "`backend` must be a name, or an object with a `name` (letters, digits, '-' and '_') "
        f"and the methods open, write and close, got {shown(tracker)}"
    )
