"""`EnvPool`: many environments, stepped together."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from guerdon.envs.amounts import check_seconds
from guerdon.envs.finding import find_environment
from guerdon.envs.pool.arguments import (
    check_action,
    check_actions,
    check_options,
    check_seeds,
    check_slots,
)
from guerdon.envs.pool.calls import PoolBackend, PoolCall
from guerdon.errors import EnvError, EnvTimeoutError, InvalidActionError, InvalidArgumentError
from guerdon.rubrics.failure import say_failure
from guerdon.types.action import Action
from guerdon.types.observation import GenericObservation, Observation

if TYPE_CHECKING:
    from guerdon.envs.pool.sync import SyncEnvPool

__all__ = ["EnvPool"]


class EnvPool:
    """Many environments, stepped together, in threads here or on a server.

    An environment that raises, hangs or dies doesn't disturb the others: its slot gets an
    observation with ``reward=None``, ``done=True`` and ``metadata["error"]``, and its next reset
    makes a new one. Nothing is reset by itself.

    Example:
        >>> import anyio
        >>> from guerdon import Action, EnvPool, Environment, Observation, RegexMatch, State
        >>> class Say(Action):
        ...     content: str
        >>> class Polite(Environment[Say, Observation, State]):
        ...     def __init__(self):
        ...         super().__init__(rubric=RegexMatch("please"))
        ...     def reset(self, seed=None):
        ...         return Observation()
        ...     def step(self, action):
        ...         return self.score(action, Observation(done=True))
        ...     state = State()
        >>> async def main():
        ...     async with EnvPool(Polite, n=2) as pool:
        ...         await pool.reset_batch()
        ...         return await pool.step_batch([Say(content="please"), {"content": "now"}])
        >>> [observation.reward for observation in anyio.run(main)]
        [1.0, 0.0]

    Args:
        env: A factory (an environment class, or a function that makes one), the address of a
            server, with its scheme or port, or what `guerdon serve` takes: a registered name, a
            folder, ``module:name`` or ``file.py:name``.
        n: How many environments.
        timeout_s: Seconds that a reset or a step may take.
        observation_type: What to make of a server's observations.
        token: The server's token.
        backend: Where the environments are, for those who bring their own.

    Raises:
        InvalidArgumentError: An argument can't be meant.
        LoadError: No environment has that name.
        LoadError: What a folder or a spec names isn't there, or is no environment.
    """

    def __init__(
        self,
        env: str | Callable[[], Any] | None = None,
        n: int = 64,
        *,
        timeout_s: float = 60.0,
        observation_type: type[Observation] = GenericObservation,
        token: str | None = None,
        backend: PoolBackend | None = None,
    ) -> None:
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise InvalidArgumentError(f"n is {n!r}; it takes an int of at least 1")
        self.n = n
        self.timeout_s = check_seconds("timeout_s", timeout_s)
        self._backend = backend or _backend(env, n, observation_type, token)
        self._busy: dict[int, PoolCall] = {}
        self._freed = asyncio.Event()  # set whenever a call ends
        self._is_open = False
        self._home: tuple[asyncio.AbstractEventLoop, int] | None = None
        self._streams: dict[int, _Stream] = {}  # of the as_completed that are under way

    def __len__(self) -> int:
        return self.n

    def sync(self) -> SyncEnvPool:
        """The same pool for code that awaits nothing."""
        from guerdon.envs.pool.sync import SyncEnvPool

        return SyncEnvPool(self)

    async def reset_batch(
        self,
        seeds: int | Sequence[int | None] | None = None,
        slots: Sequence[int] | None = None,
        *,
        options: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> list[Observation]:
        """Begin an episode in each slot, or in some. A slot still at a step ends that first.

        Args:
            seeds: One for each of the slots; an int ``s`` stands for ``s, s + 1, …``.
            slots: Which slots; by default all.
            options: What else each environment's reset takes, one dict for each of the slots,
                such as ``[{"task": 3}, {"task": 8}]``.
            **kwargs: What else every environment's reset takes.

        Returns:
            The first observations, in the order of the slots.

        Raises:
            InvalidArgumentError: There is no such slot, or not one seed or dict for each.
        """
        chosen = check_slots(slots, self.n)
        given = check_seeds(seeds, len(chosen))
        extras = check_options(options, kwargs, len(chosen))
        self._check_open()
        if "seed" in kwargs:
            raise InvalidArgumentError("a pool takes seeds, one for each slot, not a seed")
        await self._settled(chosen)
        self._check_open()
        batch = _Batch(len(chosen))
        calls = [
            PoolCall(slot, self._finished(batch.one), seed=seed, extra=extra)
            for slot, seed, extra in zip(chosen, given, extras, strict=True)
        ]
        return await self._run(calls, batch, self.timeout_s)

    async def step_batch(
        self,
        actions: Sequence[Action | Mapping[str, Any] | None],
        *,
        timeout_s: float | None = None,
    ) -> list[Observation | None]:
        """Take a step in each slot for which there is an action.

        Args:
            actions: One for each slot, a model or a dict; None skips the slot.
            timeout_s: Seconds that each may take, instead of the pool's own.

        Returns:
            Observations in the order of the actions; None for slots that were skipped.

        Raises:
            InvalidArgumentError: There isn't one action for each slot, one is none, or a slot is
                still at an earlier step.
        """
        limit = self.timeout_s if timeout_s is None else check_seconds("timeout_s", timeout_s)
        stepped = self._stepped(actions)
        batch = _Batch(len(stepped))
        finished = self._finished(batch.one)
        calls = [PoolCall(slot, finished, action=action) for slot, action in stepped]
        observations = await self._run(calls, batch, limit)
        out: list[Observation | None] = [None] * self.n
        for call, observation in zip(calls, observations, strict=True):
            out[call.slot] = observation
        return out

    async def as_completed(
        self,
        actions: Sequence[Action | Mapping[str, Any] | None],
        *,
        timeout_s: float | None = None,
    ) -> AsyncIterator[tuple[int, Observation]]:
        """Take steps, and give each observation as soon as it is there.

        `send` gives a slot that has answered its next action, and the iteration goes on with
        it, so that nobody waits for the slowest.

        Args:
            actions: One for each slot, a model or a dict; None skips the slot.
            timeout_s: Seconds that each may take, instead of the pool's own.

        Yields:
            Slots and their observations, in the order in which they are done.

        Raises:
            InvalidArgumentError: As `step_batch`.
        """
        limit = self.timeout_s if timeout_s is None else check_seconds("timeout_s", timeout_s)
        stepped = self._stepped(actions)
        stream = _Stream(limit)
        try:
            self._into_stream(stream, stepped)
            while stream.outstanding:
                call = await stream.done.get()
                stream.outstanding -= 1
                yield call.slot, _told(call)
        finally:
            for slot in [slot for slot, its in self._streams.items() if its is stream]:
                del self._streams[slot]
            if not stream.outstanding:
                for clock in stream.clocks:
                    clock.cancel()

    def send(self, slot: int, action: Action | Mapping[str, Any]) -> None:
        """Give a slot its next action, inside of an `as_completed`.

        Raises:
            InvalidArgumentError: The slot is in no `as_completed` that is under way, or still at
                an earlier step; or the action is none.
        """
        check_slots([slot], self.n)
        if slot not in self._streams:
            raise InvalidArgumentError(
                f"slot {slot} is in no as_completed that is under way; send is for those"
            )
        self._into_stream(self._streams[slot], [(slot, check_action(slot, action))])

    async def close(self) -> None:
        """Close every environment. Closing twice does nothing."""
        if self._is_open:
            self._is_open = False
            for call in list(self._busy.values()):
                self._backend.give_up(call)
                call.finish(None, EnvError("the pool was closed meanwhile"))
            await self._backend.close()

    # Inside --------------------------------------------------------------------------------------

    async def _run(self, calls: list[PoolCall], batch: _Batch, limit: float) -> list[Observation]:
        if not calls:
            return []
        self._begin(calls)
        clock = asyncio.get_running_loop().call_later(limit, self._expire, calls, limit)
        await batch.done  # where that is cancelled, the clock still ends what hangs
        clock.cancel()
        return [_told(call) for call in calls]

    def _into_stream(self, stream: _Stream, stepped: list[tuple[int, Any]]) -> None:
        calls = []
        for slot, action in stepped:
            self._refuse_busy(slot)
            self._streams[slot] = stream
            calls.append(PoolCall(slot, self._finished(stream.one), action=action))
        stream.outstanding += len(calls)
        self._begin(calls)
        loop = asyncio.get_running_loop()
        stream.clocks = [clock for clock in stream.clocks if clock.when() > loop.time()]
        stream.clocks.append(loop.call_later(stream.limit, self._expire, calls, stream.limit))

    def _begin(self, calls: list[PoolCall]) -> None:
        for call in calls:
            self._busy[call.slot] = call
        self._backend.submit(calls)

    def _finished(self, then: Callable[[PoolCall], None]) -> Callable[[PoolCall], None]:
        def finished(call: PoolCall) -> None:
            if self._busy.get(call.slot) is call:
                del self._busy[call.slot]
            self._freed.set()
            then(call)

        return finished

    def _expire(self, calls: list[PoolCall], limit: float) -> None:
        for call in calls:
            if not call.over:
                self._backend.give_up(call)
                what = "reset" if call.is_reset else "step"
                call.finish(
                    None, EnvTimeoutError(f"the {what} took longer than {limit:g} s", seconds=limit)
                )

    async def _settled(self, slots: list[int]) -> None:
        """Wait for calls that somebody has left under way."""
        while any(slot in self._busy for slot in slots):
            self._freed.clear()
            await self._freed.wait()

    def _stepped(self, actions: Sequence[Any]) -> list[tuple[int, Any]]:
        self._check_open()
        check_actions(actions, self.n)
        stepped = []
        for slot, action in enumerate(actions):
            if action is not None:
                self._refuse_busy(slot)
                stepped.append((slot, check_action(slot, action)))
        return stepped

    def _refuse_busy(self, slot: int) -> None:
        if slot in self._busy:
            raise InvalidArgumentError(
                f"slot {slot} is still at an earlier call; wait for it, or reset it"
            )

    def _check_open(self) -> None:
        if not self._is_open:
            raise InvalidArgumentError("the pool isn't open; use it as `async with EnvPool(…)`")
        if self._home != (asyncio.get_running_loop(), os.getpid()):
            raise InvalidArgumentError(
                "the pool belongs to another event loop or process; open one in each"
            )

    async def __aenter__(self) -> Self:
        if self._is_open:
            raise InvalidArgumentError("the pool is open already")
        await self._backend.open()
        self._home = asyncio.get_running_loop(), os.getpid()
        self._is_open = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


class _Batch:
    """Waits until so many calls have ended: one future for all of them."""

    __slots__ = ("_left", "done")

    def __init__(self, count: int) -> None:
        self._left = count
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def one(self, call: PoolCall) -> None:
        """One of them has ended."""
        self._left -= 1
        if not self._left and not self.done.done():
            self.done.set_result(None)


class _Stream:
    """Calls of one `as_completed`."""

    __slots__ = ("clocks", "done", "limit", "outstanding")

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.outstanding = 0
        self.done: asyncio.Queue[PoolCall] = asyncio.Queue()
        self.clocks: list[asyncio.TimerHandle] = []

    def one(self, call: PoolCall) -> None:
        """One of them has ended."""
        self.done.put_nowait(call)


def _told(call: PoolCall) -> Observation:
    """What a slot gets: its observation, or one that says what went wrong."""
    if call.observation is not None:
        return call.observation
    assert call.error is not None
    # An action that was refused before the environment saw it has ended nothing.
    return Observation(
        done=not isinstance(call.error, InvalidActionError),
        metadata={"error": say_failure(call.error)},
    )


def _backend(
    env: str | Callable[[], Any] | None,
    n: int,
    observation_type: type[Observation],
    token: str | None,
) -> PoolBackend:
    if isinstance(env, str) and (re.search(r"://|:\d+", env) is not None):
        from guerdon.envs.pool.remote import RemoteBackend

        return RemoteBackend(env, n, observation_type=observation_type, token=token)
    from guerdon.envs.pool.threads import ThreadBackend

    if isinstance(env, str):
        return ThreadBackend(find_environment(env), n)
    if not callable(env):
        raise InvalidArgumentError(
            f"env is {env!r:.60}; it takes a factory of environments, a server's address, or a "
            "registered name"
        )
    return ThreadBackend(env, n)
