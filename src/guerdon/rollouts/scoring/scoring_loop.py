"""`ScoringLoop`: an event loop in a thread, in which rollouts are scored concurrently."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from guerdon._background import refuse_waiting

T = TypeVar("T")

# Seconds that closing waits for code that blocks the loop.
CLOSING_S = 5.0


class ScoringLoop:
    """Runs coroutines while its owner reads, writes, or waits for something else.

    It is not the background loop, which code of an async reward may block. Its thread starts with
    the first coroutine.

    Example:
        >>> async def half(number):
        ...     return number / 2
        >>> loop = ScoringLoop()
        >>> loop.run(half(1))
        0.5
        >>> loop.close()
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event
        self._thread: threading.Thread

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine, in the caller's context.

        Raises:
            AsyncRubricError: The caller runs on the background loop, or in an author's async
                method, and would wait for the result.
        """
        refuse_waiting(coroutine)
        if self._loop is None:
            ready = threading.Event()
            self._thread = threading.Thread(
                target=self._live, args=(ready,), name="guerdon-scoring", daemon=True
            )
            self._thread.start()
            ready.wait()
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine, and wait for its result.

        Raises:
            AsyncRubricError: As for `start`.
            BaseException: What the coroutine raised. If waiting is interrupted, it is cancelled.
        """
        future = self.start(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel what is running, and end the thread; the next coroutine starts another."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(self._end.set)
            self._thread.join(CLOSING_S)

    def _live(self, ready: threading.Event) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            end = self._end = asyncio.Event()
            ready.set()
            while not end.is_set():
                # A task raised it, and its waiter gets it; the others go on.
                with contextlib.suppress(SystemExit, KeyboardInterrupt):
                    runner.run(end.wait())
