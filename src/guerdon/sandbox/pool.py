"""`Pool`: a few workers, each used by one call at a time, and replaced when it breaks."""

from __future__ import annotations

import contextlib
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from guerdon._validation import check_integer
from guerdon._work_clock import Turn
from guerdon.errors import SandboxError
from guerdon.sandbox.worker import CLOSED, Worker

# Seconds that a worker has for ending its calls.
ENDING = 10.0

_numbers = itertools.count()


class Pool:
    """Workers that are started on demand, up to a maximum.

    A pool is closed when it is garbage-collected, or when Python exits.

    Args:
        make: Starts a worker.
        workers: The maximum.

    Raises:
        InvalidArgumentError: It is less than 1.
    """

    def __init__(self, make: Callable[[], Worker], workers: int) -> None:
        size = check_integer("workers", workers, low=1)
        self._make, self._free, self._size = make, size, size
        # Some versions of anyio identify variables by their names alone.
        self._limiter: RunVar[anyio.CapacityLimiter] = RunVar(f"guerdon_pool_{next(_numbers)}")
        self._idle: list[Worker] = []
        self._busy: set[Worker] = set()
        self._closed = False
        self._changed = threading.Condition()
        weakref.finalize(self, _close_all, self._idle)

    @contextlib.contextmanager
    def worker(self, call: _Call | None = None) -> Iterator[Worker]:
        """Take a worker, and wait until one is free.

        Args:
            call: The call that it is for, if that may be cancelled.

        Raises:
            SandboxError: The pool is closed, or a worker can't be started.
        """
        with Turn() as turn:
            worker = self._take(call)
            turn.begin()
            try:
                if worker is None:
                    worker = self._make()
                with self._changed:
                    if self._over(call):
                        raise SandboxError(CLOSED)
                    self._busy.add(worker)
                    if call is not None:
                        call.worker = worker
                yield worker
            finally:
                self._give_back(worker)

    def _over(self, call: _Call | None) -> bool:
        return self._closed or (call is not None and call.cancelled)

    def _take(self, call: _Call | None) -> Worker | None:
        with self._changed:
            # Each call is bounded in time, and so is the wait for its end.
            self._changed.wait_for(lambda: self._over(call) or self._free > 0)
            if self._over(call):
                raise SandboxError(CLOSED)
            self._free -= 1
            return self._idle.pop() if self._idle else None

    def _give_back(self, worker: Worker | None) -> None:
        with self._changed:
            if worker is not None:
                self._busy.discard(worker)
            if worker is not None and not worker.broken and not self._closed:
                self._idle.append(worker)
                worker = None
        try:
            if worker is not None:
                worker.close()
        finally:
            with self._changed:
                self._free += 1
                self._changed.notify_all()

    def run(self, calls: Sequence[Any]) -> list[Any]:
        """Run calls in a free worker; see `run` of the worker."""
        with self.worker() as worker:
            return worker.run(calls)

    async def run_async(self, calls: Sequence[Any]) -> list[Any]:
        """Like `run`, without blocking the event loop. If it is cancelled, the calls are ended."""
        call = _Call()

        def run() -> list[Any]:
            with self._changed:
                if call.cancelled:
                    raise SandboxError(CLOSED)
                call.began = True
            try:
                with self.worker(call) as worker:
                    return worker.run(calls)
            finally:
                call.ended.set()

        try:
            with Turn() as turn:
                return await anyio.to_thread.run_sync(
                    turn.run, run, abandon_on_cancel=True, limiter=self._room()
                )
        except anyio.get_cancelled_exc_class():
            with self._changed:
                call.cancelled = True
                if call.worker in self._busy:
                    call.worker.abort()
                self._changed.notify_all()
            if call.began:
                with anyio.CancelScope(shield=True):  # its descriptors are closed after this
                    await anyio.to_thread.run_sync(call.ended.wait, ENDING)
            raise

    def _room(self) -> anyio.CapacityLimiter:
        """Return the limiter of this event loop: as many threads as there are workers."""
        limiter = self._limiter.get(None)
        if limiter is None:
            limiter = anyio.CapacityLimiter(self._size)
            self._limiter.set(limiter)
        return limiter

    def close(self) -> None:
        """End all workers, busy ones too."""
        with self._changed:
            self._closed = True
            idle = self._idle.copy()
            self._idle.clear()
            for worker in self._busy:
                worker.abort()
            self._changed.notify_all()
        _close_all(idle)
        with self._changed:  # those that were busy are closed by the threads that had them
            self._changed.wait_for(lambda: self._free == self._size, timeout=ENDING)


def _close_all(workers: list[Worker]) -> None:
    while workers:
        workers.pop().close()


class _Call:
    """A call that may be cancelled; its fields are guarded by the pool's lock."""

    def __init__(self) -> None:
        self.cancelled = self.began = False
        self.worker: Worker | None = None
        self.ended = threading.Event()
