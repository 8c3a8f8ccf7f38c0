"""Trackers by name: those that come with the library, and those of other packages."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, TypeAlias

from guerdon.errors import InvalidArgumentError, TrackerError
from guerdon.tracking.protocol import TrackerBackend

__all__ = ["Backend", "trackers_of"]

#: What is given as a backend: a name, a tracker, or several.
Backend: TypeAlias = "str | TrackerBackend | Sequence[str | TrackerBackend]"

ENTRY_POINTS = "guerdon.trackers"
OURS = {
    "console": "console:ConsoleTracker",
    "jsonl": "jsonl:JsonlTracker",
    "mlflow": "mlflow:MlflowTracker",
    "tensorboard": "tensorboard:TensorBoardTracker",
    "wandb": "wandb:WandbTracker",
}


def trackers_of(backend: Backend, options: dict[str, Any]) -> list[TrackerBackend]:
    """The trackers that a person means.

    Args:
        backend: A name, a tracker, or several of these.
        options: Arguments of the tracker that is named; there may be some only where there is one.

    Raises:
        InvalidArgumentError: There is none of that name, none at all, or two share a name.
        TrackerError: What another package offers can't be imported.
        MissingExtraError: A tracker's own package isn't there.
    """
    several = isinstance(backend, Sequence) and not isinstance(backend, str)
    each = list(backend) if several else [backend]  # type: ignore[arg-type]
    named = [one for one in each if isinstance(one, str)]
    if options and len(named) != 1:
        raise InvalidArgumentError(
            f"{', '.join(map(repr, options))}: options are of one named backend, and there are "
            f"{len(named)}; give trackers that are made with theirs, such as "
            "[JsonlTracker(path), WandbTracker(mode='offline')]"
        )
    found = [_made(one, options) if isinstance(one, str) else _checked(one) for one in each]
    names = [tracker.name for tracker in found]
    if not names or len(set(names)) < len(names):
        raise InvalidArgumentError(
            f"the backends are {names}; it takes one or more, each with a name of its own "
            "(tracker.name = 'second' gives one)"
        )
    return found


def _made(name: str, options: dict[str, Any]) -> TrackerBackend:
    make = _factory(name)
    try:
        inspect.signature(make).bind(**options)
    except TypeError as error:
        takes = ", ".join(inspect.signature(make).parameters)
        raise InvalidArgumentError(f"backend {name!r}: {error}; it takes {takes}") from error
    return _checked(make(**options))


def _factory(name: str) -> Callable[..., Any]:
    if name in OURS:
        home, _, thing = OURS[name].partition(":")
        made: Callable[..., Any] = getattr(import_module(f"guerdon.tracking.{home}"), thing)
        return made
    entries = entry_points(group=ENTRY_POINTS)
    for entry in entries.select(name=name):
        try:
            found: Callable[..., Any] = entry.load()
        except Exception as error:
            raise TrackerError(
                f"the tracker {name!r} ({entry.value}) can't be imported: {error!r}"
            ) from error
        return found
    known = sorted({*OURS, *entries.names})
    near = difflib.get_close_matches(name, known, n=1)
    said = f"did you mean {near[0]!r}?" if near else f"there are {known}"
    raise InvalidArgumentError(f"there is no backend {name!r}; {said}")


def _checked(tracker: Any) -> TrackerBackend:
    name = getattr(tracker, "name", None)
    plain = isinstance(name, str) and name.replace("-", "").replace("_", "").isalnum()
    methods = all(callable(getattr(tracker, each, None)) for each in ("open", "write", "close"))
    if isinstance(tracker, type) or not plain or not methods:
        raise InvalidArgumentError(
            f"{tracker!r:.60} is no backend; it takes a name, or an object with a name (letters, "
            "digits, '-' and '_') and the methods open, write and close"
        )
    found: TrackerBackend = tracker
    return found
