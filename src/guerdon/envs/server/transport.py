"""uvicorn's protocols, with bounds: on connections, on waiting for a request, on parting."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import PayloadTooBig

from guerdon.envs.server.connection import BOUNDED, UNREAD
from guerdon.envs.server.limits import ServerLimits

__all__ = ["http_protocol", "websocket_protocol"]

# Seconds that a peer has to take what is left to say to it, once its connection is being closed.
PARTING_S = 5.0


def http_protocol(limits: ServerLimits) -> type[H11Protocol]:
    """The HTTP protocol of one server."""
    return type("BoundedHTTP", (_BoundedHTTP,), {"limits": limits, "silent": {}})


def websocket_protocol(limits: ServerLimits) -> type[WebSocketsSansIOProtocol]:
    """The WebSocket protocol of one server."""
    return type("BoundedWebSocket", (_BoundedWebSocket,), {"limits": limits})


class _BoundedHTTP(H11Protocol):
    """Uvicorn's HTTP protocol, for connections that are bounded in number and patience.

    Where there are too many, the one that has been silent for the longest makes room, so that
    nobody shuts others out by connecting and saying nothing.
    """

    limits: ServerLimits
    silent: dict[_BoundedHTTP, asyncio.TimerHandle]  # those that asked for nothing, by age

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._listen()
        if len(self.connections) > self.limits.max_connections:
            oldest = next(iter(self.silent))
            oldest._heard()
            oldest.transport.abort()

    def handle_events(self) -> None:
        before = self.scope
        super().handle_events()
        if self.scope is not before:  # it has asked for something
            self._heard()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():  # as soon as the answer is read, or not read in time
            self.loop.call_later(self.limits.send_timeout_s, self.transport.abort)
        else:
            self._listen()

    def connection_lost(self, exc: Exception | None) -> None:
        self._heard()
        super().connection_lost(exc)

    def _listen(self) -> None:
        self._heard()
        wait = self.limits.handshake_timeout_s
        self.silent[self] = self.loop.call_later(wait, self.transport.abort)

    def _heard(self) -> None:
        clock = self.silent.pop(self, None)
        if clock is not None:
            clock.cancel()


class _BoundedWebSocket(WebSocketsSansIOProtocol):
    """Uvicorn's WebSocket protocol, which doesn't wait for peers that don't read."""

    limits: ServerLimits

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = logger
        self._bounds: dict[str, str] = {}
        self._unread: asyncio.TimerHandle | None = None

    async def run_asgi(self) -> None:
        extensions: dict[str, Any] = self.scope["extensions"]
        extensions[BOUNDED] = self._bounds
        await super().run_asgi()
        self._part()

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and self.close_sent:
            self.handshake_complete = True  # a refusal completes it, too

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(self.limits.send_timeout_s, self._give_up)

    def resume_writing(self) -> None:
        self._read()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._read()
        super().connection_lost(exc)

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self._part()

    def handle_parser_exception(self) -> None:
        too_large = isinstance(self.conn.parser_exc, PayloadTooBig)
        self._bounds["reason"] = "message too large" if too_large else "no WebSocket"
        super().handle_parser_exception()
        self._part()

    def shutdown(self) -> None:
        super().shutdown()
        self._part()

    def _read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _give_up(self) -> None:
        self._unread = None
        self._bounds["reason"] = UNREAD
        self.transport.abort()

    def _part(self) -> None:
        """Let go of the connection, whether or not the peer reads what is left to say."""
        self.loop.call_later(min(PARTING_S, self.limits.send_timeout_s), self.transport.abort)


def _is_no_client_matter(record: logging.LogRecord) -> bool:
    """Whether a record is about the server: what clients send wrong is counted, not logged."""
    return "UTF-8" not in record.getMessage()


# Uvicorn's, without what any client could fill it with.
logger = logging.getLogger("uvicorn.error.guerdon")
logger.addFilter(_is_no_client_matter)
