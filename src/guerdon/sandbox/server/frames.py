"""Small messages between the host, the keeper and the template, with file descriptors."""

from __future__ import annotations

import array
import json
import os
import select
import socket
import struct
from collections.abc import Sequence
from time import monotonic
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


def receive(
    channel: socket.socket, seconds: float | None = None
) -> tuple[dict[str, Any], list[int]] | None:
    """The next message with its descriptors, which are the caller's to close; None at the end.

    Args:
        channel: A stream between two processes.
        seconds: How long all of it may take; None waits.

    Raises:
        BrokenFrameError: It is none, or is not there in time.
    """
    fds: array.array[int] = array.array("i")
    message = None
    try:
        message = _receive(channel, fds, None if seconds is None else monotonic() + seconds)
    finally:
        if message is None:
            for fd in fds:
                os.close(fd)
    return None if message is None else (message, list(fds))


def _receive(
    channel: socket.socket, fds: array.array[int], deadline: float | None
) -> dict[str, Any] | None:
    data = b""
    while len(data) < _HEADER.size:
        _wait(channel, deadline)
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
        _wait(channel, deadline)
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


def _wait(channel: socket.socket, deadline: float | None) -> None:
    """Wait until something can be read, where there is an end to waiting."""
    if deadline is not None:
        left = max(0.0, deadline - monotonic())
        if not select.select([channel], [], [], left)[0]:
            raise BrokenFrameError("it is not there in time")
