"""Transports: how a client reaches a server, over the network or in the same process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, Protocol, Self
from urllib.parse import unquote, urlsplit

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.frames import Close
from websockets.http11 import Response
from websockets.protocol import State

from guerdon._http import is_loopback_url, shown_url
from guerdon.envs.wire import NAME_HEADER
from guerdon.errors import InvalidArgumentError

__all__ = ["ASGITransport", "NetworkTransport", "WebSocket", "WebSocketTransport"]

# Seconds for the closing handshake of a WebSocket.
CLOSE_TIMEOUT_S = 2.0
# The most bytes of a message, by default.
MAX_MESSAGE = 100 * 2**20


def websocket_url(url: str) -> str:
    """Return the address of a server's sessions.

    Example:
        >>> websocket_url("http://localhost:8000/"), websocket_url("https://host/env")
        ('ws://localhost:8000/ws', 'wss://host/env/ws')

    Raises:
        InvalidArgumentError: `url` is not the address of a server.
    """
    return f"ws{http_url(url).removeprefix('http')}/ws"


def http_url(url: str) -> str:
    """Return the HTTP address of a server, without a trailing slash.

    Example:
        >>> http_url("localhost:8000"), http_url("wss://host/env/")
        ('http://localhost:8000', 'https://host/env')

    Raises:
        InvalidArgumentError: `url` is not the address of a server.
    """
    scheme, colon, rest = url.strip().partition("://")
    rest = rest.rstrip("/")
    if not colon:
        scheme, rest = "http", scheme.rstrip("/")
    known = {"http": "http", "ws": "http", "https": "https", "wss": "https"}.get(scheme.lower())
    try:
        parts = urlsplit(f"//{rest}")
        valid = known is not None and parts.hostname and (parts.port is None or parts.port > 0)
        valid = valid and not parts.query and not parts.fragment
    except ValueError:
        valid = None
    if not valid:
        raise InvalidArgumentError(
            f"{shown_url(url)!r} is not the address of a server, or has a query; an example is http://localhost:8000"
        )
    return f"{known}://{rest}"


class WebSocket(Protocol):
    """An open WebSocket; its methods raise ``websockets.exceptions.ConnectionClosed``."""

    @property
    def is_open(self) -> bool:
        """Whether it is open, as far as is known."""

    async def send(self, message: bytes, *, text: bool) -> None:
        """Send a message, in a text frame if `text`."""

    async def recv(self, decode: bool) -> bytes:
        """Return the next message; with ``decode=False`` as bytes."""

    async def close(self) -> None:
        """Close it with the closing handshake."""

    def abort(self) -> None:
        """Close it at once."""


class WebSocketTransport(Protocol):
    """Opens the WebSockets of an `EnvClient`."""

    async def connect(self, url: str, headers: Mapping[str, str]) -> WebSocket:
        """Open a WebSocket.

        Raises:
            OSError: Nothing listens there.
            websockets.exceptions.InvalidHandshake: The server refused.
        """


class NetworkTransport:
    """The default transport, over the network.

    Args:
        max_message_bytes: The largest message to accept.
        keepalive_s: Seconds between two pings, and for the answer to one; None for no pings.
        subprotocols: The sub-protocols to offer, which an `EnvClient` doesn't need.
    """

    def __init__(
        self,
        *,
        max_message_bytes: int = MAX_MESSAGE,
        keepalive_s: float | None = 20.0,
        subprotocols: Sequence[str] = (),
    ) -> None:
        self._options: dict[str, Any] = {
            "max_size": max_message_bytes,
            "ping_interval": keepalive_s,
            "ping_timeout": keepalive_s,
            "open_timeout": None,
            "close_timeout": CLOSE_TIMEOUT_S,
            "compression": None,  # it halves the throughput
            "subprotocols": list(subprotocols) or None,
        }

    async def connect(self, url: str, headers: Mapping[str, str]) -> WebSocket:
        """Open a WebSocket; see `WebSocketTransport.connect`."""
        socket: Any = await connect(
            url,
            create_connection=_NetworkWebSocket,
            additional_headers=headers,
            proxy=None if is_loopback_url(url) else True,
            **self._options,
        )
        return socket  # type: ignore[no-any-return]  # it is what create_connection made


class _NetworkWebSocket(ClientConnection):
    @property
    def is_open(self) -> bool:
        return self.state is State.OPEN

    @property
    def environment_id(self) -> str | None:
        """The environment's name, if the server sent it with the handshake."""
        names = self.response.headers.get_all(NAME_HEADER) if self.response is not None else []
        return unquote(names[0]) if names else None

    def abort(self) -> None:
        self.transport.abort()


