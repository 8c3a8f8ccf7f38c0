"""Versions of a reward's file, and how one that is older becomes the present one."""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from guerdon.config.documents import Document, Problem
from guerdon.config.mistakes import told_value
from guerdon.errors import InvalidArgumentError, RewardConfigError

__all__ = ["ConfigMigrations", "config_migrations"]

logger = logging.getLogger("guerdon.config")

#: The version that is written, and read as it is.
SCHEMA_VERSION = "1.0"

KEY = "schema_version"

Migration: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]


class ConfigMigrations:
    """Functions that turn a reward's file of one version into one of another.

    Example:
        >>> from guerdon.config import ConfigMigrations
        >>> migrations = ConfigMigrations()
        >>> migrations.register("0.9", "1.0", lambda data: {"per_turn": data["rubrics"]})
        >>> migrations.upgrade({"schema_version": "0.9", "rubrics": []}, "0.9")
        {'per_turn': [], 'schema_version': '1.0'}

    Args:
        current: The version to arrive at.
    """

    def __init__(self, current: str = SCHEMA_VERSION) -> None:
        self.current = current
        self._steps: dict[str, tuple[str, Migration]] = {}
        self._lock = threading.Lock()
        self._warned: set[str] = set()  # the files, which may be read several times

    def register(self, found: str, made: str, migrate: Migration) -> None:
        """Register a function.

        Args:
            found: The version that it takes.
            made: The version that it gives.
            migrate: It takes what a file says and gives what one of the other version would say;
                ``schema_version`` is set for it.

        Raises:
            InvalidArgumentError: There is one for that version, one would go round in a circle, or
                a version is no text.
        """
        if not callable(migrate):
            raise InvalidArgumentError(f"{migrate!r:.60} is no function that migrates")
        for version in (found, made):
            if not isinstance(version, str) or not version.strip():
                raise InvalidArgumentError(
                    f"{version!r:.60} is no version; it takes text like '1.0'"
                )
        with self._lock:
            if found in self._steps or found == self.current:
                raise InvalidArgumentError(f"version {found!r} is read already")
            if found in self._path(made):
                raise InvalidArgumentError(f"from {made!r} the way leads back to {found!r}")
            self._steps[found] = (made, migrate)

    def known(self) -> list[str]:
        """The versions that can be read, the present one first."""
        return [
            self.current,
            *(each for each in sorted(self._steps) if self._path(each)[-1] == self.current),
        ]

    def upgrade(self, data: dict[str, Any], found: str) -> dict[str, Any]:
        """Turn what a file of version `found` says into what one of the present version would.

        Raises:
            RewardConfigError: No way leads from there to here.
            RewardConfigError: A migration raised, or gave no mapping.
        """
        if self._path(found)[-1] != self.current:
            known = " or ".join(map(repr, self.known()))
            raise RewardConfigError(f"it is of version {found!r:.60}; this guerdon reads {known}")
        while found != self.current:
            found, migrate = self._steps[found]
            try:
                made = migrate(copy.deepcopy(data))  # it may change what it is given
            except Exception as error:
                said = f"migrating it to version {found!r} raised {type(error).__name__}: {error}"
                raise RewardConfigError(said) from error
            if not isinstance(made, dict):
                raise RewardConfigError(f"migrating it to version {found!r} gave {made!r:.60}")
            data = {**made, KEY: found}
        return data

    def _path(self, found: str) -> list[str]:
        path = [found]
        while path[-1] in self._steps and path[-1] != self.current:
            path.append(self._steps[path[-1]][0])
        return path

    def present(self, document: Document) -> Document:
        """The document in the present version.

        One without a version is taken to be of the present one, and a warning is logged, once for
        a file. A version
        that is written without quotes is what is written: ``1.0`` is ``"1.0"``.

        Raises:
            RewardConfigError: It is of another version, from which no way leads here.
        """
        data = document.data
        if not isinstance(data, Mapping):
            return document  # whatever it is, it is wrong in every version
        if KEY not in data:
            self._warn(document.file)
            return replace(document, data={KEY: self.current, **data})
        found = document.texts.get((KEY,), data[KEY])
        if isinstance(found, float):
            found = repr(found)
        try:
            if not isinstance(found, str):
                said = f"it is {told_value(found)}; this guerdon reads {self.current!r}"
                raise RewardConfigError(said)
            return replace(document, data=self.upgrade({**data, KEY: found}, found))
        except RewardConfigError as error:
            told = document.told(Problem((KEY,), str(error)))
            raise RewardConfigError(told) from error.__cause__

    def _warn(self, file: str | None) -> None:
        if file is not None:
            with self._lock:
                if file in self._warned:
                    return
                self._warned.add(file)
        logger.warning(
            '%s has no %s, and is read as one of version %s; write %s: "%s"',
            file or "a reward's configuration", KEY, self.current, KEY, self.current,
        )  # fmt: skip


#: What the library itself migrates by.
config_migrations = ConfigMigrations()
