"""`Host`: one place for an environment, with threads and a clock around it.

An environment that takes too long is given up: nobody calls it again, it is closed when its code
comes back, and the next reset makes a new one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from guerdon.envs.driver import Driver, make
from guerdon.envs.furnishing import configure
from guerdon.envs.workers import Job, Workers, settle
from guerdon.errors import EnvTimeoutError, EpisodeError
from guerdon.rubrics.failure import say_failure
from guerdon.types.observation import Observation
from guerdon.types.state import State

if TYPE_CHECKING:
    from guerdon.config.live.live import LiveReward

__all__ = ["Host"]

logger = logging.getLogger("guerdon.envs")

# Seconds that a call waits for a thread, at least: others have theirs first.
QUEUE_S = 60.0


class Host:
    """One place for an environment, used in one event loop, one call at a time.

    Args:
        factory: Makes the environment, in a thread.
        workers: The threads.
        timeout_s: Seconds that the environment may take for one call.
        live: Gives the configuration that an episode which begins is scored by, if it can change.

    Attributes:
        driver: That of the environment; None before it is made and after it was given up.
    """

    __slots__ = ("_factory", "_is_half_reset", "_live", "_loop", "_workers", "driver", "timeout_s")

    def __init__(
        self,
        factory: Callable[[], Any],
        workers: Workers,
        *,
        timeout_s: float = 300.0,
        live: Callable[[], LiveReward | None] = lambda: None,
    ) -> None:
        self._factory = factory
        self._workers = workers
        self._live = live
        self._loop = asyncio.get_running_loop()
        self.timeout_s = timeout_s
        self._is_half_reset = False
        self.driver: Driver | None = None

    async def open(self) -> None:
        """Make the environment.

        Raises:
            EnvTimeoutError: That took too long, or too many environments hang already.
            Exception: What making it raised.
        """
        self._workers.check()
        self.driver = await self._in_thread(
            partial(make, self._factory), "making the environment", self.timeout_s, made=True
        )

    async def configure(self) -> None:
        """Have a fresh environment that is stepped without a reset be scored as after one."""
        live, environment = self._live(), self._driver().environment
        if live is not None:
            what = "configuring the environment"
            await self._in_thread(partial(configure, live, environment), what, self.timeout_s)

    async def reset(
        self, seed: int | None, episode_id: str | None, extra: Mapping[str, Any] | None
    ) -> Observation:
        """Begin an episode, in a new environment where the old one was given up."""
        if self.driver is None:
            await self.open()
        driver = self._driver()
        live = self._live()
        if live is not None:
            driver.environment._live = live
        self._is_half_reset = True
        observation: Observation
        if driver.reset_is_async:
            observation = await self._awaited(driver.reset_async(seed, episode_id, extra), "reset")
        else:
            call = partial(driver.reset, seed, episode_id, extra)
            observation = await self._in_thread(call, "reset", self.timeout_s)
        self._is_half_reset = False
        return observation

    async def step(
        self,
        action: Any,
        timeout_s: float | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Observation:
        """Take a step.

        Raises:
            EpisodeError: The environment was given up, or its reset failed.
            EnvTimeoutError: It took too long, and is given up.
            Exception: What it raised.
        """
        driver = self._driver()
        if self._is_half_reset:
            raise EpisodeError("the last reset failed; reset again")
        limit = self.timeout_s if timeout_s is None else min(timeout_s, self.timeout_s)
        if driver.step_is_async:
            return await self._awaited(driver.step_async(action, timeout_s, extra), "step", limit)
        call = partial(driver.step, action, timeout_s, extra)
        observation: Observation = await self._in_thread(call, "step", limit)
        return observation

    async def state(self) -> State:
        """Where the episode stands."""
        state: State = await self._in_thread(self._driver().state, "state", self.timeout_s)
        return state

    async def call(self, function: Callable[[Driver], Any], what: str) -> Any:
        """Anything else that is asked of the environment, in a thread."""
        return await self._in_thread(partial(function, self._driver()), what, self.timeout_s)

    async def close(self, timeout_s: float) -> None:
        """Close the environment. What that raises is logged; where it hangs, it is left behind."""
        driver, self.driver = self.driver, None
        if driver is None:
            return
        try:
            await self._in_thread(driver.close, "close", timeout_s)
        except Exception as error:
            name = type(driver.environment).__name__
            logger.error("%s", say_failure(error, f"closing {name} failed"))

    def _driver(self) -> Driver:
        if self.driver is None:
            raise EpisodeError(
                "the environment took too long and was given up; a reset makes a new one"
            )
        return self.driver

    async def _in_thread(
        self, function: Callable[[], Any], what: str, limit: float, *, made: bool = False
    ) -> Any:
        """Call a function in a thread, for so long; what it `made` too late is closed."""
        waiting: asyncio.Future[Any] = self._loop.create_future()
        job = Job(function, partial(settle, waiting))
        self._workers.submit((job,))
        clock = _Clock(waiting, job, what, limit)
        self._workers.watch(clock)
        try:
            return await waiting
        except (EnvTimeoutError, asyncio.CancelledError):
            if not job.finished:
                self._give_up(job, made)
            elif made and job.result is not None:  # nobody is there to take it
                self._workers.submit((Job(job.result.close, _log_close),))
            raise
        finally:
            self._workers.alarms.discard(clock)

    def _give_up(self, job: Job, made: bool) -> None:
        if not job.started_at and not made:  # no thread was free: the environment has done nothing
            self._workers.give_up(job)
            return
        driver, self.driver = self.driver, None
        if made:
            self._workers.give_up(job, lambda: job.result.close() if job.result else None)
        else:
            self._workers.give_up(job, driver.close if driver is not None else None)

    async def _awaited(
        self, waiting: Awaitable[Observation], what: str, limit: float | None = None
    ) -> Observation:
        """Await an async environment, for so long."""
        limit = self.timeout_s if limit is None else limit
        task = asyncio.ensure_future(waiting)
        try:
            done, _ = await asyncio.wait((task,), timeout=limit)
            if done:
                return task.result()
        except asyncio.CancelledError:
            if not task.done():
                self._drop(task)
            raise
        self._drop(task)
        raise _timeout(what, limit)

    def _drop(self, task: asyncio.Task[Observation]) -> None:
        """Cancel an async environment's call; the environment is closed when its code has ended."""
        driver, self.driver = self.driver, None

        def ended(task: asyncio.Task[Observation]) -> None:
            if not task.cancelled() and task.exception() is not None:
                logger.debug("a call that was given up ended with %r", task.exception())
            if driver is not None:
                self._workers.submit((Job(driver.close, _log_close),))

        task.add_done_callback(ended)
        task.cancel()


def _log_close(job: Job) -> None:
    if job.error is not None:
        logger.error("closing an environment that was given up failed: %r", job.error)


def _timeout(what: str, limit: float) -> EnvTimeoutError:
    return EnvTimeoutError(
        f"{what} took longer than {limit:g} s; the environment is given up, and the next reset "
        "makes a new one",
        seconds=limit,
    )


class _Clock:
    """Ends a call that takes too long, counted from when a thread has taken it."""

    __slots__ = ("_job", "_limit", "_submitted", "_waiting", "_what")

    def __init__(self, waiting: asyncio.Future[Any], job: Job, what: str, limit: float) -> None:
        self._waiting = waiting
        self._job = job
        self._what = what
        self._limit = limit
        self._submitted = monotonic()

    def ring(self, now: float) -> None:
        """End the call where it is time."""
        if self._waiting.done():
            return
        started = self._job.started_at
        waited = now - self._submitted
        if started and now - started > self._limit:
            self._waiting.set_exception(_timeout(self._what, self._limit))
        elif not started and waited > max(QUEUE_S, 10 * self._limit):
            said = f"{self._what} got no thread for {waited:.0f} s: all environments are busy"
            self._waiting.set_exception(EnvTimeoutError(said, seconds=waited))
