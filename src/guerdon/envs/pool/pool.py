"""`EnvPool`: many environments, stepped together."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from time import monotonic
from typing import Any, Self

from guerdon._background import SyncWrapper, run, sync_method, wait_for
from guerdon._validation import check_integer, check_list, check_seconds, shown
from guerdon.envs.pool.backend import PoolBackend, PoolCall
from guerdon.envs.registry import find_environment
from guerdon.envs.runner import BLOCKED_S, ResetArgumentError
from guerdon.errors import (
    EnvError,
    EnvTimeoutError,
    EpisodeError,
    InvalidActionError,
    InvalidArgumentError,
)
from guerdon.rubrics.failure import describe_failure
from guerdon.types.action import Action
from guerdon.types.observation import GenericObservation, Observation

__all__ = ["EnvPool", "SyncEnvPool"]

# The modules and classes of the backends, by name.
BACKENDS = {
    "threads": ("backend", "ThreadBackend"),
    "processes": ("processes", "ProcessBackend"),
    "remote": ("remote", "RemoteBackend"),
    "ray": ("ray", "RayBackend"),
}


class EnvPool:
    """Many environments, stepped together, in threads here or on a server.

    An environment that raises or hangs doesn't disturb the others: its slot gets an observation
    with ``reward=None``, ``done=True`` and ``metadata["error"]``, and its next reset makes a new
    environment. Slots are never reset automatically. Threads can't isolate code that holds the
    interpreter lock, or that ends the process.

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
        env: A factory (an environment class, or a function that returns an environment), the
            address of a server, with its scheme or port, a list of several, or what `guerdon serve`
            accepts: a registered name, a folder, ``module:name`` or ``file.py:name``.
        n: The number of environments, at least 1.
        timeout_s: Seconds that a reset or a step may take.
        observation_type: The class of a server's observations.
        token: The server's token.
        backend: Where the environments run: ``"threads"`` of this process (the default),
            ``"processes"`` of this machine, on a server (``"remote"``, the default for an address)
            or on a cluster (``"ray"``); or a `PoolBackend`, which has its own environments, instead
            of `env`.

    Raises:
        InvalidArgumentError: An argument is invalid.
        LoadError: There is no such environment.
    """

    def __init__(
        self,
        env: str | Sequence[str] | Callable[[], Any] | None = None,
        n: int = 64,
        *,
        timeout_s: float = 60.0,
        observation_type: type[Observation] = GenericObservation,
        token: str | None = None,
        backend: str | PoolBackend | None = None,
    ) -> None:
        self.n = check_integer("n", n, low=1)
        self.timeout_s = check_seconds("timeout_s", timeout_s)
        if not isinstance(backend, PoolBackend):
            backend = _backend(backend, env, n, observation_type, token)
        elif env is not None:
            raise InvalidArgumentError(
                f"`env` must be left out if `backend` is given, which has its own, got {shown(env)}"
            )
        elif backend.n not in (None, n):
            raise InvalidArgumentError(f"`n` must be that of the backend, {backend.n}, got {n}")
        self._backend = backend
        self._busy: dict[int, PoolCall] = {}
        self._begun: set[int] = set()  # slots that were reset since the pool was opened
        self._freed: asyncio.Event  # set whenever a call ends
        self._is_open = self._is_opening = False
        self._home: tuple[asyncio.AbstractEventLoop, int] | None = None
        self._streams: dict[int, _Stream] = {}  # of the as_completed that are under way

    def __len__(self) -> int:
        return self.n

    @property
    def hanging(self) -> int:
        """How many environments hang in calls that exceeded their time limit.

        Each occupies a thread until its code ends; above 256, no further environments are made.
        On a server, its metric ``guerdon_hanging_environments`` counts them.
        """
        return self._backend.hanging

    def sync(self) -> SyncEnvPool:
        """Return the same pool for sync code."""
        return SyncEnvPool(self)

    async def reset_batch(
        self,
        seeds: int | Sequence[int | None] | None = None,
        slots: Sequence[int] | None = None,
        *,
        options: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> list[Observation]:
        """Begin an episode in each slot, or in some. A slot that is in a step ends it first.

        Args:
            seeds: One for each of the slots; an int ``s`` means ``s, s + 1, …``.
            slots: The slots to reset; by default all.
            options: Further arguments of each environment's reset, one dict for each of the slots,
                such as ``[{"task": 3}, {"task": 8}]``.
            **kwargs: Further arguments of every environment's reset.

        Returns:
            The first observations, in the order of the slots.

        Raises:
            InvalidArgumentError: A slot doesn't exist, the seeds or options don't match, or an
                environment's reset doesn't accept an argument.
        """
        chosen = _check_slots(slots, self.n)
        given = _check_seeds(seeds, len(chosen))
        extras = _check_options(options, kwargs, len(chosen))
        self._check_open()
        await self._settled(chosen)
        self._check_open()
        batch = _Batch(len(chosen))
        finished = partial(self._ended, batch.one)
        calls = [
            PoolCall(slot, finished, seed=seed, extra=extra)
            for slot, seed, extra in zip(chosen, given, extras, strict=True)
        ]
        observations = await self._run(calls, batch, self.timeout_s)
        for call in calls:
            if isinstance(call.error, ResetArgumentError):
                raise call.error
        return observations

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
            InvalidArgumentError: There isn't one action for each slot, an action is invalid, or a
                slot is still in an earlier step.
        """
        limit, stepped = self._stepped(actions, timeout_s)
        batch = _Batch(len(stepped))
        finished = partial(self._ended, batch.one)
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
        """Take steps, and yield each observation as soon as it is available.

        `send` starts the next step of a slot whose observation was yielded, and the iteration
        continues with it, so that no slot waits for the slowest.

        Args:
            actions: One for each slot, a model or a dict; None skips the slot.
            timeout_s: Seconds that each may take, instead of the pool's own.

        Yields:
            Slots and their observations, in the order in which they end.

        Raises:
            InvalidArgumentError: As `step_batch`.
        """
        limit, stepped = self._stepped(actions, timeout_s)
        stream = _Stream(limit)
        try:
            self._into_stream(stream, stepped)
            while stream.outstanding:
                call = await stream.done.get()
                stream.outstanding -= 1
                yield call.slot, _observation(call)
        finally:
            for slot in [slot for slot, its in self._streams.items() if its is stream]:
                del self._streams[slot]
            if not stream.outstanding:
                for timer in stream.timers.values():
                    timer.cancel()

    def send(self, slot: int, action: Action | Mapping[str, Any]) -> None:
        """Start the next step of a slot, during an `as_completed`.

        Raises:
            InvalidArgumentError: The slot is not in an `as_completed` that is running, or is still
                in an earlier step; or the action is invalid.
        """
        _check_slots([slot], self.n)
        self._check_open()
        if slot not in self._streams:
            raise InvalidArgumentError(f"slot {slot} is not in an as_completed that is running")
        self._into_stream(self._streams[slot], [(slot, self._checked(slot, action))])

    async def update_config(
        self, change: Mapping[str, Any], *, version: str | None = None
    ) -> dict[str, Any]:
        """Change the reward configuration of the servers, from the next resets on.

        All servers of the pool change, or none does: if one refuses the change or can't be reached,
        the others keep their configuration. A server that is connected again later, after a restart
        for example, receives the changes before its next episode begins.

        Args:
            change: The changes by name, in the shape of the file; see `RewardRuntime.update`.
            version: The version that the change is based on; by default the one that all servers
                had after the last change of this pool.

        Returns:
            ``{"status": "ok", "config": …, "change": …}`` of the first server.

        Raises:
            InvalidArgumentError: The environments are not on a server.
            RewardConfigError: The change is invalid, or a server failed; nothing was changed.
            ConfigConflictError: A server has another version; nothing was changed.
            ClientError: A server can't be reached; nothing was changed.
        """
        self._check_open()
        return await self._backend.update_config(change, version=version)

    async def close(self) -> None:
        """Close every environment. Closing twice does nothing."""
        if self._is_open:
            self._is_open = False
            busy = list(self._busy.values())
            for call in busy:
                call.finish(None, EnvError("the pool was closed"))
            for call in busy:
                self._backend.give_up(call)
            self._streams.clear()
            await self._backend.close()

    # Inside --------------------------------------------------------------------------------------

    async def _run(self, calls: list[PoolCall], batch: _Batch, limit: float) -> list[Observation]:
        if not calls:
            return []
        self._begin(calls)
        timer = self._timer(calls, limit)
        await batch.done  # if that is cancelled, the timer still ends what hangs
        timer.cancel()
        return [_observation(call) for call in calls]

    def _into_stream(self, stream: _Stream, stepped: list[tuple[int, Any]]) -> None:
        finished = partial(self._ended, stream.one)
        calls = [PoolCall(slot, finished, action=action) for slot, action in stepped]
        self._streams.update((slot, stream) for slot, _ in stepped)
        stream.outstanding += len(calls)
        self._begin(calls)
        if not all(call.over for call in calls):
            key = calls[0].slot if len(calls) == 1 else None
            stream.timers[key] = self._timer(calls, stream.limit)

    def _begin(self, calls: list[PoolCall]) -> None:
        self._begun.update(call.slot for call in calls if call.is_reset)
        for call in calls:
            self._busy[call.slot] = call
            if call.slot not in self._begun:
                error = f"slot {call.slot} was never reset; reset_batch begins its first episode"
                call.finish(None, EpisodeError(error))
        try:
            self._backend.submit([call for call in calls if not call.over])
        except BaseException as error:  # of a backend that a user wrote, for example
            for call in calls:
                call.finish(None, error)
            raise

    def _ended(self, then: Callable[[PoolCall], None], call: PoolCall) -> None:
        if self._busy.get(call.slot) is call:
            del self._busy[call.slot]
        self._freed.set()
        then(call)

    def _timer(self, calls: list[PoolCall], limit: float) -> asyncio.TimerHandle:
        loop = asyncio.get_running_loop()
        # Again after the event loop has handled what has arrived: uvloop calls timers before that.
        expire = partial(loop.call_later, 0.0, self._expire, calls, limit, monotonic())
        return loop.call_later(limit, expire)

    def _expire(
        self, calls: list[PoolCall], limit: float, began: float, is_last: bool = False
    ) -> None:
        now = monotonic()
        late = now - began - limit
        calls = [call for call in calls if not call.over]
        if calls and late > BLOCKED_S and not is_last:  # the event loop was blocked
            wait = min(late, limit)
            asyncio.get_running_loop().call_later(wait, self._expire, calls, limit, began, True)
            return
        left = {call: self._backend.time_left(call, limit) for call in calls}
        waited = [call for call in calls if left[call] > 0]
        if waited:
            wait = min(map(left.__getitem__, waited))
            asyncio.get_running_loop().call_later(
                wait, self._expire, waited, limit, now + wait - limit
            )
        expired = [call for call in calls if left[call] <= 0]
        for call in expired:
            what = "reset" if call.is_reset else "step"
            text = f"the {what} took longer than {limit:g} s"
            call.finish(None, EnvTimeoutError(text, seconds=limit))
        for call in expired:  # after all have their own error: this may end others' calls
            self._backend.give_up(call)

    async def _settled(self, slots: list[int]) -> None:
        """Wait for calls whose batch was cancelled."""
        while any(slot in self._busy for slot in slots):
            self._freed.clear()
            await self._freed.wait()

    def _stepped(
        self, actions: Sequence[Any], timeout_s: float | None
    ) -> tuple[float, list[tuple[int, Any]]]:
        """Return the time limit, and the slots that are stepped with their actions."""
        limit = self.timeout_s if timeout_s is None else check_seconds("timeout_s", timeout_s)
        self._check_open()
        given = enumerate(_one_each("actions", actions, self.n))
        return limit, [
            (slot, self._checked(slot, each)) for slot, each in given if each is not None
        ]

    def _checked(self, slot: int, action: Any) -> Any:
        if slot in self._busy:
            raise InvalidArgumentError(
                f"slot {slot} is still in an earlier call; wait for it, or reset it"
            )
        if not isinstance(action, (dict, Action, Mapping)):  # a dict is recognized the fastest
            raise InvalidArgumentError(
                f"`actions[{slot}]` must be an Action, a dict, or None to skip, got {shown(action)}"
            )
        return action

    def _check_open(self) -> None:
        if not self._is_open:
            raise InvalidArgumentError(
                "the pool is not open; use it as `async with EnvPool(…)` or "
                "`with EnvPool(…).sync()`"
            )
        if self._home != (asyncio.get_running_loop(), os.getpid()):
            raise InvalidArgumentError(
                "the pool belongs to another event loop or process; open one in each"
            )

    async def __aenter__(self) -> Self:
        if self._is_open or self._is_opening:
            raise InvalidArgumentError("the pool is already open")
        self._is_opening = True
        try:
            await self._backend.open()
        finally:
            self._is_opening = False
        self._home = asyncio.get_running_loop(), os.getpid()
        self._freed = asyncio.Event()
        self._begun.clear()
        self._is_open = True
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class _Batch:
    """Waits until several calls have ended: one future for all of them."""

    def __init__(self, count: int) -> None:
        self._left = count
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def one(self, call: PoolCall) -> None:
        """Handle the end of a call."""
        self._left -= 1
        if not self._left and not self.done.done():
            self.done.set_result(None)


