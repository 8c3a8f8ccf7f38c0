"""`BatchConnection`: the calls of many sessions on one server, in frames of `guerdon.batch.v1`."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

from websockets.exceptions import ConnectionClosed

from guerdon.envs.client.transport import WebSocket
from guerdon.envs.wire import FRAME_BYTES, FRAME_OVERHEAD, UNSENDABLE, codecs, frames
from guerdon.errors import ConnectionLostError, InvalidArgumentError

# Seconds to wait for the first frame of a server.
READY_S = 10.0


class BatchConnection:
    """One connection with many sessions, each with one call at a time.

    A session has a number, which is never used again: an answer for a session that was closed is
    for no call, and is dropped.

    Args:
        socket: A WebSocket whose sub-protocol was chosen.
        url: The server's address, for error messages.
        answered: Called with each answer: the number of its session, its kind, and its data.
        lost: Called once the connection is lost, unless `close` was called.

    Attributes:
        free_sessions: How many sessions the server had room for when it was connected.
        max_calls: The most calls in a frame, and the most sessions.
    """

    def __init__(
        self,
        socket: WebSocket,
        url: str,
        *,
        answered: Callable[[int, str, Any], None],
        lost: Callable[[ConnectionLostError], None],
    ) -> None:
        self.free_sessions = self.max_calls = 0
        self._socket = socket
        self._codec = codecs()[socket.subprotocol]  # type: ignore[attr-defined]
        self._url = url
        self._answered = answered
        self._lost = lost
        self._numbers = itertools.count()
        self._max_bytes = 0
        self._calls: list[bytes] = []
        self._has_calls = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Wait for the server's first frame.

        Raises:
            ConnectionLostError: It doesn't arrive in time, or is not such a frame.
        """
        try:
            async with asyncio.timeout(READY_S):
                [(_, kind, data)] = self._decoded(await self._socket.recv(decode=False))
            if kind != "ready":
                raise ValueError(f"{kind!r:.20}, {data!r:.80}")
            self.free_sessions = int(data["free_sessions"])
            self.max_calls = int(data["max_calls"])
            self._max_bytes = int(data["max_message_bytes"])
        except BaseException as error:
            self._socket.abort()
            if not isinstance(error, Exception):  # it was cancelled
                raise
            reason = f"{self._url} sent no first frame of {self._codec.name}: {error!r:.100}"
            raise ConnectionLostError(reason) from error
        self._tasks = [asyncio.ensure_future(each) for each in (self._receive(), self._send())]

    @property
    def is_open(self) -> bool:
        """Whether it is open, as far as is known."""
        return self._socket.is_open

    def new_number(self) -> int:
        """Return the number of a new session, which its first call opens."""
        return next(self._numbers)

    def call(self, number: int, kind: str, data: Any = None) -> None:
        """Send a call soon, in one frame with all others of this turn of the event loop.

        Raises:
            InvalidArgumentError: It can't be sent; nothing was.
        """
        try:
            encoded = self._codec.encode(number, kind, data)
        except UNSENDABLE as error:
            raise InvalidArgumentError(f"{kind} is not JSON-serializable: {error}") from error
        if len(encoded) + FRAME_OVERHEAD > self._max_bytes:
            raise InvalidArgumentError(
                f"{kind} has {len(encoded)} bytes, {self._url} accepts {self._max_bytes}"
            )
        self._calls.append(encoded)
        self._has_calls.set()

    async def _send(self) -> None:
        size = min(FRAME_BYTES, self._max_bytes)
        while True:
            await self._has_calls.wait()
            self._has_calls.clear()
            calls, self._calls = self._calls, []
            for frame in frames(self._codec, calls, size, max_calls=self.max_calls):
                try:
                    await self._socket.send(frame, text=self._codec.is_text)
                except ConnectionClosed:
                    return  # which `_receive` reports

    async def _receive(self) -> None:
        try:
            while True:
                answers = self._decoded(await self._socket.recv(decode=False))
                if answers.__class__ is not list:
                    raise ValueError("a frame must be a list")
                for number, kind, data in answers:
                    self._answered(number, kind, data)
        except ConnectionClosed as error:
            reason = f"{self._url} closed the connection ({error})"
        except (ValueError, TypeError) as error:
            reason = f"{self._url} sent what {self._codec.name} doesn't allow: {error!s:.200}"
            self._socket.abort()
        self._tasks[1].cancel()
        self._lost(
            ConnectionLostError(f"{reason}; its environments are gone, and reset() begins new ones")
        )

    def _decoded(self, frame: bytes) -> Any:
        return self._codec.decode(frame, is_trusted=True)

    def abort(self) -> None:
        """Close the connection without waiting for the server."""
        for task in self._tasks:
            task.cancel()
        self._socket.abort()

    async def close(self) -> None:
        """Close the connection; the server ends its sessions."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._socket.close()
