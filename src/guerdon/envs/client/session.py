"""`RemoteSession`: one session on a server, with one request at a time.

Messages of the protocol have no numbers: the next answer belongs to the oldest request. A request
that nothing waits for any longer, after a timeout for example, is therefore counted, and its answer
is discarded when it arrives, so that it is never taken for the answer to a later request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json
from websockets.exceptions import (
    ConnectionClosed,
    InvalidMessage,
    InvalidStatus,
    WebSocketException,
)

from guerdon._http import shown_url
from guerdon._validation import as_score, shown, summarize
from guerdon.envs.client.transport import NetworkTransport, WebSocket, WebSocketTransport
from guerdon.errors import (
    ClientTimeoutError,
    ConnectionLostError,
    InvalidArgumentError,
    InvalidObservationError,
    ServerError,
)
from guerdon.types.observation import Observation, StepResult, agree_on_truncation

ModelT = TypeVar("ModelT", bound=BaseModel)

# After an error with one of these codes the server has closed the session.
FATAL = {"CAPACITY_REACHED", "FACTORY_ERROR", "SESSION_ERROR"}

# Seconds between two attempts to connect to a server that may be restarting.
RETRY_S = 0.1


def encode_message(kind: str, data: Any) -> bytes:
    """Return a message to a server, as JSON.

    Example:
        >>> encode_message("step", {"text": "hi"})
        b'{"type":"step","data":{"text":"hi"}}'

    Raises:
        InvalidArgumentError: `data` is not JSON-serializable.
    """
    if isinstance(data, BaseModel):
        data = data.model_dump(mode="json")
    try:
        return to_json({"type": kind, "data": data}, inf_nan_mode="constants")
    except (PydanticSerializationError, UnicodeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{kind} is not JSON-serializable: {error}") from error


def parse_result(payload: Any) -> StepResult[dict[str, Any]]:
    """Parse the answer to a reset or a step, and check that the protocol allows it.

    Newer servers send the metadata inside the observation and beside it, older ones do not send it.

    Example:
        >>> result = parse_result({"observation": {"echoed": "hi"}, "reward": True, "done": False})
        >>> result.observation, result.reward, result.done
        ({'echoed': 'hi'}, 1.0, False)

    Raises:
        ConnectionLostError: It is not an answer of the protocol.
        InvalidObservationError: The reward is not a finite number, or the metadata is not an
            object.
    """
    observation = payload.get("observation") if isinstance(payload, dict) else None
    if not isinstance(observation, dict):
        raise ConnectionLostError(f"the server's answer has no observation: {payload!r:.80}")
    metadata = payload.get("metadata") or observation.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise InvalidObservationError(f"the server's metadata is not an object: {metadata!r:.80}")
    reward = payload.get("reward")
    if reward is not None and (reward := as_score(reward)) is None:
        got = shown(payload["reward"])
        raise InvalidObservationError(f"the server's `reward` must be a finite number, got {got}")
    return StepResult(observation, reward, bool(payload.get("done", False)), metadata)


def observation_of(
    result: StepResult[dict[str, Any]], kind: type[ModelT], *, server: str
) -> ModelT:
    """Return the observation of a result as a model, with its reward, done and metadata.

    Raises:
        InvalidObservationError: The fields don't fit the model.
    """
    fields = {
        **result.observation,
        "reward": result.reward,
        "done": result.done,
        "metadata": result.metadata,
    }
    return validated_observation(fields, kind, server=server)


def validated_observation(fields: Any, kind: type[ModelT], *, server: str) -> ModelT:
    """Return an observation that a server sent with its reward, done and metadata as a model.

    Raises:
        InvalidObservationError: The fields don't fit the model.
    """
    made = validated(fields, kind, what="an observation", server=server)
    if isinstance(made, Observation) and made.done:
        agree_on_truncation(made)
    return made


def validated(fields: Any, kind: type[ModelT], *, what: str, server: str) -> ModelT:
    """Return what a server sent as a model.

    Args:
        fields: What it sent.
        kind: The model's class.
        what: What it is, for the error.
        server: The server's address or name, for the error.

    Raises:
        InvalidObservationError: The fields don't fit the model.
    """
    try:  # as `model_validate`, in two thirds of its time
        made: ModelT = kind.__pydantic_validator__.validate_python(fields)
        return made
    except ValidationError as error:
        raise InvalidObservationError(
            f"{shown_url(server)} sent {what} that is not a {kind.__name__}: {summarize(error)}"
        ) from error


class Connector:
    """Opens connections to one server.

    Args:
        url: The address, see `websocket_url`.
        token: The bearer token.
        transport: Opens the WebSockets; by default over the network.
        connect_timeout_s: Seconds to wait for a connection.
        retries: Whether connecting to a server that was reached before is retried.
        reached: Whether the server was reached before.

    Attributes:
        url: The address without secrets.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        transport: WebSocketTransport | None = None,
        connect_timeout_s: float = 10.0,
        retries: bool = True,
        reached: bool = False,
    ) -> None:
        self._url, self.url = url, shown_url(url)
        self._transport = transport or NetworkTransport()
        self._headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        self._connect_timeout_s = connect_timeout_s
        self._retries = retries
        self._reached = reached

    async def connect(self, *, retries: bool = True) -> WebSocket:
        """Open a connection; the exceptions are those of `RemoteSession.open`."""
        limit, retries = self._connect_timeout_s, retries and self._retries
        refused: Exception | None = None
        try:
            async with asyncio.timeout(limit):
                while True:
                    try:
                        socket = await self._transport.connect(self._url, self._headers)
                    except (OSError, InvalidMessage) as error:
                        if not (self._reached and retries):
                            raise
                        refused = error
                        await asyncio.sleep(RETRY_S)
                    else:
                        self._reached = True
                        return socket
        except TimeoutError as error:
            if refused is not None:
                raise ConnectionLostError(
                    f"can't connect to {self.url} for {limit:g} s: {refused}"
                ) from refused
            raise ClientTimeoutError(
                f"no connection to {self.url} within {limit:g} s", seconds=limit
            ) from error
        except InvalidStatus as error:
            response = error.response
            reason = (response.body or b"").decode(errors="replace")[:500]
            raise ServerError(
                f"{self.url} refused: {reason}", code=str(response.status_code)
            ) from error
        except (OSError, WebSocketException) as error:
            raise ConnectionLostError(f"can't connect to {self.url}: {error}") from error


