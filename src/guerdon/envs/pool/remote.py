"""`RemoteBackend`: a pool's environments on a server, a session each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from guerdon._validation import check_token
from guerdon.envs.client.session import (
    RemoteSession,
    encode_message,
    observation_of,
    parse_result,
)
from guerdon.envs.client.transport import websocket_url
from guerdon.envs.pool.backend import PoolBackend, PoolCall, start_task
from guerdon.errors import EpisodeError, InvalidActionError, ServerError
from guerdon.types.observation import Observation

__all__ = ["RemoteBackend"]

# The server's own limits and the pool's clock bound an answer; the session need not.
LONG_S = 1e6


class RemoteBackend(PoolBackend):
    """A pool's environments on a server, a session each.

    Example:
        >>> from guerdon import EnvPool, Observation
        >>> from guerdon.envs import RemoteBackend
        >>> class Board(Observation):
        ...     cells: list[int]
        >>> backend = RemoteBackend("localhost:8000", 8, observation_type=Board)
        >>> len(EnvPool(backend=backend, n=8))
        8

    Args:
        url: The server's address.
        n: How many slots there are.
        observation_type: What to make of observations.
        token: The server's token.
        connect_timeout_s: Seconds that connecting may take.
    """

    def __init__(
        self,
        url: str,
        n: int,
        *,
        observation_type: type[Observation],
        token: str | None = None,
        connect_timeout_s: float = 10.0,
    ) -> None:
        self._new_session = partial(
            RemoteSession,
            websocket_url(url),
            token=check_token(token),
            connect_timeout_s=connect_timeout_s,
        )
        self._n = n
        self._observation_type = observation_type
        self._sessions: list[RemoteSession] = []
        self._playing: set[asyncio.Task[Any]] = set()
        self._dropping: set[asyncio.Task[Any]] = set()
        self._broken: set[int] = set()  # slots whose environment raised

    async def open(self) -> None:
        """Connect every slot."""
        self._sessions = [self._new_session() for _ in range(self._n)]
        try:
            async with asyncio.TaskGroup() as group:
                for session in self._sessions:
                    group.create_task(session.open())
        except ExceptionGroup as failed:
            await self.close()
            raise failed.exceptions[0] from None

    def submit(self, calls: Sequence[PoolCall]) -> None:
        """Begin calls, each in its session."""
        for call in calls:
            call.running = start_task(self._play(call), self._playing)

    async def _play(self, call: PoolCall) -> None:
        session = self._sessions[call.slot]
        try:
            if call.is_reset:
                data: Any = dict(call.extra or {})
                if call.seed is not None:
                    data["seed"] = call.seed
                text = encode_message("reset", data)
                if call.slot in self._broken:  # a new session has a new environment
                    await session.drop()
                    self._broken.discard(call.slot)
                payload = await session.request_or_reconnect(text, "observation", LONG_S)
            elif call.slot in self._broken:
                raise EpisodeError("the last call failed; reset it to make a new environment")
            else:
                payload = await session.request(
                    encode_message("step", call.action), "observation", LONG_S
                )
            call.finish(self._observation(payload))
        except Exception as error:
            if isinstance(error, ServerError) and error.code == "EXECUTION_ERROR":
                self._broken.add(call.slot)
            refused = isinstance(error, ServerError) and error.code == "VALIDATION_ERROR"
            call.finish(None, InvalidActionError(str(error)) if refused else error)

    def _observation(self, payload: Any) -> Observation:
        return observation_of(parse_result(payload), self._observation_type, server="the server")

    def give_up(self, call: PoolCall) -> None:
        """Drop the session; the server closes its environment, and the next reset opens another."""
        call.running.cancel()
        session = self._sessions[call.slot]
        self._sessions[call.slot] = self._new_session(reached=True)
        start_task(session.drop(), self._dropping)

    async def close(self) -> None:
        """End every session."""
        for task in self._playing:
            task.cancel()
        await asyncio.gather(*self._playing, *self._dropping, return_exceptions=True)
        sessions, self._sessions = self._sessions, []
        await asyncio.gather(*(session.close() for session in sessions), return_exceptions=True)
