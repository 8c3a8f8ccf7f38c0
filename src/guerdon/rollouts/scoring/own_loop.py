"""`OwnLoop`: an event loop in which a scorer waits for an async reward."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

from guerdon.errors import AsyncRubricError

__all__ = ["LoopRunningError", "OwnLoop"]

T = TypeVar("T")


class LoopRunningError(AsyncRubricError):
    """The caller's mistake, and no rollout's."""


class OwnLoop:
    """An event loop that is made when it is first needed, and kept until it is closed.

    What belongs to a loop, such as the connection of a judge, survives from rollout to rollout.
    """

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None

    def run(self, coroutine: Coroutine[Any, Any, T], name: str) -> T:
        """Wait for a coroutine.

        Args:
            coroutine: What to wait for.
            name: The reward's, for the error.

        Raises:
            LoopRunningError: An event loop is running here already.
            BaseException: What the coroutine raised.
        """
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            coroutine.close()
            raise LoopRunningError(
                f"{name} is async, and an event loop is running here already; score rollouts "
                "outside of it, or in a thread of their own"
            )
        self._runner = self._runner or asyncio.Runner()
        return self._runner.run(coroutine)

    def close(self) -> None:
        """Close the loop; it may be used again."""
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()
