"""What passes between the host, the supervisor and calls: frames, descriptors, standard streams."""

from __future__ import annotations

import array
import contextlib
import json
import os
import socket
import struct
import sys
from collections.abc import Sequence
from typing import Any

with contextlib.suppress(ImportError):  # Windows has none
    import fcntl

_HEADER = struct.Struct("!I")

# Payloads are passed by descriptor, so that messages stay small.
LONGEST = 1 << 20
MOST_FDS = 16

# Descriptors are moved up here while the low numbers are assigned.
_HIGH = 32

_STARTED = b"\0"
_LONGEST_PROBLEM = 2000


class BrokenFrameError(Exception):
    """The bytes are not a valid message."""


def send(channel: socket.socket, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
    """Send a message, and copies of descriptors with it.

    Args:
        channel: A stream between two processes.
        message: What JSON can represent.
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
    """The next message with its descriptors, which the caller closes; None at the end.

    Raises:
        BrokenFrameError: It is not a valid message.
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
        for level, kind, received in control:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(received[: len(received) - len(received) % fds.itemsize])
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


class Started:
    """A pipe on which a call reports once that it is locked and ready, or why not.

    Attributes:
        writing: The end that the call has.
    """

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()
        os.set_blocking(self._reading, False)

    def problem(self) -> str | None:
        """When the call has ended: what went wrong, None if nothing did."""
        try:
            report = os.read(self._reading, _LONGEST_PROBLEM)
        except BlockingIOError:
            report = b""
        self.close()
        if report == _STARTED:
            return None
        return report.decode("utf-8", "replace") or "it ended before it was set up"

    def close(self) -> None:
        """Close both ends."""
        for fd in (self._reading, self.writing):
            with contextlib.suppress(OSError):
                os.close(fd)


def report_started(fd: int, problem: BaseException | None = None) -> None:
    """In the call: report that it is ready, or what went wrong; it can't report anything after.

    Args:
        fd: The end of the pipe; it is closed.
        problem: What went wrong.
    """
    text = _STARTED
    if problem is not None:
        text = f"{type(problem).__name__}: {problem}".encode("utf-8", "replace")[:_LONGEST_PROBLEM]
    os.write(fd, text)
    os.close(fd)


def take_over(fds: Sequence[int]) -> int:
    """Move the descriptors to 0, 1, 2 and so on, and close all others.

    Returns:
        The number of the last one.
    """
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, _HIGH) for fd in fds]
    for number, fd in enumerate(high):
        os.dup2(fd, number)
    os.closerange(len(fds), 1 << 20)
    return len(fds) - 1


def open_streams() -> None:
    """Make Python's standard streams anew on descriptors 0, 1 and 2, which stay open."""
    given = os.fdopen(0, "r", encoding="utf-8", errors="surrogateescape", closefd=False)
    out, err = (
        os.fdopen(
            number, "w", buffering, encoding="utf-8", errors="backslashreplace", closefd=False
        )
        for number, buffering in ((1, -1), (2, 1))
    )
    sys.stdin = sys.__stdin__ = given  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = out  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = err  # type: ignore[misc]


def read_all(fd: int) -> bytes:
    """The content of a file; the descriptor is closed."""
    size = os.lseek(fd, 0, os.SEEK_END)
    data = b""
    while len(data) < size:  # mostly once: the kernel reads up to 2 GB
        data += os.pread(fd, size - len(data), len(data))
    os.close(fd)
    return data


def write_all(fd: int, data: bytes) -> None:
    """Write all bytes, however many writes it takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
