"""Caches of answers: in memory, or in an SQLite file that several processes share."""

from __future__ import annotations

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
from pathlib import Path
from typing import Any, Self

from guerdon.errors import InvalidArgumentError
from guerdon.rubrics.judge.single_flight import Flights

__all__ = ["MemoryCache", "SqliteCache"]

logger = logging.getLogger("guerdon.services")

WAIT_S = 5.0  # for another process that writes
# Of a file: how much of it stays in memory, too.
KEPT = 10_000


class Cache(ABC):
    """Keeps texts by digests of what they answer. All copies of one are the same one."""

    def __init__(self, max_entries: int) -> None:
        if type(max_entries) is not int or max_entries < 1:
            raise InvalidArgumentError(
                f"max_entries is {max_entries!r:.80}; it takes an int of at least 1"
            )
        self.max_entries = max_entries
        self._flights = Flights()

    @abstractmethod
    def get(self, key: str) -> str | None:
        """What is kept under a key; None where nothing is."""

    @abstractmethod
    def put(self, key: str, value: str) -> None:
        """Keep a text; the one that was not used for longest goes where there are too many."""

    def close(self) -> None:  # noqa: B027 (most hold nothing open)
        """Let go of what is held open; the next use opens it again."""

    async def fetch(self, key: str, ask: Callable[[], Coroutine[Any, Any, str]]) -> str:
        """What is kept, or else what is asked for, once for all who ask at the same time.

        It belongs on the background loop. What `ask` raises isn't kept.

        Args:
            key: A digest of everything that the answer depends on.
            ask: Asks.
        """
        kept = self.get(key)
        if kept is not None:
            return kept

        async def ask_and_keep() -> str:
            answer = await ask()
            self.put(key, answer)
            return answer

        return await self._flights.join(key, ask_and_keep)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


