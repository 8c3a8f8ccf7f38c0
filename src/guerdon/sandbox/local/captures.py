"""What a call writes, read as it comes and no further than it may go."""

from __future__ import annotations

import os

__all__ = ["Capture"]

_CHUNK = 1 << 16


class Capture:
    """A pipe, and what has come out of it.

    Args:
        piped: Whether there is a pipe; without one it only holds what is put there.

    Attributes:
        reading: The end that is read here.
        writing: The end that the call has; None once it is given away.
        content: What has come.
        ended: Whether nobody can write any more.
    """

    def __init__(self, *, piped: bool = True) -> None:
        self.content = bytearray()
        self.ended = not piped
        self.reading = -1
        self.writing: int | None = None
        if piped:
            self.reading, self.writing = os.pipe()
            os.set_blocking(self.reading, False)

    def given(self) -> None:
        """Close the end that the call has by now."""
        if self.writing is not None:
            os.close(self.writing)
            self.writing = None

    def read(self, most: int) -> None:
        """Read what is there, as far as `most` bytes in all and one more."""
        while not self.ended and len(self.content) <= most:
            try:
                part = os.read(self.reading, min(_CHUNK, most + 1 - len(self.content)))
            except BlockingIOError:
                return
            self.content += part
            self.ended = not part

    def close(self) -> None:
        """Close both ends."""
        self.given()
        if self.reading >= 0:
            os.close(self.reading)
            self.reading = -1

    def text(self, most: int) -> str:
        """What has come, as text of at most `most` bytes."""
        return self.content[:most].decode("utf-8", "replace")
