"""`Connection`: one WebSocket, as an ASGI server hands it over."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

__all__ = ["BOUNDED", "ClientGoneError", "Connection", "Receive", "Scope", "Send", "UNREAD"]

Scope: TypeAlias = "MutableMapping[str, Any]"
Receive: TypeAlias = "Callable[[], Awaitable[MutableMapping[str, Any]]]"
Send: TypeAlias = "Callable[[MutableMapping[str, Any]], Awaitable[None]]"


# The extension of a scope whose transport closes connections that nobody reads. Its value is a
# dict, to whose "reason" the transport writes why it did.
BOUNDED = "guerdon.bounded"
LEFT = "client left"
UNREAD = "client does not read"

# Messages that are kept while an answer is under way; the protocol's clients send none.
EARLY = 16


class ClientGoneError(Exception):
    """The client has left, or does not read. It never leaves the server.

    Attributes:
        reason: What to count it as.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Connection:
    """One WebSocket.

    Args:
        scope: The connection's; a transport that bounds sending itself says so in it.
        receive: Gives the next ASGI event.
        send: Takes an ASGI event.
        send_timeout_s: Seconds that a client may take to read a message.
    """

    __slots__ = ("_bounds", "_early", "_receive", "_send", "_send_timeout_s")

    def __init__(self, scope: Scope, receive: Receive, send: Send, send_timeout_s: float) -> None:
        self._bounds: dict[str, str] | None = scope.get("extensions", {}).get(BOUNDED)
        self._receive = receive
        self._send = send
        self._send_timeout_s = send_timeout_s
        self._early: deque[MutableMapping[str, Any]] = deque()

    async def accept(self) -> None:
        """Take the handshake's first event, and accept."""
        await self._receive()
        await self._send({"type": "websocket.accept"})

    async def receive(self) -> str | None:
        """The next message; None of a binary one.

        Raises:
            ClientGoneError: The client has left.
        """
        event = self._early.popleft() if self._early else await self._receive()
        if event["type"] == "websocket.disconnect":
            raise self._gone()
        text: str | None = event.get("text")
        return text

    async def until_gone(self) -> None:
        """Keep the messages that come, so many, until the client leaves.

        Raises:
            ClientGoneError: The client has left.
        """
        while len(self._early) < EARLY:
            event = await self._receive()
            if event["type"] == "websocket.disconnect":
                raise self._gone()
            self._early.append(event)

    async def send(self, text: str) -> None:
        """Send a message.

        Raises:
            ClientGoneError: The client has left, or has not read for too long.
        """
        await self._bounded({"type": "websocket.send", "text": text})

    async def close(self, code: int, reason: str = "") -> None:
        """Close the connection; a client that has left already is none of our worries."""
        try:
            await self._bounded({"type": "websocket.close", "code": code, "reason": reason})
        except (ClientGoneError, RuntimeError):
            return  # closed on the other side first

    async def _bounded(self, event: MutableMapping[str, Any]) -> None:
        try:
            if self._bounds is not None:
                await self._send(event)
                return
            async with asyncio.timeout(self._send_timeout_s):
                await self._send(event)
        except TimeoutError:
            raise ClientGoneError(UNREAD) from None
        except OSError:  # what ASGI servers raise for a client that has left
            raise self._gone() from None

    def _gone(self) -> ClientGoneError:
        return ClientGoneError((self._bounds or {}).get("reason", LEFT))
