"""`WorkerBackend`: a pool whose slots live in workers, processes or actors, several in each."""

from __future__ import annotations

import asyncio
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from time import monotonic
from typing import Any, NamedTuple
from weakref import WeakMethod

from guerdon._validation import check_integer
from guerdon.envs.configured import ConfiguredEnv
from guerdon.envs.pool.backend import PoolBackend, PoolCall
from guerdon.envs.pool.codec import Call, Result
from guerdon.envs.registry import find_environment
from guerdon.errors import EpisodeError, WorkerError

__all__ = ["WorkerBackend", "WorkerLink"]

# The calls that start a worker which has ended.
STARTS = ("open", "reset", "ping")


class Running(NamedTuple):
    """The call that a worker is in.

    Attributes:
        slot: Its slot.
        since: When it began, on the monotonic clock.
    """

    slot: int
    since: float


class Pending(NamedTuple):
    """A call that a worker was sent.

    Attributes:
        caller: Its `finish` receives the end.
        method: The name of the runner's method.
        since: When it was sent, on the monotonic clock.
    """

    caller: Any
    method: str
    since: float


class WorkerLink(ABC):
    """The connection to one worker, which is started once and not used again after its end.

    Attributes:
        received: Called in the event loop with results.
        ended: Called in the event loop, with what happened, if the worker ends by itself.
    """

    received: Callable[[Iterable[Result]], None]
    ended: Callable[[str], None]

    @abstractmethod
    async def start(self) -> None:
        """Start the worker, and wait until it is ready.

        Raises:
            WorkerError: It ended, or took too long.
            Exception: What loading the factory raised.
        """

    @abstractmethod
    def send(self, calls: Sequence[Call]) -> None:
        """Start calls; each ends by a result in `received`."""

    @abstractmethod
    def kill(self) -> None:
        """End the worker at once; `received` gets the results that it has finished."""

    @abstractmethod
    async def close(self, timeout_s: float) -> None:
        """Close the worker's environments and end it; kill it after a time."""

    @property
    def running(self) -> Running | None:
        """The call that the worker is in, or was in; None if it runs several, or if unknown."""
        return None


