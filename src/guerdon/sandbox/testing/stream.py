"""Messages of two processes over a stream: JSON, each with its size before it.

Runs inside of a sandbox too: the standard library only, and little of it.
"""

from __future__ import annotations

import json
from os import read, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["GONE", "LARGEST", "LinkLost", "Stream", "frame"]

LARGEST = 32 << 20  # bytes of a message
GONE = "its process ended by itself"

_dumps = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode
_loads = json.JSONDecoder().decode


class LinkLost(BaseException):
    """The other process is gone, or spoke what is no answer; no test can catch it unseen."""


class Stream:
    """One end.

    Args:
        descriptor: Of the stream.

    Attributes:
        broken: Why nothing can be asked any more; empty as long as it can.
    """

    def __init__(self, descriptor: int) -> None:
        self.broken = ""
        self._descriptor = descriptor

    def receive(self, largest: int = LARGEST) -> dict[str, Any]:
        """The next message."""
        size = int.from_bytes(self._read(4), "big")
        if size > largest:
            self.lose(f"it sent more than {largest >> 10} KiB at once")
        try:
            message = _loads(self._read(size).decode("ascii"))
        except (MemoryError, RecursionError):
            self.lose("it sent too much")
        except ValueError:
            self.lose("it sent what is no message")
        if type(message) is not dict:
            self.lose("it sent what is no message")
        return message  # type: ignore[no-any-return]

    def tell(self, message: dict[str, Any]) -> None:
        """Send a message that has no answer."""
        self._write(frame(message) or b"")

    def lose(self, why: str) -> None:
        """Give up.

        Raises:
            LinkLost: Always.
        """
        self.broken = self.broken or why
        raise LinkLost(self.broken)

    def _read(self, size: int) -> bytes:
        got = bytearray()
        while len(got) < size:
            try:
                chunk = read(self._descriptor, min(size - len(got), 1 << 20))
            except OSError:
                chunk = b""
            if not chunk:
                self.lose(GONE)
            got += chunk
        return bytes(got)

    def _write(self, frame: bytes) -> None:
        left = memoryview(frame)
        while left:
            try:
                left = left[write(self._descriptor, left) :]
            except OSError:
                self.lose(GONE)


def frame(message: dict[str, Any]) -> bytes | None:
    """A message as it is sent; None of one that is too large."""
    body = _dumps(message).encode("ascii")
    return len(body).to_bytes(4, "big") + body if len(body) <= LARGEST else None
