"""`Stage`: one environment of any kind, for one episode, with a clock around it."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self

from pydantic import ValidationError

from guerdon._background import background_loop, wait_for
from guerdon.envs.invalid import say_invalid
from guerdon.envs.workers import Job, Workers, settle
from guerdon.errors import (
    EnvError,
    EnvTimeoutError,
    InvalidActionError,
)
from guerdon.rollouts.playing.env_face import EnvFace, closer_of, face_of, is_pending
from guerdon.rollouts.playing.observing import read_result
from guerdon.rubrics.failure import say_failure
from guerdon.types.step_result import StepResult

__all__ = ["Stage", "within"]

logger = logging.getLogger("guerdon.rollouts")

# Seconds that closing an environment may take, at most.
CLOSE_S = 10.0
# Seconds that async code has to end once it was cancelled.
GRACE_S = 1.0


class Stage:
    """One environment for one episode; to be used with ``async with``.

    Sync environments run in threads. One that takes too long, or whose caller is cancelled, is
    left to itself and closed when its code comes back.

    Example:
        >>> async def play(environment):
        ...     async with Stage(environment, timeout=5.0) as stage:
        ...         await stage.reset(7, "episode-1", {})
        ...         return await stage.step({"column": 3})

    Args:
        environment: The environment; or, with `is_factory`, what makes it, which is then closed
            at the end.
        is_factory: Whether it makes one.
        timeout: Seconds that each call may take.
        freed: Called when nothing runs in the environment any more, perhaps in another thread.
    """

    def __init__(
        self,
        environment: Any,
        *,
        is_factory: bool = False,
        timeout: float = 60.0,
        freed: Callable[[], None] | None = None,
    ) -> None:
        self._environment = environment
        self._is_factory = is_factory
        self._timeout = timeout
        self._freed = freed
        self._made: Any = None if is_factory else environment
        self._face: EnvFace | None = None
        self._is_left = False  # to a call that hasn't come back, and closes the environment then
        self._workers = Workers(1, name="guerdon-rollout")

    async def __aenter__(self) -> Self:
        try:
            if self._is_factory:
                await self._in_thread(self._make, "making the environment", self._timeout)
                if not hasattr(self._made, "step") and inspect.isawaitable(self._made):
                    making, self._made = self._made, None
                    self._made = await self._awaited(making, "making the environment")
            lent = not self._is_factory and asyncio.get_running_loop() is background_loop()
            self._face = face_of(self._made, lent_by_sync_code=lent)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await _to_its_end(self._end())

    @property
    def tools(self) -> list[Any] | None:
        """The tools that the environment has, where it says so."""
        assert self._face is not None
        return self._face.tools

    @property
    def takes_seed(self) -> bool:
        """Whether the environment's reset takes a seed."""
        assert self._face is not None
        return self._face.takes_seed

    async def reset(
        self, seed: int | None, episode_id: str | None, extra: Mapping[str, Any]
    ) -> StepResult[Any]:
        """Begin the episode.

        Args:
            seed: Makes it repeatable.
            episode_id: What to call it.
            extra: Further arguments.

        Raises:
            InvalidArgumentError: The environment's reset doesn't take a further argument.
            EnvTimeoutError: It took too long.
            InvalidObservationError: What came is no observation.
            Exception: What the environment raised.
        """
        assert self._face is not None
        call = partial(self._face.reset, seed, episode_id, extra)
        return read_result(await self._call(call, "reset", self._face.is_async[0]), "reset")

    async def step(self, action: Any) -> StepResult[Any]:
        """Take a step; a dict becomes the environment's type of action, where that is known.

        Raises:
            InvalidActionError: It can't.
            Exception: As `reset`.
        """
        assert self._face is not None
        kind = self._face.action_type
        if kind is not None and isinstance(action, Mapping):
            try:
                action = kind.model_validate(action)
            except ValidationError as error:
                raise InvalidActionError(
                    f"the action {action!r:.80} is no {kind.__name__}: {say_invalid(error)}"
                ) from error
        call = partial(self._face.step, action, self._timeout)
        return read_result(await self._call(call, "step", self._face.is_async[1]), "step")

    async def _call(self, call: Callable[[], Any], what: str, is_async: bool) -> Any:
        if is_async:
            answer = call()
            return await self._awaited(answer, what) if inspect.isawaitable(answer) else answer
        answer = await self._in_thread(call, what, self._timeout)
        return await self._awaited(answer, what) if is_pending(answer) else answer

    async def _awaited(self, waiting: Awaitable[Any], what: str) -> Any:
        late = _too_late(what, self._timeout)
        return await within(waiting, self._timeout, late=late, failed=EnvError)

    async def _in_thread(self, function: Callable[[], Any], what: str, limit: float) -> Any:
        waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        call = _Call(function, self._end_in_thread)
        self._workers.submit((Job(call, partial(settle, waiting)),))
        try:
            done, _ = await asyncio.wait((waiting,), timeout=limit)
            if not done:
                raise _too_late(what, limit)
            return waiting.result()
        finally:
            waiting.cancel()
            waiting.add_done_callback(_look_at)
            self._is_left = call.leave()

    def _make(self) -> None:
        self._made = self._environment()

    async def _end(self) -> None:
        """Close what was made here, unless the call that it was left to does."""
        name = type(self._made).__name__
        try:
            if not self._is_left:
                await self._close()
        except Exception as error:
            logger.error("%s", say_failure(error, f"closing {name} failed"))
        finally:
            self._workers.close()

    async def _close(self) -> None:
        if not self._is_factory:
            self._free()
        elif self._face is not None and self._face.is_async[2]:
            late, closed = _too_late("close", self._closing_s), self._face.close()
            if inspect.isawaitable(closed):
                await within(closed, self._closing_s, late=late, failed=EnvError)
        elif self._made is not None:
            await self._in_thread(self._end_in_thread, "close", self._closing_s)

    @property
    def _closing_s(self) -> float:
        return min(self._timeout, CLOSE_S)

    def _end_in_thread(self) -> None:
        """Close what was made here; or tell that what was lent is free again."""
        if not self._is_factory:
            self._free()
        elif self._made is not None:
            made, self._made = self._made, None
            closed = self._face.close() if self._face is not None else closer_of(made)()
            if is_pending(closed):
                wait_for(closed)

    def _free(self) -> None:
        if self._freed is not None:
            self._freed()


