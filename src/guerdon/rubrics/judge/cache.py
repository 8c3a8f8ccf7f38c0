"""Caches of answers: in memory, or in an SQLite file that processes share."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Self, TypeVar

from guerdon._logging import step_logger
from guerdon._validation import check_integer, shown
from guerdon.errors import InvalidArgumentError

__all__ = ["MemoryCache", "SqliteCache"]

logger = step_logger("guerdon.rubrics")

T = TypeVar("T")

LOCKED_S = 1.0  # how long to wait for another process that writes
DEADLINE_S = 2.0  # how long to wait for a file, such as one on a network drive that hangs
MANY = 100  # reads and writes in that time: then the file works, and others wait for their turn
SKIPPED_S = 30.0  # how long a file that failed is not used


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

    async def fetch(
        self,
        key: str,
        ask: Callable[[], Coroutine[Any, Any, str]],
        is_valid: Callable[[str], bool] = bool,
    ) -> str:
        """Return the text of a key, or ask for it, once for all who ask at the same time.

        A caller that is cancelled leaves the question to the others; the last one cancels it. It
        runs on one event loop, the background loop. What `ask` raises isn't stored.

        Args:
            key: A digest of everything that the answer depends on.
            ask: Returns the answer.
            is_valid: Whether a stored text is an answer; if it isn't, it is logged and replaced.
        """
        here = (os.getpid(), key)  # a forked process never gets its parent's answer
        fetch = self._fetches.get(here)
        if fetch is None or fetch.task.done() or fetch.task.cancelling():
            fetch = _Fetch(asyncio.ensure_future(self._answer(key, ask, is_valid)))
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

    async def _answer(
        self,
        key: str,
        ask: Callable[[], Coroutine[Any, Any, str]],
        is_valid: Callable[[str], bool],
    ) -> str:
        stored = await self._read(key)
        if stored is not None:
            if is_valid(stored):
                return stored
            logger.warning("asking again: the cache has an invalid answer, %s", shown(stored))
        answer = await ask()
        await self._write(key, answer)
        return answer

    async def _read(self, key: str) -> str | None:
        return self.get(key)

    async def _write(self, key: str, value: str) -> None:
        self.put(key, value)

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

    It stores digests of prompts, not prompts. A thread of its own reads and writes the file. If
    the file fails later, is locked for a second or doesn't answer within two, that is logged,
    and it is not used for 30 seconds: a cache never makes a judgement fail.

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
        self._reset()
        try:
            self._thread.submit(self._connection).result(DEADLINE_S)
        except TimeoutError:
            self._skip(f"no answer in {DEADLINE_S:g} s")
        except sqlite3.Error as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise InvalidArgumentError(f"can't open the cache {self.path}: {error}") from error
            self._skip(error)

    def get(self, key: str) -> str | None:
        """Return the text of a key, or None."""
        return self._result(self._start(self._select, key))

    def put(self, key: str, value: str) -> None:
        """Store a text, and remove the oldest ones if there are too many."""
        self._result(self._start(self._insert, key, value))

    async def _read(self, key: str) -> str | None:
        return await self._result_async(self._start(self._select, key))

    async def _write(self, key: str, value: str) -> None:
        await self._result_async(self._start(self._insert, key, value))

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        end = self._end
        self._reset()
        end()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._thread = _Thread()
        self._end = weakref.finalize(self, self._thread.end)
        self._skipped_until = 0.0
        self._puts = -1  # the first one trims
        self._finished = 0

    def _start(self, work: Callable[..., T | None], *values: str) -> Future[T | None]:
        if self._process != os.getpid():
            self._reset()  # a fork has neither the connection nor the thread
        if not self._is_skipped():  # its thread may wait for a drive
            try:
                return self._thread.submit(self._use, work, *values)
            except RuntimeError as error:  # no thread can be started
                self._skip(error)
        nothing: Future[T | None] = Future()
        nothing.set_result(None)
        return nothing

    def _result(self, started: Future[T | None]) -> T | None:
        finished = None
        while self._works_since(finished):
            finished = self._finished
            with suppress(TimeoutError):
                return started.result(DEADLINE_S)
        started.cancel()
        return None

    async def _result_async(self, started: Future[T | None]) -> T | None:
        result, finished = asyncio.wrap_future(started), None
        try:
            while self._works_since(finished):
                finished = self._finished
                if (await asyncio.wait([result], timeout=DEADLINE_S))[0]:
                    return result.result()
            return None
        finally:
            result.cancel()

    def _works_since(self, finished: int | None) -> bool:
        """Whether a call may wait for `DEADLINE_S`, or again; if not, the file is skipped."""
        if finished is None or self._finished - finished >= MANY:
            return True
        self._skip(f"no answer in {DEADLINE_S:g} s")
        return False

    def _is_skipped(self) -> bool:
        return time.monotonic() < self._skipped_until

    def _skip(self, reason: object) -> None:
        """Stop using the file for some time, and log it once."""
        if not self._is_skipped():
            logger.warning("skipping the cache %s for %g s: %s", self.path, SKIPPED_S, reason)
        self._skipped_until = time.monotonic() + SKIPPED_S

    # In the thread

    def _use(self, work: Callable[..., T | None], *values: str) -> T | None:
        if self._is_skipped():  # it failed after this was submitted
            return None
        try:
            return work(*values)
        except sqlite3.Error as error:
            self._skip(error)
            return None
        finally:
            self._finished += 1

    def _select(self, key: str) -> str | None:
        statement = "SELECT value FROM guerdon_answers WHERE key = ?"
        row = self._connection().execute(statement, (key,)).fetchone()
        return None if row is None else str(row[0])

    def _insert(self, key: str, value: str) -> None:
        connection = self._connection()
        statement = "INSERT OR REPLACE INTO guerdon_answers VALUES (?, ?, ?)"
        connection.execute(statement, (key, value, time.time()))
        self._puts += 1
        if self._puts % max(1, self.max_entries // 100) == 0:  # counting takes longer than writing
            connection.execute(
                "DELETE FROM guerdon_answers WHERE key IN "
                "(SELECT key FROM guerdon_answers ORDER BY used DESC LIMIT -1 OFFSET ?)",
                (self.max_entries,),
            )

    def _connection(self) -> sqlite3.Connection:
        if self._thread.opened is None:
            opened = sqlite3.connect(
                self.path, timeout=LOCKED_S, isolation_level=None, check_same_thread=False
            )
            try:
                opened.execute("PRAGMA journal_mode = WAL")
                opened.execute("PRAGMA synchronous = NORMAL")
                opened.execute(
                    "CREATE TABLE IF NOT EXISTS guerdon_answers "
                    "(key TEXT PRIMARY KEY, value TEXT NOT NULL, used REAL NOT NULL) WITHOUT ROWID"
                )
                opened.execute(
                    "CREATE INDEX IF NOT EXISTS guerdon_answers_used ON guerdon_answers (used)"
                )
            except BaseException:
                opened.close()
                raise
            self._thread.opened = opened
        return self._thread.opened

    def __reduce__(self) -> tuple[type[SqliteCache], tuple[str, int]]:
        return type(self), (str(self.path), self.max_entries)


class _Thread:
    """A thread for a file, which the end of the process doesn't wait for: its drive may hang.

    Attributes:
        opened: The connection to close at the end.
    """

    def __init__(self) -> None:
        self.opened: sqlite3.Connection | None = None
        self._process = os.getpid()
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None]
        self._jobs = SimpleQueue()
        self._lock = threading.Lock()
        self._running: threading.Thread | None = None

    def submit(self, work: Callable[..., T], *args: Any) -> Future[T]:
        """Call a function in the thread.

        Raises:
            RuntimeError: The thread can't be started.
        """
        with self._lock:
            if self._running is None:
                running = threading.Thread(target=self._run, name="guerdon-cache", daemon=True)
                running.start()
                self._running = running
        future: Future[T] = Future()
        self._jobs.put((future, work, args))
        return future

    def end(self) -> None:
        """Close the connection, within `DEADLINE_S`, and end the thread."""
        if self._process != os.getpid():
            return  # a fork has neither
        if self.opened is not None and self._running is threading.current_thread():
            self.opened.close()  # the cache was collected in this thread
        elif self.opened is not None:
            with suppress(TimeoutError):
                self.submit(self.opened.close).result(DEADLINE_S)
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, work, args = job
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work(*args))
                except BaseException as error:
                    future.set_exception(error)
            del job, future, work, args  # they refer to the cache, which may be collected now


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
