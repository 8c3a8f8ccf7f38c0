"""The ways in which clients drop their sessions, in `benchmarks.ugly_clients`, byte by byte."""

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
TCP_REPAIR = 19  # Linux, for root: closing sends nothing at all
TEXT, BINARY, CLOSE = 1, 2, 8

RESET = b'{"type":"reset","data":{"seed":7}}'
STEP = b'{"type":"step","data":{"message":"hello"}}'


class Line:
    """One connection.

    Attributes:
        socket: That socket.
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
        """Read until the server closes, but no longer than so many seconds."""
        async with asyncio.timeout(limit_s):
            while await self.read():
                pass

    def abort(self) -> None:
        """Close with RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
        self.socket.close()


def frame(payload: bytes, kind: int = TEXT, *, announced: int | None = None) -> bytes:
    """A WebSocket frame as clients send it, masked with zeros.

    Args:
        payload: What is in it.
        kind: Its opcode.
        announced: The length that it tells, where that is not its own.
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
# Each is a client after its handshake. What it leaves open is closed without a word.


async def reset_at_once(line: Line) -> None:
    """RST right after the server has accepted."""
    line.abort()


async def without_a_word(line: Line) -> None:
    """The connection closed, and no close frame."""


async def half_a_frame(line: Line) -> None:
    """The first half of a frame."""
    whole = frame(STEP)
    await line.send(whole[: len(whole) // 2])


async def half_a_head(line: Line) -> None:
    """The first byte of a frame, then RST."""
    await line.send(frame(STEP)[:1])
    line.abort()


async def garbage(line: Line) -> None:
    """Bytes that are no frames."""
    await line.send(os.urandom(300))
    await line.read_to_end(8)


async def no_messages(line: Line) -> None:
    """Frames that hold no message of the protocol."""
    await line.send(
        frame(b"{") + frame(b'{"type":"dance"}') + frame(b"[1]") + frame(bytes(99), BINARY)
    )
    await line.read()
    line.abort()


async def no_text(line: Line) -> None:
    """A text frame that is no UTF-8."""
    await line.send(frame(b"\xff\xfe\xfd"))
    await line.read_to_end(8)


async def unmasked(line: Line) -> None:
    """A frame as only servers may send it."""
    await line.send(struct.pack("!BB", 0x81, len(STEP)) + STEP)
    await line.read_to_end(8)


async def enormous(line: Line) -> None:
    """The head of a frame of 200 MB."""
    await line.send(frame(b"x" * 1000, announced=200_000_000))
    await line.read_to_end(8)


async def gone_in_step(line: Line) -> None:
    """A step under way, and RST."""
    await line.ask(RESET, step(late_s=0.02))
    line.abort()


async def gone_in_long_step(line: Line) -> None:
    """A step that takes longer than the server waits before it looks for the client."""
    await line.ask(RESET, step(late_s=0.4))
    line.abort()


async def closed_in_long_step(line: Line) -> None:
    """The same, with a proper close."""
    await line.ask(RESET, step(late_s=0.4))
    await line.send(frame(struct.pack("!H", 1001), CLOSE))
    await line.read_to_end(8)


async def closed_unread(line: Line) -> None:
    """Answers that are never read."""
    await line.ask(RESET, STEP, STEP, STEP)


async def never_reads(line: Line) -> None:
    """More answers than fit between the two, never read."""
    await line.ask(RESET, *[step(times=2_000)] * 500)
    await asyncio.sleep(3)
    line.abort()


async def many_questions(line: Line) -> None:
    """More messages than can be answered meanwhile, then RST."""
    await line.ask(*[STEP] * 200)
    line.abort()


async def never_pongs(line: Line) -> None:
    """Pings unanswered, until the server closes."""
    await line.read_to_end(15)


async def deaf(line: Line) -> None:
    """Its own half closed, while the other half stays open."""
    await line.ask(RESET, STEP)
    line.socket.shutdown(socket.SHUT_WR)
    await line.read_to_end(8)


async def vanished(line: Line) -> None:
    """As where a cable is cut: nothing is sent, not even by the system (needs root)."""
    await line.ask(RESET, STEP)
    try:
        line.socket.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
    except OSError:
        line.abort()


async def sent_close(line: Line) -> None:
    """The protocol's own close, and then no answer to the close frame."""
    await line.ask(RESET)
    await line.read()
    await line.ask(STEP)
    await line.read()
    await line.ask(b'{"type":"close"}')
    await line.read()


async def proper(line: Line) -> None:
    """An episode, and WebSocket's close, as it should be."""
    await line.ask(RESET)
    await line.read()
    for _ in range(3):
        await line.ask(STEP)
        await line.read()
    await line.send(frame(struct.pack("!H", 1000), CLOSE))
    await line.read_to_end(8)


# Those that never become sessions ----------------------------------------------------------------


async def reset_in_handshake(line: Line) -> None:
    """Half a request, then RST."""
    await line.send(HANDSHAKE[:90])
    line.abort()


async def reset_after_handshake(line: Line) -> None:
    """The whole request, then RST: there may be a session by then."""
    await line.send(HANDSHAKE)
    line.abort()


async def silent(line: Line) -> None:
    """Nothing sent, until the server closes."""
    await line.read_to_end(15)


async def half_a_request(line: Line) -> None:
    """Half a request, until the server closes."""
    await line.send(HANDSHAKE[:90])
    await line.read_to_end(15)


async def not_http(line: Line) -> None:
    """Bytes that are no request."""
    await line.send(b"\x16\x03\x01" + os.urandom(200))
    await line.read_to_end(8)


async def bad_handshake(line: Line) -> None:
    """A request that can't be accepted."""
    await line.send(HANDSHAKE.replace(b"Version: 13", b"Version: 99"))
    await line.read_to_end(8)


Way = Callable[[Line], Awaitable[None]]

# How many of a thousand sessions end each way.
FAST: dict[Way, int] = {
    reset_at_once: 140, without_a_word: 120, half_a_frame: 80, half_a_head: 50, garbage: 70,
    no_messages: 70, no_text: 40, unmasked: 40, enormous: 40, gone_in_step: 80, closed_unread: 60,
    many_questions: 30, deaf: 48, sent_close: 40, proper: 40,
}  # fmt: skip
# These take seconds.
SLOW: dict[Way, int] = {
    gone_in_long_step: 10, closed_in_long_step: 10, never_reads: 2, never_pongs: 15, vanished: 15,
}  # fmt: skip
# How many come on top of a thousand sessions.
STRANGERS: dict[Way, int] = {
    reset_in_handshake: 50, reset_after_handshake: 50, silent: 10, half_a_request: 10,
    not_http: 30, bad_handshake: 30,
}  # fmt: skip
