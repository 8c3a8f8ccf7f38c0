"""The faults of the clients in `benchmarks.faulty_clients`."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any

HANDSHAKE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
ABORT = struct.pack("ii", 1, 0)  # linger for 0 s: closing sends RST
TCP_REPAIR = 19  # Linux, root only: closing sends nothing
TEXT, BINARY, CLOSE = 1, 2, 8

RESET = b'{"type":"reset","data":{"seed":7}}'
STEP = b'{"type":"step","data":{"message":"hello"}}'


class Connection:
    """A connection to the server.

    Attributes:
        socket: The socket.
    """

    def __init__(self, opened: socket.socket) -> None:
        self.socket = opened
        self._loop = asyncio.get_running_loop()

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self.socket, data)

    async def ask(self, *messages: bytes) -> None:
        await self.send(b"".join(frame(message) for message in messages))

    async def read(self) -> bytes:
        return await self._loop.sock_recv(self.socket, 65536)

    async def read_to_end(self, limit_s: float) -> None:
        """Read until the server closes the connection, or for a timeout."""
        async with asyncio.timeout(limit_s):
            while await self.read():
                pass

    def abort(self) -> None:
        """Close with RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
        self.socket.close()


def frame(payload: bytes, kind: int = TEXT, *, announced: int | None = None) -> bytes:
    """Return a WebSocket frame of a client, masked with zeros.

    Args:
        payload: The payload.
        kind: The opcode.
        announced: The length in the header, if it differs from the payload's.
    """
    size = len(payload) if announced is None else announced
    if size < 126:
        head = struct.pack("!BB", 0x80 | kind, 0x80 | size)
    elif size < 65536:
        head = struct.pack("!BBH", 0x80 | kind, 0x80 | 126, size)
    else:
        head = struct.pack("!BBQ", 0x80 | kind, 0x80 | 127, size)
    return head + bytes(4) + payload


def step(**fields: Any) -> bytes:
    return json.dumps({"type": "step", "data": {"message": "hello", **fields}}).encode()


# Sessions ----------------------------------------------------------------------------------------
# Each begins after the handshake. Open connections are then closed without a close frame.


async def reset_at_once(connection: Connection) -> None:
    """Send RST after the handshake."""
    connection.abort()


async def no_close_frame(connection: Connection) -> None:
    """Close the connection without a close frame."""


