"""Caches of answers: in memory, or in an SQLite file that processes share."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from guerdon._validation import check_integer, shown
from guerdon.errors import InvalidArgumentError

__all__ = ["MemoryCache", "SqliteCache"]

logger = logging.getLogger("guerdon.rubrics")

LOCKED_S = 5.0  # how long to wait for another process that writes


@dataclass(slots=True)
class _Fetch:
    task: asyncio.Task[str]
    waiting: int = 0


class Cache(ABC):
    """Texts by key. Copies of a cache are the cache itself."""

    def __init__(self, max_entries: int) -> None:
        self.max_entries = check_integer("max_entries", max_entries, low=1)
        self._fetches: dict[tuple[int, str], _Fetch] = {}

    @abstractmethod
    def get(self, key: str) -> str | None:
        """Return the text of a key, or None."""

    @abstractmethod
    def put(self, key: str, value: str) -> None:
        """Store a text, and remove others if there are too many."""

    async def fetch(self, key: str, ask: Callable[[], Coroutine[Any, Any, str]]) -> str:
        """Return the text of a key, or ask for it, once for all who ask at the same time.

        A caller that is cancelled leaves the question to the others; the last one cancels it. It
        runs on one event loop, the background loop. What `ask` raises isn't stored.

        Args:
            key: A digest of everything that the answer depends on.
            ask: Returns the answer.
        """
        if (stored := self.get(key)) is not None:
            return stored
        here = (os.getpid(), key)  # a forked process never gets its parent's answer
        fetch = self._fetches.get(here)
        if fetch is None or fetch.task.done() or fetch.task.cancelling():
            fetch = _Fetch(asyncio.ensure_future(self._ask(key, ask)))
            self._fetches[here] = fetch
        fetch.waiting += 1
        try:
            return await asyncio.shield(fetch.task)
        finally:
            fetch.waiting -= 1
            if not fetch.waiting:
                fetch.task.cancel()
                if self._fetches.get(here) is fetch:
                    del self._fetches[here]

    async def _ask(self, key: str, ask: Callable[[], Coroutine[Any, Any, str]]) -> str:
        answer = await ask()
        self.put(key, answer)
        return answer

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


class MemoryCache(Cache):
    """Keeps answers in memory, the most recently used; a pickled one comes back empty.

    Example:
        >>> from guerdon.rubrics import MemoryCache
        >>> cache = MemoryCache(max_entries=2)
        >>> for key in "abc":
        ...     cache.put(key, f"answer {key}")
        >>> cache.get("a"), cache.get("c")
        (None, 'answer c')

    Args:
        max_entries: The most answers, at least 1.
    """

    def __init__(self, max_entries: int = 100_000) -> None:
        super().__init__(max_entries)
        # Each of its operations is atomic, so that a fork leaves no lock locked.
        self._entries: OrderedDict[str, str] = OrderedDict()

    def get(self, key: str) -> str | None:
        """Return the text of a key, or None."""
        value = self._entries.get(key)
        if value is not None:
            with suppress(KeyError):  # another thread has just removed it
                self._entries.move_to_end(key)
        return value

    def put(self, key: str, value: str) -> None:
        """Store a text, and remove the least recently used ones if there are too many."""
        self._entries[key] = value
        while len(self._entries) > self.max_entries:
            with suppress(KeyError):
                self._entries.popitem(last=False)

    def __len__(self) -> int:
        return len(self._entries)

    def __reduce__(self) -> tuple[type[MemoryCache], tuple[int]]:
        return type(self), (self.max_entries,)


class SqliteCache(Cache):
    """Keeps answers in a file, for later runs and for other processes at the same time.

    It stores digests of prompts, not prompts. If the file can't be read or written later, that is
    logged and the question is asked: a cache never makes a judgement fail.

    Example:
        >>> import tempfile
        >>> from guerdon.rubrics import SqliteCache
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     cache = SqliteCache(f"{folder}/judgements.sqlite")
        ...     cache.put("key", "answer")
        ...     cache.close()
        ...     again = SqliteCache(f"{folder}/judgements.sqlite")
        ...     print(again.get("key"))
        ...     again.close()
        answer

    Args:
        path: The file; it is created if it doesn't exist, in an existing directory.
        max_entries: The most answers, at least 1; a hundredth more at times. The oldest are
            removed first.

    Raises:
        InvalidArgumentError: The file can't be created, or is not a cache.
    """

    def __init__(self, path: str | os.PathLike[str], max_entries: int = 1_000_000) -> None:
        super().__init__(max_entries)
        self.path = Path(path).absolute()
        if not self.path.parent.is_dir():
            raise InvalidArgumentError(f"can't open the cache {self.path}: no such directory")
        self._puts = -1  # the first one trims
        self._reset()
        try:
            self._connection()
        except sqlite3.Error as error:
            raise InvalidArgumentError(f"can't open the cache {self.path}: {error}") from error

    def get(self, key: str) -> str | None:
        """Return the text of a key, or None."""
        rows = self._execute("SELECT value FROM guerdon_answers WHERE key = ?", key)
        return str(rows[0][0]) if rows else None

    def put(self, key: str, value: str) -> None:
        """Store a text, and remove the oldest ones if there are too many."""
        statement = "INSERT OR REPLACE INTO guerdon_answers VALUES (?, ?, ?)"
        self._execute(statement, key, value, time.time())
        self._puts += 1
        if self._puts % max(1, self.max_entries // 100) == 0:  # counting takes longer than writing
            self._execute(
                "DELETE FROM guerdon_answers WHERE key IN "
                "(SELECT key FROM guerdon_answers ORDER BY used DESC LIMIT -1 OFFSET ?)",
                self.max_entries,
            )

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            opened, process = self._opened, self._process
            self._reset()
        if opened is not None:
            _close(process, opened)

    def _reset(self) -> None:
        self._opened: sqlite3.Connection | None = None
        self._process = os.getpid()
        self._lock = threading.Lock()

    def _execute(self, statement: str, *values: Any) -> list[Any]:
        if self._process != os.getpid():
            self._reset()  # SQLite can't be used across a fork, and the lock may be locked
        try:
            with self._lock:
                return self._connection().execute(statement, values).fetchall()
        except sqlite3.Error as error:
            logger.warning("skipping the cache %s: %s", self.path, error)
            return []

    def _connection(self) -> sqlite3.Connection:
        if self._opened is None:
            opened = sqlite3.connect(
                self.path, timeout=LOCKED_S, isolation_level=None, check_same_thread=False
            )
            weakref.finalize(self, _close, os.getpid(), opened)
            opened.execute("PRAGMA journal_mode = WAL")
            opened.execute("PRAGMA synchronous = NORMAL")
            opened.execute(
                "CREATE TABLE IF NOT EXISTS guerdon_answers "
                "(key TEXT PRIMARY KEY, value TEXT NOT NULL, used REAL NOT NULL) WITHOUT ROWID"
            )
            opened.execute(
                "CREATE INDEX IF NOT EXISTS guerdon_answers_used ON guerdon_answers (used)"
            )
            self._opened = opened
        return self._opened

    def __reduce__(self) -> tuple[type[SqliteCache], tuple[str, int]]:
        return type(self), (str(self.path), self.max_entries)


def _close(process: int, connection: sqlite3.Connection) -> None:
    if process == os.getpid():
        connection.close()


def cache_of(cache: Cache | str | os.PathLike[str] | None) -> Cache | None:
    """Return the cache of an argument: ``"memory"``, the path of a file, a cache, or None.

    Example:
        >>> cache_of("memory").max_entries
        100000
    """
    if cache is None or isinstance(cache, Cache):
        return cache
    if not isinstance(cache, (str, os.PathLike)) or not os.fspath(cache):
        raise InvalidArgumentError(
            f'`cache` must be None, "memory", the path of a file or a cache, got {shown(cache)}'
        )
    return MemoryCache() if cache == "memory" else SqliteCache(cache)
