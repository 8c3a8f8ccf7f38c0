"""Worker threads, for what is sync and would block an event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread

__all__ = ["in_thread"]

T = TypeVar("T")


async def in_thread(
    limiter: anyio.CapacityLimiter | None, function: Callable[..., T], *args: object
) -> T:
    """Run a function in a worker thread; when cancelled, leave it behind to end by itself."""
    return await anyio.to_thread.run_sync(function, *args, limiter=limiter, abandon_on_cancel=True)
