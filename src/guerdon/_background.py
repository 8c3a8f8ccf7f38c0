"""The background loop: an event loop in a thread, for what outlives its caller's event loop.

There is one per process, however many environments and clients use it, so that what belongs to an
event loop (connections, limits, caches) survives from one step to the next, whether it is used by
synchronous code, under asyncio or under trio. It starts on first use and ends with the process.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import inspect
import os
import sys
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeAlias, TypeVar

from guerdon.errors import AsyncRubricError

T = TypeVar("T")
P = ParamSpec("P")

EXIT_S = 20.0  # for closing what is still open at the end of the process


class Closable(Protocol):
    """Something with an async `close`."""

    async def close(self) -> None:
        """Close it, on the background loop."""


class _Background:
    def __init__(self) -> None:
        self.process = os.getpid()
        self.open: weakref.WeakSet[Any] = weakref.WeakSet()
        self.closing = False
        self.loop = _fastest_loop()
        self.thread = threading.Thread(target=self._live, name="guerdon-background", daemon=True)
        self.thread.start()
        atexit.register(self.close)

    def _live(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self.closing:
            try:
                self.loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                continue  # a task raised it, and its waiter gets it; the others go on

    def close(self) -> None:
        if self.process == os.getpid() and not self.loop.is_closed():
            closing = [
                asyncio.run_coroutine_threadsafe(each.close(), self.loop) for each in self.open
            ]
            wait(closing, EXIT_S)
            self.closing = True
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(timeout=5)
            if not self.thread.is_alive():
                self.loop.close()


def _fastest_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # not available on this platform
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


# Reentrant: the garbage collector may run a finalizer that asks for the loop in this very thread.
_lock = threading.RLock()
_background: _Background | None = None


def background_loop() -> asyncio.AbstractEventLoop:
    """Return the loop; start it if it isn't running, as in a forked process."""
    global _background
    found = _background
    if found is not None and found.process == os.getpid():
        return found.loop
    with _lock:
        if _background is None or _background.process != os.getpid():
            _background = _Background()
        return _background.loop


def close_at_exit(opened: Closable) -> None:
    """Close something before the loop ends with the process, unless it is collected before."""
    background_loop()
    assert _background is not None
    _background.open.add(opened)


_Method: TypeAlias = "tuple[str, asyncio.AbstractEventLoop]"
_method: ContextVar[_Method | None] = ContextVar("guerdon_async_method", default=None)


@contextmanager
def no_waiting(method: str) -> Iterator[None]:
    """Make `run` raise inside this context on the running event loop, which it would block.

    Args:
        method: The author's method, for the error.
    """
    token = _method.set((method, asyncio.get_running_loop()))
    try:
        yield
    finally:
        _method.reset(token)


async def as_asyncio(coroutine: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine on that loop in the context of a caller that may run under trio.

    The context contains the name of the caller's library, and anyio would use it.
    """
    sniffio = sys.modules.get("sniffio")  # which comes with trio
    if sniffio is not None and sniffio.current_async_library_cvar.get() is not None:
        sniffio.current_async_library_cvar.set("asyncio")
    return await coroutine


def refuse_waiting(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Close a coroutine that the caller must not wait for, and raise.

    Raises:
        AsyncRubricError: The caller runs on the background loop, which can't wait for itself, or
            in an author's async method.
    """
    method = _method.get()
    if method is not None and asyncio._get_running_loop() is method[1]:
        coroutine.close()
        raise AsyncRubricError(
            f"sync code in {method[0]} waits for async code, and blocks the event loop; await "
            "it there: `await self.score_async(…)`, `await self.rubric.evaluate(…)`, "
            "`await self._reset_rubric_async()`"
        )
    if _background is not None and threading.current_thread() is _background.thread:
        coroutine.close()
        raise AsyncRubricError(
            "sync code that waits for async code was called on the background loop; "
            "use the async twin there, such as `await environment.step_async(…)`"
        )


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the background loop, in the caller's context, and wait for its result.

    Raises:
        AsyncRubricError: The caller runs on the background loop, which can't wait for itself, or
            in an author's async method.
        BaseException: What the coroutine raised. If waiting is interrupted, it is cancelled.
    """
    refuse_waiting(coroutine)
    loop = background_loop()
    future = asyncio.run_coroutine_threadsafe(as_asyncio(coroutine), loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


async def on_background(coroutine: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine that runs on the background loop, in the caller's context.

    If the caller is cancelled, so is the coroutine; the caller doesn't wait for its end.

    Example:
        >>> import asyncio
        >>> async def judge():
        ...     return 0.5
        >>> asyncio.run(on_background(judge()))
        0.5

    Raises:
        BaseException: What the coroutine raised.
    """
    loop = background_loop()
    here = asyncio._get_running_loop()
    if here is loop:
        return await coroutine
    if here is not None:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, loop))
    return await _under_trio(asyncio.run_coroutine_threadsafe(as_asyncio(coroutine), loop))


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


def wait_for(awaitable: Awaitable[T]) -> T:
    """Wait for any awaitable that isn't bound to a loop yet, such as the score of an async tree."""

    async def waiting() -> T:
        return await awaitable

    try:
        return run(waiting())
    except AsyncRubricError:
        if inspect.iscoroutine(awaitable):
            awaitable.close()
        raise


class SharedClient:
    """The base of clients whose connections all users share: each copy is the client itself."""

    async def _close(self) -> None:
        """Close the connections, on the background loop; the next call opens new ones."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        run(self._close())

    async def close_async(self) -> None:
        """Like `close`, in async code."""
        await on_background(self._close())

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close_async()


class SyncWrapper:
    """An async object for sync code; all of them share the background loop.

    Args:
        wrapped: An async context manager with an async `close`.
    """

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped

    def close(self) -> None:
        """Close it."""
        run(self._wrapped.close())

    def __enter__(self) -> Self:
        run(self._wrapped.__aenter__())
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def sync_method(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """Return the sync version of an async method, for a `SyncWrapper` of its class."""

    @functools.wraps(method)
    def call(self: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = run(getattr(self._wrapped, method.__name__)(*args, **kwargs))
        return result

    return call  # type: ignore[return-value]