class _Stream:
    """Calls of one `as_completed`."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.outstanding = 0
        self.done: asyncio.Queue[PoolCall] = asyncio.Queue()
        self.timers: dict[int | None, asyncio.TimerHandle] = {}  # None for a batch

    def one(self, call: PoolCall) -> None:
        """Handle the end of a call."""
        timer = self.timers.pop(call.slot, None)
        if timer is not None:
            timer.cancel()
        self.done.put_nowait(call)


def _observation(call: PoolCall) -> Observation:
    """The observation of a slot, or one that contains the error."""
    if call.observation is not None:
        return call.observation
    assert call.error is not None
    # An action that was refused before the environment received it ends no episode.
    return Observation(
        done=not isinstance(call.error, InvalidActionError),
        metadata={"error": describe_failure(call.error)},
    )


class SyncEnvPool(SyncWrapper):
    """An `EnvPool` for sync code; made by `EnvPool.sync`.

    Example:
        >>> from guerdon import EnvPool
        >>> def main():
        ...     with EnvPool("http://localhost:8000", n=16).sync() as pool:
        ...         pool.reset_batch(seeds=0)
        ...         return pool.step_batch([{"message": "hi"}] * 16)
    """

    def __init__(self, pool: EnvPool) -> None:
        super().__init__(pool)
        self.async_pool = pool

    def __len__(self) -> int:
        return self.async_pool.n

    reset_batch = sync_method(EnvPool.reset_batch)  # type: ignore[arg-type]
    step_batch = sync_method(EnvPool.step_batch)
    update_config = sync_method(EnvPool.update_config)

    def as_completed(
        self,
        actions: Sequence[Action | Mapping[str, Any] | None],
        *,
        timeout_s: float | None = None,
    ) -> Iterator[tuple[int, Observation]]:
        """See `EnvPool.as_completed`."""
        stream = self.async_pool.as_completed(actions, timeout_s=timeout_s)
        try:
            while (found := wait_for(anext(stream, None))) is not None:
                yield found
        finally:
            wait_for(stream.aclose())  # type: ignore[attr-defined]

    def send(self, slot: int, action: Action | Mapping[str, Any]) -> None:
        """See `EnvPool.send`."""

        async def sending() -> None:
            self.async_pool.send(slot, action)

        run(sending())


def _one_each(name: str, given: Any, count: int) -> list[Any]:
    """Return a list that has one value for each slot."""
    values = check_list(name, given)
    if len(values) != count:
        raise InvalidArgumentError(
            f"`{name}` must be a list with one for each of the {count} slots, got {len(values)}"
        )
    return values


def _check_slots(slots: Sequence[int] | None, n: int) -> list[int]:
    if slots is None:
        return list(range(n))
    if isinstance(slots, (str, bytes)) or not isinstance(slots, Iterable):
        raise InvalidArgumentError(f"`slots` must be a list of slots, got {shown(slots)}")
    chosen = [check_integer("slot", slot, low=0, high=n - 1) for slot in slots]
    if len(set(chosen)) < len(chosen):
        raise InvalidArgumentError(f"`slots` must contain each slot once, got {chosen}")
    return chosen


def _check_seeds(seeds: int | Sequence[int | None] | None, count: int) -> list[int | None]:
    if seeds is None:
        return [None] * count
    given = range(seeds, seeds + count) if type(seeds) is int else seeds
    return [
        None if seed is None else check_integer("seeds", seed, low=0)
        for seed in _one_each("seeds", given, count)
    ]


def _check_options(
    options: Sequence[Mapping[str, Any]] | None, common: Mapping[str, Any], count: int
) -> list[Mapping[str, Any]]:
    given: Sequence[Any] = [{}] * count
    if options is not None:
        given = _one_each("options", options, count)
    if not all(isinstance(each, Mapping) for each in given):
        raise InvalidArgumentError(f"`options` must be a list of dicts, got {shown(options)}")
    merged: list[Mapping[str, Any]] = [{**common, **each} for each in given]
    if any("seed" in each for each in merged):
        raise InvalidArgumentError("pass `seeds`, one for each slot, instead of `seed`")
    return merged


def _is_address(env: Any) -> bool:
    """Whether an environment is given by the address of its server, or by those of several."""
    if isinstance(env, (list, tuple)):
        return all(map(_is_address, env))
    return isinstance(env, str) and re.search(r"://|:\d+", env) is not None


def _backend(
    name: Any, env: Any, n: int, observation_type: type[Observation], token: str | None
) -> PoolBackend:
    """Return the backend of a name, by default the one that fits the environment."""
    is_address = _is_address(env)
    if name is None:
        name = "remote" if is_address else "threads"
    if not isinstance(name, str) or name not in BACKENDS:
        raise InvalidArgumentError(
            f"`backend` must be one of {[*BACKENDS]} or a PoolBackend, such as "
            f"ProcessBackend(make_environment, n), got {shown(name)}"
        )
    if is_address != (name == "remote"):
        raise InvalidArgumentError(
            f"`env` must {'not ' * is_address}be the address of a server if `backend` is {name!r}, "
            f"got {shown(env)}"
        )
    backend = getattr(import_module(f"guerdon.envs.pool.{BACKENDS[name][0]}"), BACKENDS[name][1])
    if is_address:
        return backend(env, n, observation_type=observation_type, token=token)  # type: ignore[no-any-return]
    if not isinstance(env, str) and not callable(env):
        raise InvalidArgumentError(
            "`env` must be an environment class or a function that returns an environment, a "
            f"server's address, or a registered name, got {shown(env)}"
        )
    return backend(find_environment(env) if isinstance(env, str) else env, n)  # type: ignore[no-any-return]
