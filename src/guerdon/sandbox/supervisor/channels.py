"""Messages between the host, the supervisor and calls; descriptors and standard streams."""

from __future__ import annotations

import array
import contextlib
import itertools
import json
import os
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

_Job = TypeVar("_Job")

_HEADER = struct.Struct("!I")

# Messages are small: payloads are passed by descriptor.
LONGEST = 1 << 20
MOST_FDS = 16

# Bytes that are read at a time.
_CHUNK = 1 << 20

_STARTED = b"\0"
_LONGEST_PROBLEM = 2000


def send(channel: socket.socket, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
    """Send a message, and copies of descriptors with it.

    Args:
        channel: A stream between two processes.
        message: An object that JSON can represent.
        fds: At most 16.
    """
    text = json.dumps(message).encode()
    data = _HEADER.pack(len(text)) + text
    if fds:
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))
        data = data[channel.sendmsg([data], [rights]) :]
    if data:
        channel.sendall(data)


def receive(channel: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return the next message with its descriptors, which the caller closes.

    Raises:
        EOFError: The other end is closed.
        ValueError: It is not a valid message.
    """
    head, fds, *_ = socket.recv_fds(channel, _HEADER.size, MOST_FDS)
    with contextlib.ExitStack() as unused:
        for fd in fds:
            unused.callback(os.close, fd)
        head += read_exactly(channel.recv, _HEADER.size - len(head))
        (length,) = _HEADER.unpack(head)
        if length > LONGEST:
            raise ValueError(f"a message of {length:,} bytes")
        text = read_exactly(channel.recv, length)
        try:
            message = json.loads(text)
        except RecursionError as error:
            raise ValueError(str(error)) from None
        if not isinstance(message, dict):
            raise ValueError(f"a message must be an object, got {type(message).__name__}")
        unused.pop_all()
    return message, fds


def read_exactly(read: Callable[[int], bytes], length: int) -> bytes:
    """Read bytes of a stream.

    Args:
        read: Reads at most so many bytes.
        length: How many to read.

    Raises:
        EOFError: The stream ends before.
    """
    parts = []
    while length:
        part = read(min(length, _CHUNK))
        if not part:
            raise EOFError
        length -= len(part)
        parts.append(part)
    return b"".join(parts)


class Started:
    """A pipe on which a call reports that it is locked and ready, or why not.

    Attributes:
        writing: The end that the call has.
    """

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()
        os.set_blocking(self._reading, False)

    def problem(self) -> str | None:
        """Return why the call that has ended was never ready; None if it was."""
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
    """In the call: report that it is ready, or why not, and close the pipe.

    Args:
        fd: The end of the pipe.
        problem: Why it isn't ready.
    """
    text = _STARTED
    if problem is not None:
        text = f"{type(problem).__name__}: {problem}".encode("utf-8", "replace")[:_LONGEST_PROBLEM]
    os.write(fd, text)
    os.close(fd)


def start_call(fds: Sequence[int], lock: Callable[[], None], read: Callable[[int], _Job]) -> _Job:
    """In the call: lock it, move its descriptors, read its job, and report that it is ready.

    If a step fails, the process ends.

    Args:
        fds: Its descriptors from 0 on. The last two are those of its job and of `Started`.
        lock: Locks this process; it may use other descriptors.
        read: Reads the job from its descriptor.
    """
    report = fds[-1]
    try:
        lock()
        report = take_over(fds)
        job = read(report - 1)
    except MemoryError:  # the job itself exceeds the limit
        report_started(report)
        os.write(2, b"MemoryError\n")
        os._exit(1)
    except BaseException as error:
        report_started(report, error)
        os._exit(70)
    report_started(report)
    return job


def take_over(fds: Sequence[int]) -> int:
    """Move the descriptors to 0, 1, 2 and so on, and close all others.

    Returns:
        The number of the last one.
    """
    kept = sorted({-1, *fds, 1 << 20})
    for one, next_one in itertools.pairwise(kept):  # first, as a call may have few descriptors
        os.closerange(one + 1, next_one)
    left = list(fds)
    for number in range(len(left)):
        fd = left.pop(0)
        if number in left:
            moved = os.dup(number)
            left = [moved if each == number else each for each in left]
        os.dup2(fd, number)
    os.closerange(len(fds), 1 << 20)
    return len(fds) - 1


def open_streams() -> None:
    """Open Python's standard streams on descriptors 0, 1 and 2, which stay open."""
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


def write_all(fd: int, data: bytes) -> None:
    """Write all bytes."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
