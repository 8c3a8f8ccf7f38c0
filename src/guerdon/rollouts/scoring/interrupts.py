"""Ctrl-C, which may interrupt what is being scored but not what is being written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

__all__ = ["Interrupts", "held_back"]


@contextmanager
def held_back() -> Iterator[None]:
    """Hold ctrl-C back, where the system can, until the end; a process started here starts so."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Interrupts:
    """While it is entered, ctrl-C raises KeyboardInterrupt only where `allowed` says so.

    Elsewhere it is remembered in `asked`; a second one is raised anywhere. Outside the main thread,
    where signals can't be dealt with, it changes nothing.

    Attributes:
        allowed: Whether an interrupt may be raised right now.
        asked: Whether there was one.
    """

    def __init__(self) -> None:
        self.allowed = False
        self.asked = False
        self._before: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *error: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        again, self.asked = self.asked, True
        if self.allowed or again:
            self.allowed = False
            raise KeyboardInterrupt