class Worker:
    """One worker of a pool or a server, which is replaced after it has ended.

    Calls are objects with a `finish` that takes a result and an error, such as `PoolCall`.

    Args:
        new_link: Returns the connection to a new worker.
        place: What a slot is called in messages.
        observe: Called with the means of episodes that a curriculum needs.

    Attributes:
        pending: The calls that run, by slot.
        is_broken: Whether the last attempt to start it again failed.
    """

    def __init__(
        self,
        new_link: Callable[[], WorkerLink],
        place: str = "slot",
        observe: Callable[[Any], None] = lambda means: None,
    ) -> None:
        self.pending: dict[int, Pending] = {}
        self.is_broken = False
        self._new_link = new_link
        self._place = place
        self._observe = observe
        self._link: WorkerLink | None = None
        self._starting: asyncio.Task[None] | None = None
        self._waiting: list[Call] = []  # calls that wait for the start
        self._slots: set[int] = set()  # that may have an environment
        self._unusable: dict[int, str] = {}  # why a slot has to be reset first
        self._not_reset: set[int] = set()  # slots whose last reset failed: they can't be stepped

    @property
    def is_running(self) -> bool:
        """Whether it has been started and has not ended."""
        return self._link is not None

    async def start(self) -> None:
        """Start the worker.

        Raises:
            Exception: What the factory, or starting the worker, raised.
        """
        link = self._new_link()
        link.received = _weakly(self._received)
        link.ended = _weakly(self._has_ended)
        try:
            await link.start()
        except BaseException:
            link.kill()
            raise
        self._link = link

    def submit(self, calls: Sequence[tuple[Call, Any]]) -> None:
        """Start calls of different slots.

        Args:
            calls: The calls, and the object of each that receives its end.
        """
        now = monotonic()
        for call, caller in calls:
            slot, method, _ = call
            if method in STARTS:
                self._slots.add(slot)
                self._unusable.pop(slot, None)
                self._not_reset.discard(slot)
            why = self._unusable.get(slot)
            if method == "step" and slot in self._not_reset:
                why = "the last reset failed"
            if method == "close":
                self._slots.discard(slot)
                self._unusable.pop(slot, None)
                self._not_reset.discard(slot)
            if why is None or (method == "close" and self._link is not None):
                self.pending[slot] = Pending(caller, method, now)
                self._waiting.append(call)
            elif method == "close":
                caller.finish(None)
            else:
                caller.finish(None, EpisodeError(f"{why}; reset the {self._place}"))
        self._send()

    def _send(self) -> None:
        """Send the calls that wait to the worker, which is started if it has ended."""
        if self._link is None:
            if self._waiting and self._starting is None:
                self._starting = asyncio.ensure_future(self._restart())
        elif self._waiting:
            calls, self._waiting = self._waiting, []
            self._link.send(calls)

    async def _restart(self) -> None:
        try:
            await self.start()
        except Exception as error:
            self.is_broken = True
            self._starting = None
            self._waiting.clear()
            self.fail(str(error), error)
        else:
            self.is_broken = False
            self._starting = None
            self._send()

    def _received(self, results: Iterable[Result]) -> None:
        pending = self.pending
        for slot, value, error, means in results:
            if means is not None:
                self._observe(means)
            if slot in pending:
                call = pending.pop(slot)
                if error is not None and call.method == "reset":
                    self._not_reset.add(slot)
                call.caller.finish(value, error)

    def _has_ended(self, how: str) -> None:
        link, self._link = self._link, None
        if link is None:
            return
        running = link.running
        call = None if running is None else self.pending.get(running.slot)
        # Else it is an earlier call of the slot, and the worker hadn't begun with this one.
        if running is not None and call is not None and running.since >= call.since:
            how += f" in {self._described(running.slot)}"
        self.fail(how)

    def _described(self, slot: int) -> str:
        return f"{self.pending[slot].method} of {self._place} {slot}"

    def fail(self, why: str, error: Exception | None = None) -> None:
        """End the calls that run, after the worker has ended."""
        self._unusable = dict.fromkeys(self._slots, why)
        failed = error or WorkerError(why)
        self._received([(slot, None, failed, None) for slot in self.pending])

    def time_left(self, slot: int, limit_s: float) -> float:
        """Return the seconds that a call may still take: none that waits for others is late."""
        if self._link is None:
            return limit_s if self._starting is not None and slot in self.pending else 0.0
        running = self._link.running
        if running is None:
            return 0.0
        call = self.pending.get(running.slot)
        is_in_it = call is not None and running.since >= call.since  # else it was in it before
        if not is_in_it and running.since < self.pending[slot].since:  # it has begun none of them
            return 0.0
        return limit_s if running.slot != slot else limit_s - (monotonic() - running.since)

    def give_up(self, slot: int) -> None:
        """Kill the worker because of a call, whose caller ends it; the others' calls fail."""
        what = self._described(slot)
        self.kill()
        self.pending.pop(slot, None)  # unless it has ended just before
        self.fail(f"the worker was stopped because {what} exceeded its time limit")

    def kill(self) -> None:
        """End the worker at once."""
        link, self._link = self._link, None
        if link is not None:
            link.kill()

    async def close(self, timeout_s: float) -> None:
        """Close the worker's environments, and end it."""
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
            self._starting = None
        link, self._link = self._link, None
        if link is not None:
            await link.close(timeout_s)
        self.fail("the worker was closed")


async def start_all(workers: Iterable[Worker], at_once: int) -> None:
    """Start several workers, not more than some at the same time.

    Raises:
        Exception: What starting one of them raised.
    """
    turns = asyncio.Semaphore(at_once)

    async def start(worker: Worker) -> None:
        async with turns:  # the time that a start may take begins here
            await worker.start()

    try:
        async with asyncio.TaskGroup() as group:
            for worker in workers:
                group.create_task(start(worker))
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None