class _Call:
    """A call in a thread; if it was left, it does at its end what is to be done then."""

    def __init__(self, function: Callable[[], Any], late: Callable[[], None]) -> None:
        self._function = function
        self._late = late
        self._lock = threading.Lock()
        self._has_ended = False
        self._is_left = False

    def __call__(self) -> Any:
        try:
            return self._function()
        finally:
            with self._lock:
                self._has_ended = True
            if self._is_left:
                self._end()

    def _end(self) -> None:
        try:
            self._late()
        except Exception as error:
            logger.error("%s", say_failure(error, "closing an environment that hung failed"))

    def leave(self) -> bool:
        """Leave it to itself, and say whether it runs on."""
        with self._lock:
            self._is_left = not self._has_ended
            return self._is_left


def _too_late(what: str, limit: float) -> EnvTimeoutError:
    return EnvTimeoutError(
        f"{what} took longer than {limit:g} s; the episode ends here", seconds=limit
    )


async def within(
    waiting: Awaitable[Any], limit: float, *, late: Exception, failed: type[Exception]
) -> Any:
    """What an awaitable gives; it is cancelled where it takes too long, or the caller is.

    Example:
        >>> async def main():
        ...     late = TimeoutError("too late")
        ...     return await within(asyncio.sleep(0, "there"), 5.0, late=late, failed=OSError)
        >>> asyncio.run(main())
        'there'

    Args:
        waiting: What to await.
        limit: Seconds that it may take.
        late: What to raise then.
        failed: What to raise where it ends itself as if it were cancelled.
    """
    task = asyncio.ensure_future(waiting)
    try:
        done, _ = await asyncio.wait((task,), timeout=limit)
        if not done:
            raise late
        if task.cancelled():
            raise failed("it ended itself with CancelledError")
        return task.result()
    finally:
        task.add_done_callback(_look_at)
        if task.cancel():
            await asyncio.wait((task,), timeout=GRACE_S)


def _look_at(future: asyncio.Future[Any]) -> None:
    """Look at an exception for which nobody waits any more, lest asyncio complain."""
    if not future.cancelled():
        future.exception()


async def _to_its_end(ending: Coroutine[Any, Any, None]) -> None:
    """Await something bounded, also where the caller is cancelled meanwhile, and then tell that."""
    task = asyncio.ensure_future(ending)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    task.result()
