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
from guerdon.envs.pool.codec import Call, Result, UnreadableError
from guerdon.errors import EnvError, EnvTimeoutError, EpisodeError, InvalidActionError, WorkerError

__all__ = ["WorkerBackend", "WorkerLink"]

# The calls that start a worker which has ended.
STARTS = ("open", "reset", "ping")
# A worker that ends this many times without a result is started again after a pause.
MAX_FRUITLESS = 3
PAUSE_S = 10.0
# Seconds by which a call that waits for another ends after that.
SHORTLY_S = 0.05


class Running(NamedTuple):
    """The call that a worker is in.

    Attributes:
        slot: Its slot.
        since: When it began, on the monotonic clock.
    """

    slot: int
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
        """Start calls; each ends by a result in `received`.

        Raises:
            Exception: They can't be sent; none was.
        """

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
        self.pending: dict[int, tuple[Any, Call]] = {}
        self.is_broken = False
        self._new_link = new_link
        self._place = place
        self._observe = observe
        self._link: WorkerLink | None = None
        self._starting: asyncio.Task[None] | None = None
        self._waiting: list[Call] = []  # calls that wait for the start
        self._ended = "the worker was never started"
        self._ends = 0  # how often it has ended
        self._made: dict[int, int] = {}  # what that was when a slot's environment was made
        self._fruitless = 0  # how often the worker has ended without a result
        self._paused_until = 0.0

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
        sent = []
        for call, caller in calls:
            slot, method, _ = call
            if method in STARTS:
                self._made[slot] = self._ends
            made = self._made.get(slot, self._ends)
            if method == "close":
                self._made.pop(slot, None)
                made = self._ends
            if made != self._ends or (self._link is None and method not in STARTS):
                has_ended = method == "close" and self._starting is None
                refusal = EpisodeError(f"{self._ended}; reset the {self._place}")
                caller.finish(None, None if has_ended else refusal)
                continue
            self.pending[slot] = caller, call
            sent.append(call)
        if self._link is not None:
            self._send(sent)
        elif sent:
            self._waiting += sent
            if self._starting is None:
                self._starting = asyncio.ensure_future(self._restart())

    def _send(self, calls: list[Call]) -> None:
        assert self._link is not None
        try:
            if calls:
                self._link.send(calls)
        except Exception as error:
            if len(calls) > 1:  # find the call whose arguments can't be sent
                for call in calls:
                    self._send([call])
                return
            slot, method, _ = calls[0]
            text = f"the arguments of {method} can't be sent to a worker: {error}"
            kind = InvalidActionError if method == "step" else EnvError
            self._finish(slot, None, kind(text))

    async def _restart(self) -> None:
        try:
            if self._fruitless >= MAX_FRUITLESS and monotonic() < self._paused_until:
                raise WorkerError(
                    f"{self._ended}; that happened {self._fruitless} times without a result, so "
                    f"that the worker is not started again for {PAUSE_S:g} s"
                )
            await self.start()
        except Exception as error:
            self.is_broken = True
            self._starting = None
            waiting, self._waiting = self._waiting, []
            for slot, _, _ in waiting:
                self._finish(slot, None, error)
        else:
            self.is_broken = False
            self._starting = None
            waiting, self._waiting = self._waiting, []
            self._send(waiting)

    def _received(self, results: Iterable[Result]) -> None:
        pending = self.pending
        for slot, value, error, means in results:
            self._fruitless = 0
            if means is not None:
                self._observe(means)
            if slot not in pending:
                continue
            if error.__class__ is UnreadableError and self._link is not None:
                self._send([pending[slot][1]])  # alone
            else:
                pending.pop(slot)[0].finish(value, error)

    def _finish(self, slot: int, value: Any, error: BaseException | None) -> None:
        caller, _ = self.pending.pop(slot, (None, None))
        if caller is not None:
            caller.finish(value, error)

    def _has_ended(self, how: str) -> None:
        link, self._link = self._link, None
        if link is None:
            return
        self._fruitless += 1
        self._ends += 1
        self._paused_until = monotonic() + PAUSE_S
        self.fail(how + self._during(link.running))

    def _during(self, running: Running | None) -> str:
        if running is None or running.slot not in self.pending:
            return ""
        _, (_, method, _) = self.pending[running.slot]
        return f" in {method} of {self._place} {running.slot}"

    def fail(self, why: str, *but: int) -> None:
        """End the calls that run, after the worker has ended; all slots but some."""
        self._ended = why
        for slot in [each for each in self.pending if each not in but]:
            self._finish(slot, None, WorkerError(why))

    def time_left(self, slot: int, limit_s: float) -> float:
        """Return the seconds that a call may still take: none that waited for others is late."""
        if self._link is None:
            return limit_s if self._starting is not None and slot in self.pending else 0.0
        running = self._link.running
        if running is None:
            return 0.0
        left = limit_s - (monotonic() - running.since)
        is_behind = running.slot != slot and running.slot in self.pending
        return left + SHORTLY_S if is_behind else left

    def give_up(self, slot: int) -> None:
        """Kill the worker because of a call, whose caller ends it; the others' calls fail."""
        running = None if self._link is None else self._link.running
        if running is None or running.slot not in self.pending:
            running = Running(slot, monotonic())
        self.kill()
        if running.slot in self.pending:  # else it has ended just before
            _, (_, method, _) = self.pending[running.slot]
            what = f"{method} of {self._place} {running.slot}"
            self.fail(
                f"the worker was stopped because {what} exceeded its time limit",
                *(slot, running.slot),
            )
            if running.slot != slot:
                seconds = monotonic() - running.since
                text = f"{method} exceeded its time limit after {seconds:.1f} s"
                self._finish(running.slot, None, EnvTimeoutError(text, seconds=seconds))
        self.pending.clear()

    def kill(self) -> None:
        """End the worker at once."""
        link, self._link = self._link, None
        if link is not None:
            self._ends += 1
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
        factory: Makes an environment.
        n: The number of slots.
        workers: The number of workers, at most one for each slot.
        close_timeout_s: Seconds that closing the environments may take.
    """

    def __init__(
        self, factory: Callable[[], Any], n: int, workers: int, *, close_timeout_s: float = 10.0
    ) -> None:
        self._factory = factory
        # One configuration scores all slots, and counts their episodes: it stays here.
        self._runtime = factory.runtime if isinstance(factory, ConfiguredEnv) else None
        self._n = check_integer("n", n, low=1)
        self._count = min(check_integer("workers", workers, low=1), n)
        self._close_timeout_s = close_timeout_s
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
        if call.slot in worker.pending and worker.pending[call.slot][0] is call:
            worker.give_up(call.slot)

    async def close(self) -> None:
        """Close every environment, and end the workers."""
        workers, self._workers = self._workers, []
        await asyncio.gather(*(each.close(self._close_timeout_s) for each in workers))


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