async def half_a_frame(connection: Connection) -> None:
    """Send the first half of a frame."""
    whole = frame(STEP)
    await connection.send(whole[: len(whole) // 2])


async def half_a_head(connection: Connection) -> None:
    """Send the first byte of a frame, then RST."""
    await connection.send(frame(STEP)[:1])
    connection.abort()


async def garbage(connection: Connection) -> None:
    """Send random bytes."""
    await connection.send(os.urandom(300))
    await connection.read_to_end(8)


async def invalid_messages(connection: Connection) -> None:
    """Send frames without a message of the protocol."""
    await connection.send(
        frame(b"{") + frame(b'{"type":"dance"}') + frame(b"[1]") + frame(bytes(99), BINARY)
    )
    await connection.read()
    connection.abort()


async def invalid_utf8(connection: Connection) -> None:
    """Send a text frame with invalid UTF-8."""
    await connection.send(frame(b"\xff\xfe\xfd"))
    await connection.read_to_end(8)


async def unmasked(connection: Connection) -> None:
    """Send an unmasked frame, which only servers may send."""
    await connection.send(struct.pack("!BB", 0x81, len(STEP)) + STEP)
    await connection.read_to_end(8)


async def enormous(connection: Connection) -> None:
    """Announce a frame of 200 MB."""
    await connection.send(frame(b"x" * 1000, announced=200_000_000))
    await connection.read_to_end(8)


async def gone_in_step(connection: Connection) -> None:
    """Send RST during a step."""
    await connection.ask(RESET, step(late_s=0.02))
    connection.abort()


async def gone_in_long_step(connection: Connection) -> None:
    """Send RST during a step that takes longer than the server's disconnect check."""
    await connection.ask(RESET, step(late_s=0.4))
    connection.abort()


async def closed_in_long_step(connection: Connection) -> None:
    """Close properly during such a step."""
    await connection.ask(RESET, step(late_s=0.4))
    await connection.send(frame(struct.pack("!H", 1001), CLOSE))
    await connection.read_to_end(8)


async def closed_unread(connection: Connection) -> None:
    """Close without reading the responses."""
    await connection.ask(RESET, STEP, STEP, STEP)


async def never_reads(connection: Connection) -> None:
    """Request more responses than buffers can store, and never read."""
    await connection.ask(RESET, *[step(times=2_000)] * 500)
    await asyncio.sleep(3)
    connection.abort()


async def many_requests(connection: Connection) -> None:
    """Send many messages, then RST."""
    await connection.ask(*[STEP] * 200)
    connection.abort()


async def never_pongs(connection: Connection) -> None:
    """Never answer pings, until the server closes."""
    await connection.read_to_end(15)


async def half_closed(connection: Connection) -> None:
    """Close the sending half of the connection only."""
    await connection.ask(RESET, STEP)
    connection.socket.shutdown(socket.SHUT_WR)
    await connection.read_to_end(8)


async def vanished(connection: Connection) -> None:
    """Vanish like after a cut cable: not even the system sends anything (requires root)."""
    await connection.ask(RESET, STEP)
    try:
        connection.socket.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
    except OSError:
        connection.abort()


async def sent_close(connection: Connection) -> None:
    """Send the protocol's close message, but don't answer the close frame."""
    await connection.ask(RESET)
    await connection.read()
    await connection.ask(STEP)
    await connection.read()
    await connection.ask(b'{"type":"close"}')
    await connection.read()


async def proper(connection: Connection) -> None:
    """Play an episode and close properly."""
    await connection.ask(RESET)
    await connection.read()
    for _ in range(3):
        await connection.ask(STEP)
        await connection.read()
    await connection.send(frame(struct.pack("!H", 1000), CLOSE))
    await connection.read_to_end(8)


# Connections without a session -------------------------------------------------------------------


async def reset_in_handshake(connection: Connection) -> None:
    """Send half a request, then RST."""
    await connection.send(HANDSHAKE[:90])
    connection.abort()


async def reset_after_handshake(connection: Connection) -> None:
    """Send the request, then RST, when there may be a session already."""
    await connection.send(HANDSHAKE)
    connection.abort()


async def silent(connection: Connection) -> None:
    """Send nothing until the server closes."""
    await connection.read_to_end(15)


async def half_a_request(connection: Connection) -> None:
    """Send half a request, and wait until the server closes."""
    await connection.send(HANDSHAKE[:90])
    await connection.read_to_end(15)


async def not_http(connection: Connection) -> None:
    """Send bytes that aren't an HTTP request."""
    await connection.send(b"\x16\x03\x01" + os.urandom(200))
    await connection.read_to_end(8)


async def bad_handshake(connection: Connection) -> None:
    """Send a handshake that the server must reject."""
    await connection.send(HANDSHAKE.replace(b"Version: 13", b"Version: 99"))
    await connection.read_to_end(8)


Fault = Callable[[Connection], Awaitable[None]]

# The number of sessions with each fault, per thousand.
FAST: dict[Fault, int] = {
    reset_at_once: 140, no_close_frame: 120, half_a_frame: 80, half_a_head: 50, garbage: 70,
    invalid_messages: 70, invalid_utf8: 40, unmasked: 40, enormous: 40, gone_in_step: 80,
    closed_unread: 60, many_requests: 30, half_closed: 48, sent_close: 40, proper: 40,
}  # fmt: skip
# These take seconds.
SLOW: dict[Fault, int] = {
    gone_in_long_step: 10, closed_in_long_step: 10, never_reads: 2, never_pongs: 15, vanished: 15,
}  # fmt: skip
# The number of additional connections per thousand sessions.
WITHOUT_SESSION: dict[Fault, int] = {
    reset_in_handshake: 50, reset_after_handshake: 50, silent: 10, half_a_request: 10,
    not_http: 30, bad_handshake: 30,
}  # fmt: skip