class _TimeLimit:
    """`asyncio.timeout` for one request after another, with one timer for all of them.

    A timer for each would take longer than anything else that a session does for a request.
    """

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[Any] | None = None  # that of the present request
        self._end = 0.0  # of the present request, on the event loop's clock
        self._cancelled_before = 0
        self._is_over = False

    def of(self, seconds: float) -> _TimeLimit:
        """Set the limit of the request in the ``with`` block that begins."""
        loop = asyncio.get_running_loop()
        self._end = loop.time() + seconds
        if self._timer is None or self._timer.when() > self._end:
            self.stop_timer()
            self._timer = loop.call_at(self._end, self._look, loop)
        return self

    def __enter__(self) -> None:
        self._task = task = asyncio.current_task()
        assert task is not None
        self._cancelled_before = task.cancelling()
        self._is_over = False

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: Any) -> None:
        task, self._task = self._task, None
        assert task is not None
        is_ours = self._is_over and task.uncancel() <= self._cancelled_before
        if is_ours and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._task is None:
            return
        if loop.time() < self._end:  # a later request has begun
            self._timer = loop.call_at(self._end, self._look, loop)
        else:
            self._is_over = True
            self._task.cancel()

    def stop_timer(self) -> None:
        """Stop the timer, which may otherwise go on after the last request."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class RemoteSession:
    """One session on a server.

    Args:
        connector: Opens its connections.

    Attributes:
        url: The address without secrets.
        number: How many connections, and thus sessions, it has opened.
        environment_id: The environment's name, if the server sent it with the handshake.
    """

    def __init__(self, connector: Connector) -> None:
        self.url = connector.url
        self.number = 0
        self.environment_id: str | None = None
        self._connector = connector
        self._socket: WebSocket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # of the socket
        self._turn = asyncio.Lock()
        self._unanswered = 0  # answers that are still expected, and that nothing waits for
        self._sent = False  # whether the present request is sent
        self._limit = _TimeLimit()

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._socket is not None

    async def open(self) -> None:
        """Connect, unless there is a connection on which no answer is outstanding.

        Connecting to a server that was reached before is retried until `connect_timeout_s`: it
        may be restarting.

        Raises:
            ConnectionLostError: Nothing listens there, or it isn't such a server.
            ClientTimeoutError: There was no connection in time.
            ServerError: The server refused, for example because of a wrong token.
        """
        async with self._turn:
            socket = self._socket
            elsewhere = self._loop is not asyncio.get_running_loop()
            if socket is None or self._unanswered or elsewhere or not socket.is_open:
                await self.drop()
                self.adopt(await self._connector.connect())

    def adopt(self, socket: WebSocket) -> None:
        """Go on with a connection that was just opened."""
        self._socket, self._loop = socket, asyncio.get_running_loop()
        # Not of every transport, and not of servers of other libraries.
        self.environment_id = getattr(socket, "environment_id", None)
        self.number += 1

    async def request(self, message: bytes, kind: str, timeout_s: float) -> Any:
        """Send a message, and return the data of its answer.

        Args:
            message: The message.
            kind: The type of its answer.
            timeout_s: Seconds to wait. The session continues; a late answer is discarded.

        Raises:
            ServerError: The server reported an error.
            ClientTimeoutError: The answer didn't arrive in time.
            ConnectionLostError: There is no connection, or what arrived is not such an answer.
        """
        async with self._turn:
            self._sent = False
            try:
                with self._limit.of(timeout_s):
                    answer = await self._exchange(message)
            except TimeoutError as error:
                raise ClientTimeoutError(
                    f"{self.url} didn't answer within {timeout_s:g} s",
                    seconds=timeout_s,
                    sent=self._sent,
                ) from error
            received, data = await self._parse(answer)
            if received == "error":
                raise server_error(data)
            if received != kind:
                await self.drop()
                raise ConnectionLostError(
                    f"{self.url} answered with {received!r:.40}, not with {kind!r}"
                )
            return data

    async def request_or_reconnect(self, message: bytes, kind: str, timeout_s: float) -> Any:
        """Send a message that needs no earlier session, over a new connection if necessary.

        It is sent again if the connection is lost. Arguments, result and
        exceptions are those of `open` and `request`.
        """
        await self.open()
        try:
            return await self.request(message, kind, timeout_s)
        except ConnectionLostError:
            if self.is_open:
                raise
        await self.open()
        return await self.request(message, kind, timeout_s)

    async def _exchange(self, message: bytes) -> bytes:
        socket = self._socket
        if socket is None:
            raise ConnectionLostError(f"there is no connection to {self.url}; reset() opens one")
        if self._loop is not asyncio.get_running_loop():
            raise ConnectionLostError(
                f"the connection to {self.url} belongs to another event loop; reset() opens one"
            )
        try:
            while self._unanswered:
                kind, data = await self._parse(await socket.recv(decode=False))
                if kind == "error" and data["code"] in FATAL:
                    raise server_error(data)
                self._unanswered -= 1
            await socket.send(message, text=True)
            self._sent = True
            return await socket.recv(decode=False)
        except ConnectionClosed as error:
            last = await _last_error(socket)
            await self.drop()
            if last is not None:
                return last
            raise ConnectionLostError(
                f"{self.url} closed the session ({error}); its environment is gone, and reset() "
                "begins a new one"
            ) from error
        except asyncio.CancelledError:
            if self._sent:
                self._unanswered += 1
            elif self._unanswered == 0:  # it may have been sent in part
                self._socket = None
                socket.abort()
            raise

    async def _parse(self, answer: bytes) -> tuple[str, Any]:
        """Return the type and the data of a message; drop the connection if it is the last."""
        try:
            message = from_json(answer)
            kind, data = message["type"], message["data"]
            if kind == "error":
                data = {"message": None, **data, "code": str(data.get("code", ""))}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            await self.drop()
            raise ConnectionLostError(
                f"{self.url} sent {answer[:80]!r}, which is not a message of the protocol"
            ) from error
        if kind == "error" and data["code"] in FATAL:
            await self.drop()
        return kind, data

    async def close(self) -> None:
        """End the session with the protocol's ``close`` message."""
        socket = self._socket
        if socket is not None and self._loop is asyncio.get_running_loop():
            try:
                async with asyncio.timeout(2.0):
                    await socket.send(b'{"type":"close"}', text=True)
            except (ConnectionClosed, TimeoutError):
                pass  # the server closed it first, or doesn't read
        await self.drop()

    async def drop(self) -> None:
        """Close the connection without a message; the server ends the session."""
        socket, self._socket = self._socket, None
        limit, self._limit = self._limit, _TimeLimit()
        self._unanswered = 0
        if self._loop is asyncio.get_running_loop():
            limit.stop_timer()
            if socket is not None:
                await socket.close()
        elif self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(limit.stop_timer)
            if socket is not None:
                self._loop.call_soon_threadsafe(socket.abort)


async def _last_error(socket: WebSocket) -> bytes | None:
    """Return the error with which the server ended the session, if that is its last message."""
    message = b""
    try:
        while True:
            message = await socket.recv(decode=False)
    except ConnectionClosed:
        return message if any(f'"{code}"'.encode() in message for code in FATAL) else None


def server_error(data: Mapping[str, Any]) -> ServerError:
    """Return the exception for an error that a server has sent."""
    errors = data.get("errors")
    fields = errors if isinstance(errors, list) else ()
    return ServerError(str(data["message"]), code=data["code"], errors=fields, details=data)
