"""`RemoteBackend`: a pool's environments on servers."""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any

from guerdon._validation import check_token, shown
from guerdon.envs.client.batches import BatchConnection
from guerdon.envs.client.session import (
    FATAL,
    Connector,
    RemoteSession,
    encode_message,
    observation_of,
    parse_result,
    server_error,
    validated_observation,
)
from guerdon.envs.client.shared_config import SharedConfig
from guerdon.envs.client.transport import NetworkTransport, WebSocket, http_url, websocket_url
from guerdon.envs.pool.backend import PoolBackend, PoolCall, start_task
from guerdon.envs.runner import ResetArgumentError
from guerdon.envs.wire import JSON, codecs
from guerdon.errors import (
    ConnectionLostError,
    EpisodeError,
    InvalidActionError,
    InvalidArgumentError,
    InvalidObservationError,
    ServerError,
)
from guerdon.types.observation import Observation

__all__ = ["RemoteBackend"]

# The server's own limits and the pool's clock bound an answer; the session need not.
LONG_S = 1e6
# Seconds between two attempts to reach a server while others are connected.
TRY_S = 1.0
# The code of a server that has no room for a session, and those of an action that it refuses.
FULL = "CAPACITY_REACHED"
REFUSED = ("VALIDATION_ERROR", "INVALID_JSON")


