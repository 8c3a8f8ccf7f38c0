"""`PoolBackend`, which runs the environments of a pool, and `ThreadBackend` for this process."""

from __future__ import annotations

import asyncio
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from guerdon.envs.runner import EnvCall, EnvRunner, EnvThreads
from guerdon.errors import InvalidArgumentError
from guerdon.types.observation import Observation

__all__ = ["PoolBackend", "PoolCall", "ThreadBackend"]


@dataclass(slots=True, eq=False)
class PoolCall:
    """One reset or one step of one slot.

    Example:
        >>> from guerdon import Observation
        >>> from guerdon.envs import PoolCall
        >>> ended = []
        >>> call = PoolCall(3, ended.append, action={"column": 2})
        >>> call.is_reset
        False
        >>> call.finish(Observation(done=True))
        >>> ended[0].slot, ended[0].observation.done
        (3, True)

    Attributes:
        slot: The slot.
        finished: Called once it has ended, in the event loop.
        action: The agent's action; None for a reset.
        seed: The seed of a reset.
        extra: Further arguments of a reset; None for a step.
        observation: The result.
        error: The exception that was raised instead.
        running: For the backend's own use.
        over: Whether it has ended, or was abandoned.
    """

    slot: int
    finished: Callable[[PoolCall], None]
    action: Any = None
    seed: int | None = None
    extra: Mapping[str, Any] | None = None
    observation: Observation | None = None
    error: BaseException | None = None
    running: Any = None
    over: bool = False

    @property
    def is_reset(self) -> bool:
        """Whether it begins an episode."""
        return self.extra is not None

    def finish(self, observation: Observation | None, error: BaseException | None = None) -> None:
        """Set the result, in the event loop; the result of a call that is over is dropped."""
        if not self.over:
            self.over = True
            self.observation, self.error = observation, error
            self.finished(self)


class PoolBackend(ABC):
    """Runs the environments of a pool; used in one event loop, with one call per slot at a time.

    Example:
        >>> from guerdon import EnvPool, Observation
        >>> from guerdon.envs import PoolBackend
        >>> class Nowhere(PoolBackend):
        ...     async def open(self): ...
        ...     def submit(self, calls):
        ...         for call in calls:
        ...             call.finish(Observation(done=True))
        ...     def give_up(self, call): ...
        ...     async def close(self): ...
        >>> with EnvPool(backend=Nowhere(), n=2).sync() as pool:
        ...     [observation.done for observation in pool.reset_batch()]
        [True, True]

    Attributes:
        n: How many slots it has; None if that is not limited.
    """

    n: int | None = None

    @property
    def hanging(self) -> int:
        """How many environments hang in calls that exceeded their time limit."""
        return 0

    @abstractmethod
    async def open(self) -> None:
        """Prepare, and raise what is wrong before the first reset."""

    @abstractmethod
    def submit(self, calls: Sequence[PoolCall]) -> None:
        """Start calls of different slots; each ends with its `finish`, in the event loop."""

    @abstractmethod
    def give_up(self, call: PoolCall) -> None:
        """Abandon a call; the slot's next reset makes a new environment."""

    def time_left(self, call: PoolCall, limit_s: float) -> float:
        """Return the seconds that a call whose time is over may still take.

        It is more than 0 if the call waited for others of the backend; by default it is 0.
        """
        return 0.0

    async def update_config(
        self, change: Mapping[str, Any], *, version: str | None = None
    ) -> dict[str, Any]:
        """Change the reward configuration of the servers, if the environments are on any."""
        raise InvalidArgumentError(
            "the environments of this pool are not on a server; make them with a ConfiguredEnv, "
            "and use ConfiguredEnv.update_config"
        )

    @abstractmethod
    async def close(self) -> None:
        """Close every environment, and what runs them."""


def start_task(
    coroutine: Coroutine[Any, Any, Any], tasks: set[asyncio.Task[Any]]
) -> asyncio.Task[Any]:
    """Start a task, which is among `tasks` as long as it runs."""
    task = asyncio.ensure_future(coroutine)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task


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
        self.n: int = n
        self._close_timeout_s = close_timeout_s
        self._threads: EnvThreads | None = None
        self._runners: list[EnvRunner] = []
        self._resets: set[asyncio.Task[Any]] = set()
        self._closing: set[asyncio.Task[Any]] = set()

    def __del__(self) -> None:
        if self._threads is not None:
            warnings.warn("a pool was never closed", ResourceWarning, stacklevel=2, source=self)
            self._threads.close()

    @property
    def hanging(self) -> int:
        """How many environments hang in calls that exceeded their time limit, each in a thread."""
        return 0 if self._threads is None else self._threads.stuck

    async def open(self) -> None:
        """Prepare the threads; environments are made by their first reset."""
        self._threads = EnvThreads(self.n, name="guerdon-pool")
        self._runners = [self._new_runner(slot) for slot in range(self.n)]

    def _new_runner(self, slot: int) -> EnvRunner:
        assert self._threads is not None
        return EnvRunner(
            self._factory,
            self._threads,
            timeout_s=math.inf,  # the pool's own clock bounds the calls
            replaces_failed=True,
            name=f"slot {slot}",
        )

    def submit(self, calls: Sequence[PoolCall]) -> None:
        """Start calls: sync steps in threads, all else as tasks."""
        for call in calls:
            runner = self._runners[call.slot]
            if call.extra is None:
                runner.start_step(call.action, partial(_step_ended, call))
            else:
                call.running = start_task(_reset(call, call.extra, runner), self._resets)

    def give_up(self, call: PoolCall) -> None:
        """Give the slot a new runner; the old environment is closed when its code has ended."""
        runner = self._runners[call.slot]
        self._runners[call.slot] = self._new_runner(call.slot)
        if call.running is not None:
            call.running.cancel()
        runner.abandon()
        start_task(runner.close(self._close_timeout_s), self._closing)

    async def close(self) -> None:
        """Close every environment, each in a thread; those that hang are left behind."""
        threads, self._threads = self._threads, None
        if threads is None:
            return
        # A task of its own, which goes on if the caller is cancelled.
        await asyncio.shield(start_task(self._close(threads), self._closing))

    async def _close(self, threads: EnvThreads) -> None:
        for reset in self._resets:
            reset.cancel()
        replaced = self._closing - {asyncio.current_task()}
        try:
            await asyncio.gather(*self._resets, *replaced, return_exceptions=True)
            await asyncio.gather(*(each.close(self._close_timeout_s) for each in self._runners))
        finally:
            threads.close()


def _step_ended(call: PoolCall, step: EnvCall) -> None:
    call.finish(step.result, step.error)


async def _reset(call: PoolCall, extra: Mapping[str, Any], runner: EnvRunner) -> None:
    try:
        observation = await runner.reset(call.seed, extra.get("episode_id"), extra)
    except Exception as error:
        call.finish(None, error)
    else:
        call.finish(observation)
