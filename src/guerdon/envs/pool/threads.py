"""`ThreadBackend`: a pool's environments in this process."""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from pydantic import ValidationError

from guerdon.envs.driver import Driver, make
from guerdon.envs.invalid import say_invalid
from guerdon.envs.pool.calls import PoolBackend, PoolCall
from guerdon.envs.workers import Job, Workers
from guerdon.errors import EnvTimeoutError, EpisodeError, InvalidActionError
from guerdon.types.observation import Observation

__all__ = ["ThreadBackend"]

logger = logging.getLogger("guerdon.envs")


class _Seat:
    """The environment of one slot. A slot whose environment hangs gets a new seat."""

    __slots__ = ("driver", "factory", "is_broken")

    def __init__(self, factory: Callable[[], Any]) -> None:
        self.factory = factory
        self.driver: Driver | None = None
        self.is_broken = False

    # These run in a worker thread.

    def reset(self, call: PoolCall) -> Observation | Driver:
        """Begin an episode; of an async environment, only make it."""
        if self.is_broken:
            self.close()
        driver = self.driver
        if driver is None:
            driver = self.driver = make(self.factory)
            self.is_broken = False
        if driver.reset_is_async:
            return driver
        assert call.extra is not None
        return driver.reset(call.seed, call.extra.get("episode_id"), call.extra)

    def step(self, action: Any) -> Observation:
        """Take a step."""
        assert self.driver is not None
        return self.driver.step(self.checked(action))

    def checked(self, action: Any) -> Any:
        """The action as a model, where it came as a dict."""
        assert self.driver is not None
        if not isinstance(action, Mapping):
            return action
        kind = self.driver.environment.action_type
        try:
            return kind.model_validate(action)
        except ValidationError as error:
            said = f"the action is no {kind.__name__}: {say_invalid(error)}"
            raise InvalidActionError(said) from error

    def close(self) -> None:
        """Close the environment; what that raises is logged."""
        driver, self.driver = self.driver, None
        if driver is not None:
            try:
                driver.close()
            except Exception as error:
                logger.error("closing %s failed: %r", type(driver.environment).__name__, error)


class ThreadBackend(PoolBackend):
    """A pool's environments in this process: sync ones in threads, async ones in the event loop.

    Example:
        >>> from guerdon import EnvPool
        >>> from guerdon.envs import ThreadBackend
        >>> def make_environment(): ...  # gives an Environment
        >>> len(EnvPool(backend=ThreadBackend(make_environment, 8, close_timeout_s=60), n=8))
        8

    Args:
        factory: Makes an environment.
        n: How many slots there are.
        close_timeout_s: Seconds that closing all environments may take.
    """

    def __init__(
        self, factory: Callable[[], Any], n: int, *, close_timeout_s: float = 10.0
    ) -> None:
        self._seats = [_Seat(factory) for _ in range(n)]
        self._close_timeout_s = close_timeout_s
        self._workers: Workers | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def __del__(self) -> None:
        if self._workers is not None:
            warnings.warn("a pool was never closed", ResourceWarning, stacklevel=2, source=self)
            self._workers.close()

    async def open(self) -> None:
        """Get the threads ready; environments are made by their first reset."""
        self._workers = Workers(len(self._seats), name="guerdon-pool")

    def submit(self, calls: Sequence[PoolCall]) -> None:
        """Begin calls: one hand-over for all of them."""
        assert self._workers is not None
        jobs = []
        for call in calls:
            seat = self._seats[call.slot]
            driver = seat.driver
            if call.is_reset:
                try:
                    self._workers.check()
                except EnvTimeoutError as error:
                    call.finish(None, error)
                    continue
                function: Callable[[], Any] = partial(seat.reset, call)
            elif driver is None or seat.is_broken:
                call.finish(None, EpisodeError("the slot has no environment that works; reset it"))
                continue
            elif driver.step_is_async:
                self._await(call, partial(self._step_async, seat, driver, call.action))
                continue
            else:
                function = partial(seat.step, call.action)
            call.running = job = Job(function, partial(self._done, seat, call))
            jobs.append(job)
        self._workers.submit(jobs)

    def _done(self, seat: _Seat, call: PoolCall, job: Job) -> None:
        if job.error is not None:
            self._failed(seat, call, job.error)
        elif isinstance(job.result, Driver):
            assert call.extra is not None
            reset = partial(
                job.result.reset_async, call.seed, call.extra.get("episode_id"), call.extra
            )
            self._await(call, reset)
        else:
            call.finish(job.result)

    def _failed(self, seat: _Seat, call: PoolCall, error: BaseException) -> None:
        # One that refuses a step after its episode's end still works.
        refused = isinstance(error, (EpisodeError, InvalidActionError)) and not call.is_reset
        seat.is_broken = seat.is_broken or not refused
        call.finish(None, error)

    @staticmethod
    async def _step_async(seat: _Seat, driver: Driver, action: Any) -> Observation:
        return await driver.step_async(seat.checked(action))

    def _await(self, call: PoolCall, function: Callable[[], Any]) -> None:
        task = asyncio.ensure_future(self._play(self._seats[call.slot], call, function))
        call.running = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _play(self, seat: _Seat, call: PoolCall, function: Callable[[], Any]) -> None:
        try:
            observation = await function()
        except asyncio.CancelledError:
            raise  # it was given up, or the pool is closed: the call is over
        except Exception as error:
            self._failed(seat, call, error)
        else:
            call.finish(observation)

    def give_up(self, call: PoolCall) -> None:
        """Put a new seat in the slot; the old environment is closed when its code comes back."""
        assert self._workers is not None
        seat = self._seats[call.slot]
        self._seats[call.slot] = _Seat(seat.factory)
        running = call.running
        if isinstance(running, Job):
            self._workers.give_up(running, seat.close)
        elif running is not None:
            workers = self._workers
            running.add_done_callback(lambda _: workers.submit((Job(seat.close, _nothing),)))
            running.cancel()

    async def close(self) -> None:
        """Close every environment, each in a thread; those that hang are left behind."""
        workers, self._workers = self._workers, None
        if workers is None:
            return
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        left = len(self._seats)
        closed = asyncio.get_running_loop().create_future()

        def one_less(job: Job) -> None:
            nonlocal left
            left -= 1
            if not left and not closed.done():
                closed.set_result(None)

        workers.submit([Job(seat.close, one_less) for seat in self._seats])
        try:
            async with asyncio.timeout(self._close_timeout_s):
                await closed
        except TimeoutError:
            logger.error("%d environments took too long to close", left)
        finally:
            workers.close()


def _nothing(job: Job) -> None:
    """What is done when an environment that was given up has been closed."""
