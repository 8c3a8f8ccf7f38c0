"""`WorkClock`: measures the time that work takes, without its waits in queues of this library."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from time import monotonic
from typing import Any, Self, TypeVar

T = TypeVar("T")


class WorkTimeoutError(Exception):
    """Work took longer than its clock allows. It isn't a failure of the work itself."""


class WorkClock:
    """Says how much of a time limit is left to what is done in its context.

    The clock stands while something that was started there waits for its `Turn`: for a thread, for
    a model, for a service. Nothing that has its turn may take longer than the limit, either, so
    that what hangs is noticed, however long the queue behind it is.

    Example:
        >>> with WorkClock.limiting(60.0) as clock:
        ...     with Turn():  # waits in a queue
        ...         clock.left() == clock.left()
        True

    Args:
        seconds: The limit.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = self._left = seconds
        self._since = monotonic()  # when it was started, or went on
        self._waiting: set[Turn] = set()
        self._running: dict[Turn, WorkClock] = {}
        self._lock = threading.Lock()

    @classmethod
    @contextmanager
    def limiting(cls, seconds: float) -> Iterator[Self]:
        """Start a clock for what is done in the body, also in its threads and tasks."""
        clock = cls(seconds)
        token = _clocks.set((*_clocks.get(), clock))
        try:
            yield clock
        finally:
            _clocks.reset(token)

    def left(self) -> float:
        """Return the seconds that are left; 0 or less if the time is over."""
        with self._lock:
            left = self._left
            if not self._waiting:
                left -= monotonic() - self._since
            return min([left, *(clock.left() for clock in self._running.values())])

    async def limit(self, work: Callable[[], Awaitable[T]]) -> T:
        """Await work, and cancel it when the time is over.

        Raises:
            WorkTimeoutError: It took longer.
            BaseException: What the work raised.
        """
        import anyio

        results: list[T] = []
        failure: BaseException | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._watch, group.cancel_scope)
            try:
                results.append(await work())
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as error:  # raised below: a group would wrap it
                failure = error
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure
        if not results:
            raise WorkTimeoutError
        return results[0]

    async def _watch(self, scope: Any) -> None:
        import anyio

        while (left := self.left()) > 0:
            await anyio.sleep(left)
        scope.cancel()

    def _wait(self, turn: Turn) -> None:
        with self._lock:
            if not self._waiting:
                self._left -= monotonic() - self._since
            self._waiting.add(turn)

    def _begin(self, turn: Turn) -> WorkClock:
        clock = WorkClock(self._seconds)
        with self._lock:
            if self._go_on(turn):
                self._running[turn] = clock
        return clock

    def _end(self, turn: Turn) -> None:
        with self._lock:
            self._running.pop(turn, None)
            self._go_on(turn)

    def _go_on(self, turn: Turn) -> bool:
        """Whether the turn was waiting; the clock goes on after the last that was."""
        if turn not in self._waiting:
            return False
        self._waiting.remove(turn)
        if not self._waiting:
            self._since = monotonic()
        return True


_clocks: ContextVar[tuple[WorkClock, ...]] = ContextVar("guerdon_work_clocks", default=())


class Turn:
    """A piece of work that waits in a queue of this library, as a context manager."""

    __slots__ = ("_clocks", "_token")

    def __enter__(self) -> Self:
        self._clocks = _clocks.get()
        self._token: Token[tuple[WorkClock, ...]] | None = None
        for clock in self._clocks:
            clock._wait(self)
        return self

    def begin(self) -> None:
        """Note that the wait is over."""
        self._token = self._begin()

    def run(self, function: Callable[..., T], *args: object) -> T:
        """Call a function in a thread, where its turn begins."""
        token = self._begin()
        try:
            return function(*args)
        finally:
            _clocks.reset(token)

    def _begin(self) -> Token[tuple[WorkClock, ...]]:
        own = [clock._begin(self) for clock in self._clocks]
        return _clocks.set((*self._clocks, *own))

    def __exit__(self, *error: object) -> None:
        if self._token is not None:
            _clocks.reset(self._token)
        for clock in self._clocks:
            clock._end(self)
