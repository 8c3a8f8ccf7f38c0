"""Awaiting, from whatever loop, what belongs to the one background loop.

The connections, limits and caches of services belong to one event loop, whoever asks for them:
sync code, code on an asyncio loop of its own, code under trio.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from guerdon._background import as_asyncio, background_loop

__all__ = ["on_background"]

T = TypeVar("T")


async def on_background(coroutine: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine that runs on the background loop, in the caller's context.

    Where the caller is cancelled, the coroutine is, too; it isn't waited for.

    Example:
        >>> import asyncio
        >>> async def judge():
        ...     return 0.5
        >>> asyncio.run(on_background(judge()))
        0.5

    Args:
        coroutine: It starts at once.

    Returns:
        What the coroutine gives.

    Raises:
        BaseException: What the coroutine raised.
    """
    home = background_loop()
    here = asyncio._get_running_loop()
    if here is home:
        return await coroutine
    if here is not None:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, home))
    return await _under_trio(asyncio.run_coroutine_threadsafe(as_asyncio(coroutine), home))


async def _under_trio(future: Future[T]) -> T:
    import trio  # which is running

    done = trio.Event()
    token = trio.lowlevel.current_trio_token()
    future.add_done_callback(lambda _: token.run_sync_soon(done.set))
    try:
        await done.wait()
    finally:
        future.cancel()
    return future.result()
