"""What a program said last on its standard error, for the message that says why it failed."""

from __future__ import annotations

import asyncio
import os
from types import TracebackType
from typing import Self, TextIO

__all__ = ["StderrTail"]

# Bytes that are kept.
KEPT = 4096


class StderrTail:
    """A place for a program to write to, of which the end is kept; open it on an event loop.

    Attributes:
        file: What the program is given as its standard error.
    """

    file: TextIO

    def __init__(self) -> None:
        self._kept = b""
        self._descriptor = -1

    def text(self) -> str:
        """The last of what was written."""
        if self._descriptor >= 0:
            self._read()
        return self._kept.decode(errors="replace").strip()

    def __enter__(self) -> Self:
        self._descriptor, write = os.pipe()
        os.set_blocking(self._descriptor, False)
        self.file = os.fdopen(write, "w")
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._descriptor, self._read)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.file.close()
        if self._descriptor >= 0:
            self._read()
        self._end()

    def _read(self) -> None:
        try:
            while part := os.read(self._descriptor, 65536):
                self._kept = (self._kept + part)[-KEPT:]
        except BlockingIOError:
            return  # there is no more yet
        self._end()

    def _end(self) -> None:
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