async def close_all(workers: Iterable[Worker], timeout_s: float) -> None:
    """Close several workers; if the caller is cancelled, kill them."""
    try:
        await asyncio.gather(*(each.close(timeout_s) for each in workers))
    except BaseException:
        for each in workers:  # of some, closing may not have begun
            each.kill()
        raise


def _weakly(method: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return a callback for the event loop, which must not keep a pool that nobody uses alive."""
    reference = WeakMethod(method)

    def call(argument: Any) -> None:
        found = reference()
        if found is not None:
            found(argument)

    return call


class WorkerBackend(PoolBackend):
    """A pool whose slots live in workers, several in each; slot i in worker ``i % workers``.

    A worker that ends fails the calls that it was in. It is started again by the next reset of one
    of its slots, all of which have to be reset. If a call exceeds its time limit, its worker is
    killed.

    Args:
        env: A factory, or what `guerdon serve` accepts.
        n: The number of slots.
        workers: The number of workers, at most one for each slot.
        threads_per_worker: How many sync environments of a worker run at the same time.
        close_timeout_s: Seconds that closing the environments may take.
    """

    def __init__(
        self,
        env: str | Callable[[], Any],
        n: int,
        workers: int,
        *,
        threads_per_worker: int = 1,
        close_timeout_s: float = 10.0,
    ) -> None:
        self._factory = find_environment(env) if isinstance(env, str) else env
        # One configuration scores all slots, and counts their episodes: it stays here.
        self._runtime = env.runtime if isinstance(env, ConfiguredEnv) else None
        self.n: int = check_integer("n", n, low=1)
        self._count = min(check_integer("workers", workers, low=1), n)
        self._close_timeout_s = close_timeout_s
        threads = check_integer("threads_per_worker", threads_per_worker, low=1)
        self._options = {"threads": threads, "close_timeout_s": close_timeout_s}
        self._workers: list[Worker] = []

    _at_once = 0  # how many workers start at the same time; 0 for all

    @abstractmethod
    def new_link(self, index: int) -> WorkerLink:
        """Return the connection to a new worker, which is not started yet."""

    def __del__(self) -> None:
        workers = getattr(self, "_workers", ())  # none if __init__ has raised
        if workers:
            warnings.warn("a pool was never closed", ResourceWarning, stacklevel=2, source=self)
            for worker in workers:
                worker.kill()

    async def open(self) -> None:
        """Start the workers; environments are made by their first reset."""
        self._workers = [
            Worker(partial(self.new_link, index), observe=self._observe)
            for index in range(self._count)
        ]
        try:
            await start_all(self._workers, self._at_once or self._count)
        except BaseException:
            await self.close()
            raise

    def submit(self, calls: Sequence[PoolCall]) -> None:
        """Start calls: one message for each worker."""
        count = self._count
        batches: list[list[tuple[Call, Any]]] = [[] for _ in range(count)]
        for call in calls:
            batches[call.slot % count].append((self._message(call), call))
        for worker, batch in zip(self._workers, batches, strict=True):
            if batch:
                worker.submit(batch)

    def _message(self, call: PoolCall) -> Call:
        if call.extra is None:
            return call.slot, "step", (call.action,)
        extra = dict(call.extra)
        configuration = None if self._runtime is None else self._runtime.begin()
        return call.slot, "reset", (call.seed, extra.get("episode_id"), extra, configuration)

    def _observe(self, means: Any) -> None:
        if self._runtime is not None:
            self._runtime.observe(means)

    def time_left(self, call: PoolCall, limit_s: float) -> float:
        """Return the seconds that a call may still take, without the time it waited for others."""
        return self._workers[call.slot % self._count].time_left(call.slot, limit_s)

    def give_up(self, call: PoolCall) -> None:
        """Kill the worker of a call, unless that has ended meanwhile."""
        worker = self._workers[call.slot % self._count]
        if call.slot in worker.pending and worker.pending[call.slot].caller is call:
            worker.give_up(call.slot)

    async def close(self) -> None:
        """Close every environment, and end the workers."""
        workers, self._workers = self._workers, []
        await close_all(workers, self._close_timeout_s)


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
