"""`ThreadBackend`: a pool's environments in this process."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from guerdon.envs.pool.calls import PoolBackend, PoolCall
from guerdon.envs.runner import EnvCall, EnvRunner, EnvThreads
from guerdon.errors import EpisodeError

__all__ = ["ThreadBackend"]

FOREVER_S = 1e9


class ThreadBackend(PoolBackend):
    """A pool's environments in this process: sync ones in threads, async ones in the event loop.

    Example:
        >>> from guerdon import EnvPool
        >>> from guerdon.envs import ThreadBackend
        >>> def make_environment(): ...  # returns an Environment
        >>> len(EnvPool(backend=ThreadBackend(make_environment, 8, close_timeout_s=60), n=8))
        8

    Args:
        factory: Makes an environment.
        n: The number of slots.
        close_timeout_s: Seconds that closing an environment may take.
    """

    def __init__(
        self, factory: Callable[[], Any], n: int, *, close_timeout_s: float = 10.0
    ) -> None:
        self._factory = factory
        self._n = n
        self._close_timeout_s = close_timeout_s
        self._threads: EnvThreads | None = None
        self._runners: list[EnvRunner] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    def __del__(self) -> None:
        if self._threads is not None:
            warnings.warn("a pool was never closed", ResourceWarning, stacklevel=2, source=self)
            self._threads.close()

    async def open(self) -> None:
        """Prepare the threads; environments are made by their first reset."""
        self._threads = EnvThreads(self._n, name="guerdon-pool")
        self._runners = [self._new_runner() for _ in range(self._n)]

    def _new_runner(self) -> EnvRunner:
        assert self._threads is not None
        # The pool's own clock bounds the calls.
        return EnvRunner(self._factory, self._threads, timeout_s=FOREVER_S, replaces_failed=True)

    def submit(self, calls: Sequence[PoolCall]) -> None:
        """Start calls: sync steps in threads, all else as tasks."""
        for call in calls:
            runner = self._runners[call.slot]
            try:
                if not call.is_reset and runner.start_step(call.action, partial(_finish, call)):
                    continue
            except EpisodeError as error:
                call.finish(None, error)
                continue
            call.running = self._task(_play(call, runner))

    def give_up(self, call: PoolCall) -> None:
        """Give the slot a new runner; the old environment is closed when its code has ended."""
        runner = self._runners[call.slot]
        self._runners[call.slot] = self._new_runner()
        if call.running is not None:
            call.running.cancel()
        else:
            runner.abandon()
        self._task(runner.close(self._close_timeout_s))  # where no code was running

    def _task(self, running: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(running)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Close every environment, each in a thread; those that hang are left behind."""
        threads, self._threads = self._threads, None
        if threads is None:
            return
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.gather(*(each.close(self._close_timeout_s) for each in self._runners))
        finally:
            threads.close()


def _finish(call: PoolCall, step: EnvCall) -> None:
    if step.error is None:
        call.finish(step.result)
    else:
        call.finish(None, step.failure(step.error))


async def _play(call: PoolCall, runner: EnvRunner) -> None:
    try:
        if call.extra is not None:
            observation = await runner.reset(call.seed, call.extra.get("episode_id"), call.extra)
        else:
            observation = await runner.step(call.action)
    except Exception as error:
        call.finish(None, error)
    else:
        call.finish(observation)