class ASGITransport(httpx.ASGITransport):
    """Connects clients to an ASGI application in the same process, without a port.

    It serves WebSockets to an `EnvClient`, in tasks of the client's event loop, and requests to an
    `HTTPEnvClient` or an ``httpx.AsyncClient``. Like httpx's class, it doesn't run the
    application's lifespan.

    Example:
        >>> from guerdon import EnvClient, create_app
        >>> async def main():
        ...     async with EnvClient(transport=ASGITransport(create_app(MyEnvironment))) as client:
        ...         return await client.reset(seed=7)

    Args:
        app: The application, for example of `create_app`.
        **options: As of ``httpx.ASGITransport``.
    """

    async def connect(self, url: str, headers: Mapping[str, str]) -> WebSocket:
        """Open a WebSocket; see `WebSocketTransport.connect`."""
        parts = urlsplit(url)
        named = {"host": parts.netloc, **headers}
        scope = {
            "type": "websocket",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "scheme": parts.scheme,
            "path": parts.path,
            "raw_path": parts.path.encode(),
            "query_string": parts.query.encode(),
            "root_path": self.root_path,
            "headers": [(name.lower().encode(), text.encode()) for name, text in named.items()],
            "server": (parts.hostname, parts.port),
            "client": self.client,
            "subprotocols": [],
            "extensions": {"websocket.http.response": {}},
        }
        return await _ASGIWebSocket.opened(self.app, scope)


class _ASGIWebSocket:
    """The client's end of a WebSocket to an application, which runs in a task of its own."""

    def __init__(self, app: Any, scope: dict[str, Any]) -> None:
        self.is_open = True
        self._sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._received: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
        self._closed = Close(1006, "")
        self._task = asyncio.ensure_future(self._run(app, scope))

    @classmethod
    async def opened(cls, app: Any, scope: dict[str, Any]) -> Self:
        socket = cls(app, scope)
        socket._sent.put_nowait({"type": "websocket.connect"})
        event = await socket._received.get()
        if event["type"] == "websocket.accept":
            return socket
        body = b""
        if event["type"] == "websocket.http.response.start":
            body = (await socket._received.get()).get("body", b"")
        await socket.close()
        raise InvalidStatus(Response(event.get("status", 403), "", Headers(), body))

    async def _run(self, app: Any, scope: dict[str, Any]) -> None:
        code, reason = 1006, ""
        try:
            await app(scope, self._sent.get, self._deliver)
        except Exception as error:
            code, reason = 1011, f"{error!r:.100}"
        finally:
            await self._deliver({"type": "websocket.close", "code": code, "reason": reason})

    async def _deliver(self, event: MutableMapping[str, Any]) -> None:
        if event["type"] == "websocket.close" and self.is_open:
            self._end(event.get("code", 1000), event.get("reason") or "")
        self._received.put_nowait(event)

    def _end(self, code: int, reason: str = "") -> None:
        self.is_open = False
        self._closed = Close(code, reason)
        self._sent.put_nowait({"type": "websocket.disconnect", "code": code})

    async def send(self, message: bytes, *, text: bool) -> None:
        if not self.is_open:
            raise ConnectionClosedError(self._closed, None)
        self._sent.put_nowait({"type": "websocket.receive", "text": message.decode()})

    async def recv(self, decode: bool) -> bytes:
        while self.is_open or not self._received.empty():
            event = await self._received.get()
            if event["type"] == "websocket.send":
                data: bytes | None = event.get("bytes")
                return event["text"].encode() if data is None else data
        raise ConnectionClosedError(self._closed, None)

    async def close(self) -> None:
        self.abort()
        await asyncio.wait({self._task}, timeout=CLOSE_TIMEOUT_S)
        self._task.cancel()

    def abort(self) -> None:
        if self.is_open:
            self._end(1000)
