"""`Wire`: one session with a server: questions and their answers, strictly in turn.

The protocol has no numbers on its messages: the next answer belongs to the oldest question. A
question whose answer nobody waited for is therefore remembered, and its answer thrown away when
it comes, so that it is never taken for the next one's.
"""

from __future__ import annotations

import asyncio
import ipaddress
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic_core import from_json
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import (
    ConnectionClosed,
    InvalidMessage,
    InvalidStatus,
    WebSocketException,
)
from websockets.protocol import State

from guerdon.errors import (
    ClientTimeoutError,
    ConnectionLostError,
    InvalidArgumentError,
    ServerError,
)

__all__ = ["Wire", "http_url", "is_loopback", "websocket_url"]

# After these the server has closed the session.
FATAL = {"CAPACITY_REACHED", "FACTORY_ERROR", "SESSION_ERROR"}

# Seconds between two tries to reach a server that may be on its way back.
RETRY_S = 0.1


def websocket_url(url: str) -> str:
    """The address of a server's sessions.

    Example:
        >>> websocket_url("http://localhost:8000/"), websocket_url("https://host/env")
        ('ws://localhost:8000/ws', 'wss://host/env/ws')

    Raises:
        InvalidArgumentError: It is no address of a server.
    """
    address = http_url(url)
    return f"ws{address.removeprefix('http')}/ws"


def http_url(url: str) -> str:
    """The address of a server's HTTP face, without a slash at its end.

    Example:
        >>> http_url("localhost:8000"), http_url("wss://host/env/")
        ('http://localhost:8000', 'https://host/env')

    Raises:
        InvalidArgumentError: It is no address of a server.
    """
    scheme, colon, rest = url.strip().partition("://")
    rest = rest.rstrip("/")
    if not colon:
        scheme, rest = "http", scheme.rstrip("/")
    known = {"http": "http", "ws": "http", "https": "https", "wss": "https"}.get(scheme.lower())
    try:
        parts = urlsplit(f"//{rest}")
        found = known is not None and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        found = None
    if not found:
        raise InvalidArgumentError(
            f"{url!r} is no address of a server; write one such as http://localhost:8000"
        )
    return f"{known}://{rest}"


def is_loopback(url: str) -> bool:
    """Whether an address is of this very machine, to which no proxy leads."""
    name = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


