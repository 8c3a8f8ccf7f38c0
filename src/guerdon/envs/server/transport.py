"""uvicorn's protocols, with bounds: on connections, on waiting for a request, on parting."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from guerdon.envs.server.limits import ServerLimits

__all__ = ["http_protocol", "websocket_protocol"]

# Seconds that a peer has to take what is left to say to it, once its connection is being closed.
PARTING_S = 5.0


def http_protocol(limits: ServerLimits) -> type[H11Protocol]:
    """Uvicorn's HTTP protocol, for connections that are bounded in number and patience."""

    class BoundedHTTP(H11Protocol):
        _waiting: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > limits.max_connections:
                transport.abort()
                return
            self._waiting = self.loop.call_later(limits.handshake_timeout_s, transport.abort)

        def handle_events(self) -> None:
            super().handle_events()
            if self._waiting is not None and self.scope is not None:  # it has asked for something
                self._waiting.cancel()
                self._waiting = None

        def connection_lost(self, exc: Exception | None) -> None:
            if self._waiting is not None:
                self._waiting.cancel()
                self._waiting = None
            super().connection_lost(exc)

    return BoundedHTTP


def websocket_protocol(limits: ServerLimits) -> type[WebSocketsSansIOProtocol]:
    """Uvicorn's WebSocket protocol, which doesn't wait for peers that don't read."""

    class BoundedWebSocket(WebSocketsSansIOProtocol):
        def keepalive_timeout(self) -> None:
            super().keepalive_timeout()
            self._part()

        def handle_parser_exception(self) -> None:
            super().handle_parser_exception()
            self._part()

        def shutdown(self) -> None:
            super().shutdown()
            self._part()

        def _part(self) -> None:
            """Let go of the connection, whether or not the peer reads what is left to say."""
            self.loop.call_later(min(PARTING_S, limits.send_timeout_s), self.transport.abort)

    return BoundedWebSocket
