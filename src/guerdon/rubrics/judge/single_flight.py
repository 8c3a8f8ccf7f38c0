"""Asking once where several ask the same at the same time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

__all__ = ["Flights"]


@dataclass(slots=True)
class _Flight:
    task: asyncio.Task[str]
    waiting: int = 0


class Flights:
    """What is being asked just now, by its key; it belongs to the background loop."""

    def __init__(self) -> None:
        self._under_way: dict[tuple[int, str], _Flight] = {}

    async def join(self, key: str, ask: Callable[[], Coroutine[Any, Any, str]]) -> str:
        """Ask, or wait for who already does.

        Whoever is cancelled leaves the others theirs; the last to leave cancels the question.

        Args:
            key: Says which questions are the same.
            ask: Asks.
        """
        here = (os.getpid(), key)  # what a parent process asks, its fork will never hear
        flight = self._under_way.get(here)
        if flight is None:
            task = asyncio.ensure_future(ask())
            flight = self._under_way[here] = _Flight(task)
            task.add_done_callback(lambda _: self._land(here, task))
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        except asyncio.CancelledError:
            if flight.waiting == 1 and not flight.task.done():
                self._land(here, flight.task)  # whoever asks now asks anew
                flight.task.cancel()
            raise
        finally:
            flight.waiting -= 1

    def _land(self, here: tuple[int, str], task: asyncio.Task[str]) -> None:
        flight = self._under_way.get(here)
        if flight is not None and flight.task is task:  # and not the one after it
            del self._under_way[here]
