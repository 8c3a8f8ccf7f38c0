"""`RemoteBackend`: a pool's environments on servers."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from guerdon._validation import check_token
from guerdon.envs.client.batches import BatchConnection
from guerdon.envs.client.session import (
    FATAL,
    Connector,
    RemoteSession,
    encode_message,
    observation_of,
    parse_result,
    server_error,
    validated,
)
from guerdon.envs.client.transport import NetworkTransport, WebSocket, websocket_url
from guerdon.envs.pool.backend import PoolBackend, PoolCall, start_task
from guerdon.envs.wire import codecs
from guerdon.errors import (
    ConnectionLostError,
    EpisodeError,
    InvalidActionError,
    ServerError,
)
from guerdon.types.observation import Observation

__all__ = ["RemoteBackend"]

# The server's own limits and the pool's clock bound an answer; the session need not.
LONG_S = 1e6


class RemoteBackend(PoolBackend):
    """A pool's environments on a server, a session each.

    Steps of many sessions share one connection if the server accepts the sub-protocol
    `guerdon.batch.v1`; otherwise each session has a connection of its own.

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
        self._n = n
        self._connect: dict[str, Any] = {
            "url": websocket_url(url),
            "token": check_token(token),
            "connect_timeout_s": connect_timeout_s,
        }
        transport = NetworkTransport(subprotocols=list(codecs()))
        self._connector = Connector(transport=transport, **self._connect)
        self._observation_type = observation_type
        self._sessions: _Sessions | None = None

    async def open(self) -> None:
        """Connect, every slot if each has a connection of its own."""
        socket = await self._connector.connect()
        if getattr(socket, "subprotocol", None) is None:
            new_session = partial(RemoteSession, reached=True, **self._connect)
            self._sessions = _Separate(self._observation_type, new_session, self._n)
        else:
            self._sessions = _Batched(self._observation_type, self._connector)
        await self._sessions.open(socket)

    def submit(self, calls: Sequence[PoolCall]) -> None:
        """Begin calls, each in its session."""
        assert self._sessions is not None
        for call in calls:
            self._sessions.begin(call)

    def give_up(self, call: PoolCall) -> None:
        """Drop the session; the server closes its environment, and the next reset opens another."""
        assert self._sessions is not None
        self._sessions.give_up(call)

    async def close(self) -> None:
        """End every session."""
        sessions, self._sessions = self._sessions, None
        if sessions is not None:
            await sessions.close()


class _Sessions(ABC):
    """The sessions of a pool's slots on one server."""

    def __init__(self, observation_type: type[Observation]) -> None:
        self._observation_type = observation_type
        self._tasks: set[asyncio.Task[Any]] = set()
        self._broken: set[int] = set()  # slots whose environment raised

    @abstractmethod
    async def open(self, socket: WebSocket) -> None:
        """Prepare; `socket` is a connection that was just opened."""

    @abstractmethod
    def begin(self, call: PoolCall) -> None:
        """Begin a call."""

    @abstractmethod
    def give_up(self, call: PoolCall) -> None:
        """Abandon a call; the slot's next reset has a new session."""

    @abstractmethod
    async def close(self) -> None:
        """End every session."""

    def _check_usable(self, slot: int) -> None:
        if slot in self._broken:
            raise EpisodeError("the last call failed; reset it to make a new environment")

    def _failed(self, call: PoolCall, error: Exception) -> None:
        code = error.code if isinstance(error, ServerError) else ""
        if code == "EXECUTION_ERROR":
            self._broken.add(call.slot)
        call.finish(None, InvalidActionError(str(error)) if code == "VALIDATION_ERROR" else error)


def _request(call: PoolCall) -> tuple[str, Any]:
    """Return the kind and the data of a call."""
    if not call.is_reset:
        return "step", call.action
    data: Any = dict(call.extra or {})
    if call.seed is not None:
        data["seed"] = call.seed
    return "reset", data


