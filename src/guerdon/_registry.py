"""Named registries whose names come from code or from entry points of other packages."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable
from functools import lru_cache
from importlib import metadata
from typing import Any, Generic, TypeVar

from guerdon._validation import did_you_mean, shown
from guerdon.errors import GuerdonError, InvalidArgumentError, LoadError

T = TypeVar("T")


def entry_points(group: str) -> tuple[metadata.EntryPoint, ...]:
    """Return the entry points of installed packages.

    They are read again once `sys.path` or a folder on it has changed: reading takes milliseconds.
    """
    return _read_entry_points(group, tuple((each, _changed(each)) for each in sys.path))


@lru_cache(maxsize=64)
def _read_entry_points(group: str, _: object) -> tuple[metadata.EntryPoint, ...]:
    return tuple(metadata.entry_points(group=group))


def _changed(folder: str) -> int:
    try:
        return os.stat(folder or ".").st_mtime_ns
    except (OSError, ValueError):
        return 0


class Registry(Generic[T]):
    """Objects by name.

    Names registered in code come first; after them the entry points of `group`, which are imported
    when they are looked up.

    Example:
        >>> registry = Registry("estimator")
        >>> registry.register("mean", sum)
        >>> registry["mean"]([1, 2])
        3
        >>> registry["men"]
        Traceback (most recent call last):
        guerdon.errors.LoadError: there is no estimator 'men'; did you mean 'mean'?

    Args:
        kind: What the registry contains, for error messages, such as ``"estimator"``.
        group: The entry-point group of other packages, such as ``"guerdon.trackers"``.
        error: The exception for unknown names and entry points that can't be imported.
        check: Raises if an object can't be registered.
    """

    def __init__(
        self,
        kind: str,
        group: str | None = None,
        *,
        error: type[GuerdonError] = LoadError,
        check: Callable[[T], object] | None = None,
    ) -> None:
        self.kind, self.group = kind, group
        self._error, self._check = error, check
        self._entries: dict[str, T] = {}
        self._lock = threading.Lock()

    def register(self, name: str, value: T, *, replace: bool = False) -> None:
        """Register an object.

        Args:
            name: Letters, digits, ``-``, ``_`` and ``.``.
            value: The object.
            replace: Whether it may replace another of the same name.

        Raises:
            InvalidArgumentError: The name is invalid or taken, or the object is invalid.
        """
        if not isinstance(name, str) or re.fullmatch(r"[\w.-]+", name) is None:
            raise InvalidArgumentError(
                f"`name` must consist of letters, digits, '-', '_' and '.', got {shown(name)}"
            )
        if self._check is not None:
            self._check(value)
        with self._lock:
            if name in self._entries and not replace:
                raise InvalidArgumentError(
                    f"{self.kind} {name!r} is already registered; pass replace=True to replace it"
                )
            self._entries[name] = value

    def __getitem__(self, name: str) -> T:
        """Return the object of that name, importing it if it is an entry point."""
        if name in self._entries:
            return self._entries[name]
        for entry in self._entry_points():
            if entry.name == name:
                try:
                    found: T = entry.load()
                except (Exception, SystemExit) as error:
                    raise self._error(
                        f"can't import {self.kind} {name!r} ({entry.value}): {error!r}"
                    ) from error
                return found
        raise self._error(f"there is no {self.kind} {shown(name)}; {self.hint(name)}")

    def __contains__(self, name: object) -> bool:
        return name in self.names()

    def hint(self, name: object) -> str:
        """Return the closest name to an unknown one, or all names, for an error message."""
        return did_you_mean(name, self.names())

    def names(self) -> list[str]:
        """Return every name, sorted."""
        return sorted({*self._entries, *(entry.name for entry in self._entry_points())})

    def _entry_points(self) -> Any:
        return entry_points(group=self.group) if self.group else ()