class Wire:
    """One session with a server.

    Args:
        url: The server's address, see `websocket_url`.
        token: What to send as bearer token.
        connect_timeout_s: Seconds that connecting may take.
        max_message_bytes: The largest message to accept.
        keepalive_s: Seconds between two pings, and that one may go unanswered.
        patient: Whether a server that was reached before and is not there any more may come back.
        reached: Whether the server was reached before, by another session.

    Attributes:
        session: How many connections, and so sessions, there have been.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        connect_timeout_s: float = 10.0,
        max_message_bytes: int = 100 * 2**20,
        keepalive_s: float | None = 20.0,
        patient: bool = True,
        reached: bool = False,
    ) -> None:
        self.url = url
        self._patient = patient
        self._headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        self._connect_timeout_s = connect_timeout_s
        self._max_message_bytes = max_message_bytes
        self._keepalive_s = keepalive_s
        self._socket: ClientConnection | None = None
        self._proxy: Literal[True] | None = None if is_loopback(url) else True
        self._turn = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None  # that of the connection
        self._owed = 0  # answers that are still to come, and nobody waits for
        self._reached = reached
        self._sent = False  # the question that is being asked
        self.session = 0

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, for all that is known."""
        return self._socket is not None

    async def ready(self) -> None:
        """Have a connection on which no answer is owed; where there is none, make one.

        A server that was reached before may be on its way back: then this tries again, as long
        as connecting may take.

        Raises:
            ConnectionLostError: Nobody listens there, or it is no such server.
            ClientTimeoutError: Nobody answered in time.
            ServerError: The server refused, as with a wrong token.
        """
        async with self._turn:
            socket = self._socket
            elsewhere = self._loop is not asyncio.get_running_loop()
            if socket is None or self._owed or elsewhere or socket.state is not State.OPEN:
                await self.drop()
                await self._open()

    async def _open(self) -> None:
        limit = self._connect_timeout_s
        refused: Exception | None = None
        try:
            async with asyncio.timeout(limit):
                while self._socket is None:
                    try:
                        self._socket = await self._connected()
                    except (OSError, InvalidMessage) as error:
                        if not (self._reached and self._patient):
                            raise
                        refused = error
                        await asyncio.sleep(RETRY_S)
            self._reached = True
            self.session += 1
            self._loop = asyncio.get_running_loop()
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
            said = (response.body or b"").decode(errors="replace")[:500]
            raise ServerError(
                f"{self.url} refused: {said}", code=str(response.status_code)
            ) from error
        except (OSError, WebSocketException) as error:
            raise ConnectionLostError(f"can't connect to {self.url}: {error}") from error

    async def _connected(self) -> ClientConnection:
        return await connect(
            self.url,
            additional_headers=self._headers,
            open_timeout=None,
            max_size=self._max_message_bytes,
            ping_interval=self._keepalive_s,
            ping_timeout=self._keepalive_s,
            close_timeout=2.0,
            compression=None,  # it halves the throughput
            proxy=self._proxy,
        )

    async def ask(self, text: bytes, kind: str, timeout_s: float) -> Any:
        """Send a message, and wait for its answer.

        Args:
            text: The message.
            kind: The type that its answer has.
            timeout_s: Seconds to wait; afterwards the session goes on, and the late answer is
                thrown away.

        Returns:
            The answer's ``data``.

        Raises:
            ServerError: The server said that something went wrong.
            ClientTimeoutError: The answer didn't come in time.
            ConnectionLostError: There is no connection, or what came is no such answer.
        """
        async with self._turn:
            self._sent = False
            try:
                async with asyncio.timeout(timeout_s):
                    answer = await self._exchange(text)
            except TimeoutError as error:
                sent = self._sent
                said = (
                    "its late answer will be thrown away"
                    if sent
                    else "this was not sent: an earlier answer is still to come"
                )
                raise ClientTimeoutError(
                    f"{self.url} didn't answer within {timeout_s:g} s; {said}",
                    seconds=timeout_s,
                    sent=sent,
                ) from error
            told, data = await self._opened(answer)
            if told == "error":
                raise self._error(data)
            if told != kind:
                await self.drop()
                raise ConnectionLostError(f"{self.url} answered with {told!r:.40}, not {kind!r}")
            return data

    async def ask_anew(self, text: bytes, kind: str, timeout_s: float) -> Any:
        """Send a message that needs no session of before, over a new connection where need be.

        Where the connection turns out to be lost, that is tried once more. Args, returns and
        raises as `ready` and `ask`.
        """
        await self.ready()
        try:
            return await self.ask(text, kind, timeout_s)
        except ConnectionLostError:
            if self.is_open:
                raise
        await self.ready()
        return await self.ask(text, kind, timeout_s)

    async def _exchange(self, text: bytes) -> bytes:
        socket = self._socket
        if socket is None:
            raise ConnectionLostError(f"there is no connection to {self.url}; reset() makes one")
        if self._loop is not asyncio.get_running_loop():
            raise ConnectionLostError(
                f"the connection to {self.url} belongs to another event loop; reset() makes one"
            )
        try:
            while self._owed:
                kind, data = await self._opened(await socket.recv(decode=False))
                if kind == "error" and data["code"] in FATAL:
                    raise self._error(data)
                self._owed -= 1
            await socket.send(text, text=True)
            self._sent = True
            return await socket.recv(decode=False)
        except ConnectionClosed as error:
            last = await self._last(socket)
            await self.drop()
            if last is not None:
                return last
            raise ConnectionLostError(
                f"{self.url} closed the session ({error}); what it knew is gone, and reset() "
                "begins a new one"
            ) from error
        except asyncio.CancelledError:
            if self._sent:
                self._owed += 1
            elif self._owed == 0:  # whether it went out can't be known
                self._socket = None
                socket.transport.abort()
            raise

    async def _last(self, socket: ClientConnection) -> bytes | None:
        """Why the server ended the session, where that is the last thing that it said."""
        said = b""
        try:
            while True:
                said = await socket.recv(decode=False)
        except ConnectionClosed:
            return said if any(f'"{code}"'.encode() in said for code in FATAL) else None

    async def _opened(self, answer: bytes) -> tuple[str, Any]:
        """A message's type and data."""
        try:
            message = from_json(answer)
            kind, data = message["type"], message["data"]
            if kind == "error":
                data = {"message": None, **data, "code": str(data.get("code", ""))}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            await self.drop()
            raise ConnectionLostError(
                f"{self.url} sent {answer[:80]!r}, which is no message of the protocol"
            ) from error
        if kind == "error" and data["code"] in FATAL:
            await self.drop()
        return kind, data

    def _error(self, data: dict[str, Any]) -> ServerError:
        errors = data.get("errors")
        known = errors if isinstance(errors, list) else ()
        return ServerError(str(data["message"]), code=str(data["code"]), errors=known, details=data)

    async def close(self) -> None:
        """Say goodbye, and close."""
        socket = self._socket
        if socket is not None and self._loop is asyncio.get_running_loop():
            try:
                async with asyncio.timeout(2.0):
                    await socket.send('{"type":"close"}', text=True)
            except (ConnectionClosed, TimeoutError):
                pass  # it has gone before us
        await self.drop()

    async def drop(self) -> None:
        """Close without a word; the server gives the session's place to another."""
        socket, self._socket = self._socket, None
        self._owed = 0
        if socket is None:
            return
        if self._loop is asyncio.get_running_loop():
            await socket.close()
        elif self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(socket.transport.abort)
