"""What belongs to the background loop, awaited from elsewhere."""

import asyncio
import contextvars
import threading

import anyio
import pytest
import sniffio
import trio

from guerdon._background import background_loop, run
from guerdon.services.bridging import on_background


def under_asyncio(function):
    return asyncio.run(function())


def under_trio(function):
    return trio.run(function)


anywhere = pytest.mark.parametrize("running", [under_asyncio, under_trio, lambda f: run(f())],
                                   ids=["asyncio", "trio", "background"])  # fmt: skip
elsewhere = pytest.mark.parametrize("running", [under_asyncio, under_trio], ids=["asyncio", "trio"])


@anywhere
def test_the_coroutine_runs_on_the_background_loop(running):
    async def which():
        return asyncio.get_running_loop()

    async def caller():
        return await on_background(which())

    assert running(caller) is background_loop()


@anywhere
def test_what_is_raised_is_raised_as_it_is(running):
    error = OSError("down")

    async def fails():
        raise error

    async def caller():
        await on_background(fails())

    with pytest.raises(OSError, match="down") as caught:
        running(caller)
    assert caught.value is error


@anywhere
def test_it_runs_in_the_callers_context(running):
    name = contextvars.ContextVar("name", default="nobody's")

    async def whose():
        return name.get()

    async def caller():
        name.set("the caller's")
        return await on_background(whose())

    assert running(caller) == "the caller's"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_anyio_works_in_it_whatever_the_caller_runs_on(backend):
    async def sleeps():
        await anyio.sleep(0)
        return sniffio.current_async_library()

    async def caller():
        return await on_background(sleeps())

    assert anyio.run(caller, backend=backend) == "asyncio"


def cancelled_coroutine():
    """A coroutine that hangs, and what says that it began and that it was cancelled."""
    began, cancelled = threading.Event(), threading.Event()

    async def hangs():
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    return hangs, began, cancelled


def test_a_caller_that_is_cancelled_under_asyncio_cancels_it():
    hangs, began, cancelled = cancelled_coroutine()

    async def caller():
        task = asyncio.create_task(on_background(hangs()))
        await asyncio.to_thread(began.wait, 5)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(caller())
    assert cancelled.wait(5)


def test_a_caller_that_is_cancelled_under_trio_cancels_it():
    hangs, began, cancelled = cancelled_coroutine()

    async def caller():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(on_background, hangs())
            await trio.to_thread.run_sync(began.wait, 5)
            nursery.cancel_scope.cancel()

    trio.run(caller)
    assert cancelled.wait(5)


@elsewhere
def test_many_wait_at_the_same_time(running):
    async def both(barrier):
        await barrier.wait()
        return 1

    async def made():
        return asyncio.Barrier(100)

    async def caller():
        barrier = await on_background(made())
        given = []

        async def one():
            given.append(await on_background(both(barrier)))

        if running is under_trio:
            async with trio.open_nursery() as nursery:
                for _ in range(100):
                    nursery.start_soon(one)
        else:
            await asyncio.gather(*(one() for _ in range(100)))
        return sum(given)

    assert running(caller) == 100