class RemoteBackend(PoolBackend):
    """A pool's environments on one server or several, a session each.

    Steps of many sessions share one connection if the server accepts the sub-protocol
    `guerdon.batch.v1`; otherwise each session has a connection of its own. Several servers must
    accept it. Each has a share of the slots that is proportional to the sessions that were free
    when it was connected. A server that is lost fails its slots alone; at their next reset they
    move to the others, and back at a later reset once it is reachable again.

    Example:
        >>> from guerdon import EnvPool, Observation
        >>> from guerdon.envs import RemoteBackend
        >>> class Board(Observation):
        ...     cells: list[int]
        >>> backend = RemoteBackend("localhost:8000", 8, observation_type=Board)
        >>> len(EnvPool(backend=backend, n=8))
        8

    Args:
        url: The server's address, or several.
        n: How many slots there are.
        observation_type: What to make of observations.
        token: The servers' token.
        connect_timeout_s: Seconds that connecting may take.

    Raises:
        InvalidArgumentError: An address is invalid, or is given twice.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        n: int,
        *,
        observation_type: type[Observation],
        token: str | None = None,
        connect_timeout_s: float = 10.0,
    ) -> None:
        urls = [http_url(each) for each in ([url] if isinstance(url, str) else url)]
        if not urls or len(set(urls)) < len(urls):
            raise InvalidArgumentError(f"`url` must have each server once, got {shown(url)}")
        self.n: int = n
        self._urls = urls
        self._options: dict[str, Any] = {
            "token": check_token(token),
            "connect_timeout_s": connect_timeout_s,
        }
        self._observation_type = observation_type
        self._servers: list[_Sessions] = []
        self._home: list[_Sessions] = []  # by slot
        self._config: SharedConfig | None = None

    async def open(self) -> None:
        """Connect to every server."""
        self._config = SharedConfig(
            self._urls,
            lost=self._drop,
            token=self._options["token"],
            timeout_s=self._options["connect_timeout_s"],
        )
        opened: dict[int, _Sessions] = {}
        try:
            async with asyncio.TaskGroup() as group:
                for place in range(len(self._urls)):
                    group.create_task(self._connect(place, opened))
            self._servers = [opened[place] for place in sorted(opened)]
            self._home = [self._servers[0]] * self.n
            for slot in range(self.n):
                self._home[slot] = server = self._roomiest(self._servers)
                server.slots.add(slot)
            for server in self._servers:
                await server.start()
        except BaseException as error:  # also if it is cancelled
            self._servers = list(opened.values())
            await self.close()
            if isinstance(error, ExceptionGroup):
                raise error.exceptions[0] from None
            raise

    async def _connect(self, place: int, opened: dict[int, _Sessions]) -> None:
        address = websocket_url(self._urls[place])
        transport = NetworkTransport(subprotocols=list(codecs()))
        connector = Connector(address, transport=transport, **self._options)
        socket = await connector.connect()
        if getattr(socket, "subprotocol", None) is not None:
            batched = _Batched(
                self._observation_type,
                connector,
                join=partial(self._join, place),
                again=lambda call: self.submit([call]),
            )
            await batched.open(socket)
            opened[place] = batched
            return
        if len(self._urls) > 1:
            await socket.close()
            raise ConnectionLostError(
                f"{connector.url} doesn't accept {JSON}, which a pool on several servers needs"
            )
        separate = Connector(address, reached=True, **self._options)
        opened[place] = _Separate(self._observation_type, partial(RemoteSession, separate), socket)

    async def _join(self, place: int) -> None:
        """Bring a server that was connected to the configuration of the others."""
        if self._config is not None and (self._config.is_known or len(self._urls) > 1):
            await self._config.join(place)

    def _drop(self, place: int) -> None:
        for server in self._servers[place : place + 1]:  # none if the pool is being closed
            server.drop()

    def _roomiest(self, servers: Sequence[_Sessions]) -> _Sessions:
        """Return the server that lacks the most slots of its share."""
        return max(servers, key=lambda each: self._share(each, servers) - len(each.slots))

    def _share(self, server: _Sessions, servers: Sequence[_Sessions]) -> int:
        """Return how many slots a server should have, in proportion to its room."""
        return math.ceil(self.n * server.room / (sum(each.room for each in servers) or 1))

    def _place(self, slot: int) -> _Sessions:
        """Return the server for the next episode of a slot."""
        home = self._home[slot]
        if len(self._servers) == 1:
            return home
        for server in self._servers:
            server.try_to_connect()
        connected = [each for each in self._servers if each.is_connected]
        if not connected:
            return home  # which waits for it
        if home.refused_at > -math.inf and not home.has_session(slot):
            server = min(connected, key=lambda each: each.refused_at)
        elif home.is_connected and len(home.slots) <= self._share(home, connected):
            return home
        else:
            server = self._roomiest(connected)
            if home.is_connected and len(server.slots) >= self._share(server, connected):
                return home
        home.leave(slot)
        home.slots.discard(slot)
        server.slots.add(slot)
        self._home[slot] = server
        return server

    def submit(self, calls: Sequence[PoolCall]) -> None:
        """Begin calls, each in its session."""
        for call in calls:
            server = self._place(call.slot) if call.is_reset else self._home[call.slot]
            server.begin(call)

    def give_up(self, call: PoolCall) -> None:
        """Drop the session; the server closes its environment, and the next reset opens another."""
        self._home[call.slot].give_up(call)

    async def update_config(
        self, change: Mapping[str, Any], *, version: str | None = None
    ) -> dict[str, Any]:
        """Change the reward configuration of all servers, or of none; see `SharedConfig.update`."""
        assert self._config is not None
        if any(isinstance(each, _Separate) for each in self._servers):
            raise InvalidArgumentError(
                f"{self._urls[0]} doesn't accept {JSON}; use HTTPEnvClient.update_config"
            )
        return await self._config.update(change, version=version)

    async def close(self) -> None:
        """End every session."""
        servers, self._servers = self._servers, []
        config, self._config = self._config, None
        await asyncio.gather(*(each.close() for each in servers), return_exceptions=True)
        if config is not None:
            await config.close()


class _Sessions(ABC):
    """The sessions of a pool's slots on one server.

    Attributes:
        slots: The slots.
        room: How many sessions it had room for when it was connected, as far as is known.
        refused_at: When it had no room for a session, on the monotonic clock; -infinity if it has
            opened one since. A slot that was refused tries the one for which that is longest ago.
        is_connected: Whether it can be reached, as far as is known.
    """

    room = 1
    refused_at = -math.inf
    is_connected = True

    def __init__(self, observation_type: type[Observation]) -> None:
        self.slots: set[int] = set()
        self._observation_type = observation_type
        self._tasks: set[asyncio.Task[Any]] = set()
        self._broken: set[int] = set()  # slots whose environment raised

    async def start(self) -> None:  # noqa: B027
        """Prepare the slots."""

    def try_to_connect(self) -> None:  # noqa: B027
        """Try once to connect, soon, if there is no connection."""

    def drop(self) -> None:  # noqa: B027
        """Close the connection; the next one joins the configuration of the others first."""

    def has_session(self, slot: int) -> bool:
        """Whether a slot has a session, as far as is known."""
        return True

    def leave(self, slot: int) -> None:  # noqa: B027
        """Close the session of a slot that moves to another server."""

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
        is_lost = isinstance(
            error, InvalidObservationError
        )  # which the episode can't go on without
        if isinstance(error, ServerError) and "unknown_argument" in error.details:
            error = ResetArgumentError(str(error))
        if call.is_reset or is_lost or code == "EXECUTION_ERROR":
            self._broken.add(call.slot)
        elif code in REFUSED or isinstance(error, InvalidArgumentError):
            error = InvalidActionError(str(error))  # the environment didn't receive it
        call.finish(None, error)


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

    def __init__(
        self,
        observation_type: type[Observation],
        connector: Connector,
        *,
        join: Callable[[], Awaitable[None]],
        again: Callable[[PoolCall], None],
    ) -> None:
        super().__init__(observation_type)
        self._connector = connector
        self._join = join
        self._again = again
        self._reopening: asyncio.Task[None] | None = None
        self._tried_at = -math.inf
        self._connection: BatchConnection | None = None
        self._numbers: dict[int, int] = {}  # the sessions' numbers, by slot
        self._calls: dict[int, PoolCall] = {}  # those that are running, by the session's number
        self._waiting: list[PoolCall] = []  # resets that wait for a connection

    async def open(self, socket: WebSocket) -> None:
        """Use a connection that was just opened."""
        connection = BatchConnection(
            socket, self._connector.url, answered=self._answered, lost=self._lost
        )
        await connection.open()
        try:
            await self._join()
        except BaseException:
            await connection.close()
            raise
        if connection.is_open:
            self._connection, self.room = connection, connection.free_sessions

    @property
    def is_connected(self) -> bool:  # type: ignore[override]
        return self._connection is not None

    def try_to_connect(self) -> None:
        now = monotonic()
        if self._connection is None and now - self._tried_at > TRY_S:
            self._tried_at = now
            self._reopen_soon(retries=False)

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
            self.leave(slot)  # a new session has a new environment
            if len(self._numbers) >= connection.max_calls:
                text = f"a connection has at most {connection.max_calls} sessions"
                raise server_error({"message": text, "code": FULL})
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
        self._reopen_soon(retries=True)

    def _reopen_soon(self, *, retries: bool) -> None:
        if self._reopening is None or self._reopening.done():
            self._reopening = start_task(self._reopen(retries), self._tasks)

    async def _reopen(self, retries: bool) -> None:
        failure: Exception = ConnectionLostError(f"{self._connector.url} closed the connection")
        try:
            socket = await self._connector.connect(retries=retries)
            if getattr(socket, "subprotocol", None) is None:
                await socket.close()
                raise ConnectionLostError(f"{self._connector.url} no longer accepts {JSON}")
            await self.open(socket)
        except Exception as error:
            failure = error
        if self._connection is None and self._waiting and not retries:
            await self._reopen(retries=True)  # resets have begun to wait meanwhile
            return
        calls, self._waiting = self._waiting, []
        for call in calls:
            if self._connection is None:
                call.finish(None, failure)
            elif not call.over:
                self.begin(call)

    def _answered(self, number: int, kind: str, data: Any) -> None:
        error = None
        if kind == "error":
            error = self._read_error(number, data)
        elif kind != "observation":
            raise ValueError(f"an answer of the kind {kind!r:.20}")
        # An answer that is invalid ends the connection, and then fails the call like all others.
        call = self._calls.pop(number, None)
        if call is None:  # it was given up, or its session was ended by the server
            return
        try:
            if error is not None:
                raise error
            observation = validated_observation(data, self._observation_type, server="the server")
        except Exception as problem:
            self._failed(call, problem)
        else:
            if len(self._numbers) > self.room:
                self.room, self.refused_at = len(self._numbers), -math.inf
            call.finish(observation)

    def _read_error(self, number: int | None, data: Any) -> ServerError:
        error = server_error({"message": None, **data, "code": str(data.get("code", ""))})
        if number is None:
            raise ValueError(f"an error for a whole frame: {error}")
        if error.code in FATAL:  # the session has ended
            for slot in [slot for slot, each in self._numbers.items() if each == number]:
                del self._numbers[slot]
        if error.code == FULL:
            self.room, self.refused_at = len(self._numbers), monotonic()
        return error

    def _lost(self, error: ConnectionLostError) -> None:
        self._connection = None
        self._numbers.clear()
        self._broken.clear()
        calls, self._calls = list(self._calls.values()), {}
        for call in calls:
            if call.is_reset and call.running is None:
                call.running = "again"
                self._again(call)
            else:
                call.finish(None, error)

    def drop(self) -> None:
        if self._connection is not None:
            self._connection.abort()
            url = self._connector.url
            self._lost(ConnectionLostError(f"{url} may have another configuration of the reward"))

    def has_session(self, slot: int) -> bool:
        return slot in self._numbers

    def leave(self, slot: int) -> None:
        self._broken.discard(slot)
        number = self._numbers.pop(slot, None)
        if number is not None:
            self._calls.pop(number, None)
            if self._connection is not None:
                self._connection.call(number, "close")

    def give_up(self, call: PoolCall) -> None:
        self.leave(call.slot)

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
        new_session: Callable[[], RemoteSession],
        socket: WebSocket,
    ) -> None:
        super().__init__(observation_type)
        self._new_session = new_session
        self._sessions = [new_session()]
        self._sessions[0].adopt(socket)
        self._dropping: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        self._sessions += [self._new_session() for _ in range(len(self.slots) - 1)]
        async with asyncio.TaskGroup() as group:
            for session in self._sessions:
                group.create_task(session.open())

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
