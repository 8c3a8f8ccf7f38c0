"""`Starter`: what the keeper needs of whatever starts calls."""

from __future__ import annotations

import socket
from typing import Any, Protocol

from guerdon.sandbox.server.calls import Call

__all__ = ["Starter"]


class Starter(Protocol):
    """Starts calls and ends them.

    Attributes:
        calls: Those of the request that is served.
        look_every: Seconds between two looks while nothing is asked for; None needs none.
        wakes: Descriptors, beside those of the keeper, on which the end of a call is told.
    """

    calls: list[Call]
    wakes: list[int]
    look_every: float | None

    def __init__(self, config: dict[str, Any], fds: list[int], host: socket.socket) -> None: ...

    def facts(self) -> dict[str, Any]:
        """What the host is told when all is ready."""
        ...

    def look_idle(self) -> None:
        """See that nothing goes on while nothing is asked for."""
        ...

    def start(self, job: dict[str, Any], fds: list[int]) -> None:
        """Start a call, and add it to the calls.

        Args:
            job: What it may use.
            fds: Its descriptors; they stay the caller's.
        """
        ...

    def collect(self) -> None:
        """Note which calls have ended."""
        ...

    def stop(self, call: Call) -> None:
        """Kill a call; `collect` notes its end."""
        ...

    def end_all(self) -> str | None:
        """End what is left of all calls; what could not be ended is told."""
        ...

    def last_words(self) -> dict[str, Any]:
        """How the process ended that calls are made of; it has closed its stream."""
        ...

    def close(self) -> None:
        """End everything."""
        ...