class _Batched(_Sessions):
    """Sessions that share one connection, which is opened again by the reset after its loss."""

    def __init__(self, observation_type: type[Observation], connector: Connector) -> None:
        super().__init__(observation_type)
        self._connector = connector
        self._connection: BatchConnection | None = None
        self._numbers: dict[int, int] = {}  # the sessions' numbers, by slot
        self._calls: dict[int, PoolCall] = {}  # those that are running, by the session's number
        self._waiting: list[PoolCall] = []  # resets that wait for a connection

    async def open(self, socket: WebSocket) -> None:
        connection = BatchConnection(
            socket, self._connector.url, answered=self._answered, lost=self._lost
        )
        await connection.open()
        self._connection = connection

    def begin(self, call: PoolCall) -> None:
        try:
            if self._connection is None:
                self._wait(call)
            else:
                self._send(call, self._connection)
        except Exception as error:
            self._failed(call, error)

    def _send(self, call: PoolCall, connection: BatchConnection) -> None:
        slot = call.slot
        number = self._numbers.get(slot)
        if call.is_reset and (number is None or slot in self._broken):
            self._drop(slot)  # a new session has a new environment
            self._numbers[slot] = number = connection.new_number()
        self._check_usable(slot)
        if number is None:
            raise ConnectionLostError(
                f"the slot has no session on {self._connector.url}; reset() begins one"
            )
        connection.call(number, *_request(call))
        self._calls[number] = call

    def _wait(self, call: PoolCall) -> None:
        if not call.is_reset:
            url = self._connector.url
            raise ConnectionLostError(f"there is no connection to {url}; reset() opens one")
        self._waiting.append(call)
        if len(self._waiting) == 1:
            start_task(self._reopen(), self._tasks)

    async def _reopen(self) -> None:
        failure: Exception | None = None
        try:
            socket = await self._connector.connect()
            if getattr(socket, "subprotocol", None) is None:
                await socket.close()
                raise ConnectionLostError(f"{self._connector.url} no longer accepts batches")
            await self.open(socket)
        except Exception as error:
            failure = error
        calls, self._waiting = self._waiting, []
        for call in calls:
            if failure is not None:
                call.finish(None, failure)
            elif not call.over:
                self.begin(call)

    def _answered(self, number: int, kind: str, data: Any) -> None:
        call = self._calls.pop(number, None)
        error = None
        if kind == "error":
            error = server_error({"message": None, **data, "code": str(data.get("code", ""))})
            if number is None:
                raise ValueError(f"it refused a frame: {error}")
            if error.code in FATAL:
                self._forget(number)
        if call is None:  # it was given up, or its session was ended by the server
            return
        try:
            if error is not None:
                raise error
            observation = validated(
                data, self._observation_type, what="an observation", server="the server"
            )
        except Exception as problem:
            self._failed(call, problem)
        else:
            call.finish(observation)

    def _forget(self, number: int) -> None:
        for slot in [slot for slot, each in self._numbers.items() if each == number]:
            del self._numbers[slot]

    def _lost(self, error: ConnectionLostError) -> None:
        self._connection = None
        self._numbers.clear()
        self._broken.clear()
        calls, self._calls = list(self._calls.values()), {}
        for call in calls:
            if call.is_reset and call.running is None:
                call.running = "again"
                self.begin(call)
            else:
                call.finish(None, error)

    def _drop(self, slot: int) -> None:
        """Close a slot's session, if it has one."""
        self._broken.discard(slot)
        number = self._numbers.pop(slot, None)
        if number is not None:
            self._calls.pop(number, None)
            if self._connection is not None:
                self._connection.call(number, "close")

    def give_up(self, call: PoolCall) -> None:
        self._drop(call.slot)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


class _Separate(_Sessions):
    """Sessions with a connection each, for servers that don't know batches."""

    def __init__(
        self,
        observation_type: type[Observation],
        new_session: Callable[..., RemoteSession],
        n: int,
    ) -> None:
        super().__init__(observation_type)
        self._new_session = new_session
        self._sessions = [new_session() for _ in range(n)]
        self._dropping: set[asyncio.Task[Any]] = set()

    async def open(self, socket: WebSocket) -> None:
        self._sessions[0].adopt(socket)
        try:
            async with asyncio.TaskGroup() as group:
                for session in self._sessions:
                    group.create_task(session.open())
        except ExceptionGroup as failed:
            await self.close()
            raise failed.exceptions[0] from None

    def begin(self, call: PoolCall) -> None:
        call.running = start_task(self._play(call), self._tasks)

    async def _play(self, call: PoolCall) -> None:
        session = self._sessions[call.slot]
        try:
            kind, data = _request(call)
            message = encode_message(kind, data)
            if call.is_reset:
                if call.slot in self._broken:  # a new session has a new environment
                    await session.drop()
                    self._broken.discard(call.slot)
                payload = await session.request_or_reconnect(message, "observation", LONG_S)
            else:
                self._check_usable(call.slot)
                payload = await session.request(message, "observation", LONG_S)
            result = parse_result(payload)
            call.finish(observation_of(result, self._observation_type, server="the server"))
        except Exception as error:
            self._failed(call, error)

    def give_up(self, call: PoolCall) -> None:
        call.running.cancel()
        session = self._sessions[call.slot]
        self._sessions[call.slot] = self._new_session()
        start_task(session.drop(), self._dropping)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._dropping, return_exceptions=True)
        sessions, self._sessions = self._sessions, []
        await asyncio.gather(*(session.close() for session in sessions), return_exceptions=True)
