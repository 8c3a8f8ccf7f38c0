"""Small messages between the host and the keeper, with file descriptors."""

from __future__ import annotations

import array
import json
import os
import socket
import struct
from collections.abc import Sequence
from typing import Any

__all__ = ["BrokenFrameError", "receive", "send"]

_HEADER = struct.Struct("!I")

# Payloads go by descriptor, so that messages stay small.
LONGEST = 1 << 20
MOST_FDS = 16


class BrokenFrameError(Exception):
    """What came is no message; said of what an untrusted process sent."""


def send(channel: socket.socket, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
    """Send a message, and copies of descriptors with it.

    Args:
        channel: A stream between two processes.
        message: What JSON can hold.
        fds: At most 16.
    """
    text = json.dumps(message).encode()
    data = _HEADER.pack(len(text)) + text
    if fds:
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))
        data = data[channel.sendmsg([data], [rights]) :]
    if data:
        channel.sendall(data)


def receive(channel: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """The next message with its descriptors, which are the caller's to close; None at the end.

    Raises:
        BrokenFrameError: It is none.
    """
    fds: array.array[int] = array.array("i")
    message = None
    try:
        message = _receive(channel, fds)
    finally:
        if message is None:
            for fd in fds:
                os.close(fd)
    return None if message is None else (message, list(fds))


def _receive(channel: socket.socket, fds: array.array[int]) -> dict[str, Any] | None:
    data = b""
    while len(data) < _HEADER.size:
        room = socket.CMSG_SPACE(MOST_FDS * fds.itemsize)
        part, control, _, _ = channel.recvmsg(_HEADER.size - len(data), room)
        for level, kind, held in control:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(held[: len(held) - len(held) % fds.itemsize])
        if not part:
            return None
        data += part
    (length,) = _HEADER.unpack(data)
    if length > LONGEST:
        raise BrokenFrameError(f"a message of {length:,} bytes")
    text = bytearray()
    while len(text) < length:
        part = channel.recv(length - len(text))
        if not part:
            return None
        text += part
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BrokenFrameError(str(error)) from None
    if not isinstance(message, dict):
        raise BrokenFrameError(f"it is {type(message).__name__}")
    return message