class MemoryCache(Cache):
    """Keeps answers in the memory of this process; a pickled one comes back empty.

    Example:
        >>> from guerdon.rubrics import MemoryCache
        >>> cache = MemoryCache(max_entries=2)
        >>> for key in "abc":
        ...     cache.put(key, f"answer {key}")
        >>> cache.get("a"), cache.get("c")
        (None, 'answer c')

    Args:
        max_entries: How many are kept, at least 1.
    """

    def __init__(self, max_entries: int = 100_000) -> None:
        super().__init__(max_entries)
        # Each of its operations is atomic, so that no lock is left locked by a fork.
        self._entries: OrderedDict[str, str] = OrderedDict()

    def get(self, key: str) -> str | None:
        """What is kept under a key; None where nothing is."""
        value = self._entries.get(key)
        if value is not None:
            with suppress(KeyError):  # another thread has just dropped it
                self._entries.move_to_end(key)
        return value

    def put(self, key: str, value: str) -> None:
        """Keep a text; the one that was not used for longest goes where there are too many."""
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

    Prompts aren't kept, only their digests. A file that can't be read or written later is told in
    the log, and the answers are asked for: a cache never fails a judgement.

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
        path: The file; it is made where it isn't there, in a folder that is.
        max_entries: How many are kept, at least 1, up to a hundredth more for a while.

    Raises:
        InvalidArgumentError: There can be no such file, or it is something else.
    """

    def __init__(self, path: str | os.PathLike[str], max_entries: int = 1_000_000) -> None:
        super().__init__(max_entries)
        self.path = Path(path).absolute()
        self._memory = MemoryCache(min(max_entries, KEPT))
        self._forget()
        try:
            self._database()
        except sqlite3.Error as error:
            raise InvalidArgumentError(f"{self.path} can't be a cache: {error}") from error

    def get(self, key: str) -> str | None:
        """What is kept under a key; None where nothing is."""
        value = self._memory.get(key)
        if value is None:
            value = self._try(lambda database: self._read(database, key))
            if value is not None:
                self._memory.put(key, value)
        if value is not None:
            self._used.add(key)
        return value

    def put(self, key: str, value: str) -> None:
        """Keep a text; those that were not used for longest go where there are too many."""
        self._memory.put(key, value)
        self._try(lambda database: self._write(database, key, value))

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            opened = self._opened
            self._forget()
        if opened is not None and opened[0] == os.getpid():
            opened[1].close()

    def _forget(self) -> None:
        self._opened: tuple[int, sqlite3.Connection] | None = None
        self._lock = threading.Lock()
        self._used: set[str] = set()  # read since the last write
        self._until_cut = 0

    def _database(self) -> sqlite3.Connection:
        """The connection of this process: SQLite's can't be taken through a fork."""
        if self._opened is not None and self._opened[0] == os.getpid():
            return self._opened[1]
        if not self.path.parent.is_dir():
            raise InvalidArgumentError(f"{self.path} can't be a cache: there is no such folder")
        database = sqlite3.connect(
            self.path, timeout=WAIT_S, isolation_level=None, check_same_thread=False
        )
        try:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute(
                "CREATE TABLE IF NOT EXISTS guerdon_answers "
                "(key TEXT PRIMARY KEY, value TEXT NOT NULL, used REAL NOT NULL) WITHOUT ROWID"
            )
            database.execute(
                "CREATE INDEX IF NOT EXISTS guerdon_answers_used ON guerdon_answers (used)"
            )
        except BaseException:
            database.close()
            raise
        weakref.finalize(self, _close, os.getpid(), database)
        self._opened = (os.getpid(), database)
        return database

    def _try(self, work: Callable[[sqlite3.Connection], str | None]) -> str | None:
        if self._opened is not None and self._opened[0] != os.getpid():
            self._forget()  # in a fork, whose lock may be locked for ever
        try:
            with self._lock:
                return work(self._database())
        except (sqlite3.Error, InvalidArgumentError) as error:
            logger.warning("the cache %s is left out: %s", self.path, error)
            return None

    def _read(self, database: sqlite3.Connection, key: str) -> str | None:
        row = database.execute("SELECT value FROM guerdon_answers WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def _write(self, database: sqlite3.Connection, key: str, value: str) -> None:
        now = time.time()
        used, self._used = self._used, set()
        with _Transaction(database):
            database.executemany(
                "UPDATE guerdon_answers SET used = ? WHERE key = ?",
                [(now, each) for each in used],
            )
            database.execute(
                "INSERT OR REPLACE INTO guerdon_answers VALUES (?, ?, ?)", (key, value, now)
            )
            self._until_cut -= 1
            if self._until_cut <= 0:  # counting takes longer than writing
                self._until_cut = self.max_entries // 100
                self._cut(database)

    def _cut(self, database: sqlite3.Connection) -> None:
        (count,) = database.execute("SELECT count(*) FROM guerdon_answers").fetchone()
        database.execute(
            "DELETE FROM guerdon_answers WHERE key IN "
            "(SELECT key FROM guerdon_answers ORDER BY used LIMIT ?)",
            (max(0, count - self.max_entries),),
        )

    def __reduce__(self) -> tuple[type[SqliteCache], tuple[str, int]]:
        return type(self), (str(self.path), self.max_entries)


class _Transaction:
    """Several statements as one, which waits for its turn among the processes."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def __enter__(self) -> None:
        self._database.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._database.execute("COMMIT" if kind is None else "ROLLBACK")


def _close(process: int, database: sqlite3.Connection) -> None:
    if process == os.getpid():
        database.close()


def cache_of(cache: Cache | str | os.PathLike[str] | None) -> Cache | None:
    """The cache that an argument means: ``"memory"``, the path of a file, a cache, or none.

    Example:
        >>> cache_of("memory").max_entries
        100000
    """
    if cache is None or isinstance(cache, Cache):
        return cache
    if not isinstance(cache, (str, os.PathLike)) or not os.fspath(cache):
        raise InvalidArgumentError(
            f'cache is {cache!r:.80}; it takes None, "memory", the path of a file, or a cache'
        )
    return MemoryCache() if cache == "memory" else SqliteCache(cache)
