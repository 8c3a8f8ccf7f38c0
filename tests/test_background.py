"""The background event loop, on which sync code runs async code."""

import asyncio
import contextvars
import os
import subprocess
import sys
import threading

import anyio
import pytest
import sniffio
import trio

from guerdon._background import background_loop, on_background, run, wait_for
from guerdon.errors import AsyncRubricError


async def answer(value):
    await asyncio.sleep(0)
    return value


def test_run_and_wait_for_return_the_result():
    assert run(answer(42)) == 42
    assert wait_for(answer(42)) == 42


def test_wait_for_accepts_any_awaitable():
    class Awaitable:
        def __await__(self):
            return answer("given").__await__()

    assert wait_for(Awaitable()) == "given"


def test_run_raises_the_coroutines_error():
    error = OSError("down")

    async def fails():
        raise error

    with pytest.raises(OSError, match="down") as caught:
        run(fails())
    assert caught.value is error


def test_run_uses_one_loop_in_all_threads():
    loops = []
    barrier = threading.Barrier(4, timeout=5)

    async def which():
        return asyncio.get_running_loop()

    def ask():
        barrier.wait()
        loops.append(run(which()))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert len(loops) == 4
    assert set(loops) == {background_loop()}


def test_run_works_inside_a_running_loop():
    async def main():
        return run(answer(1)), asyncio.get_running_loop() is background_loop()

    assert asyncio.run(main()) == (1, False)


def test_run_works_in_many_threads_at_the_same_time():
    """Each coroutine waits for the others: running them in turn would deadlock."""
    barrier = asyncio.Barrier(3)

    async def meet():
        async with asyncio.timeout(5):
            await barrier.wait()
        return 3

    found = []
    threads = [threading.Thread(target=lambda: found.append(run(meet()))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert found == [3, 3, 3]


def test_run_uses_the_context_of_the_caller():
    variable = contextvars.ContextVar("variable", default="none")
    variable.set("the caller's")

    async def look():
        return variable.get()

    assert run(look()) == "the caller's"


def test_run_is_rejected_on_the_background_loop():
    async def inner():
        return run(answer(1))

    with pytest.raises(AsyncRubricError, match="use the async twin"):
        run(inner())
    assert run(answer(2)) == 2


def test_run_cancels_the_coroutine_when_interrupted(monkeypatch):
    import concurrent.futures

    cancelled = threading.Event()
    started = threading.Event()

    async def waits():
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    def interrupted(future, timeout=None):
        assert started.wait(5)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(concurrent.futures.Future, "result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(waits())
    assert cancelled.wait(5)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_background_loop_of_a_forked_process_is_its_own():
    assert run(answer(1)) == 1
    child = os.fork()
    if child == 0:  # the child must not return to pytest
        code = 1
        try:
            code = 0 if run(answer(3)) == 3 else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert run(answer(4)) == 4


@pytest.mark.edge
def test_background_loop_ends_with_the_process():
    program = (
        "import asyncio, threading\n"
        "from guerdon._background import background_loop, run\n"
        "async def ready(): pass\n"
        "run(ready())\n"
        "async def waits(): await asyncio.Event().wait()\n"
        "threading.Thread(target=lambda: run(waits()), daemon=True).start()\n"
        "print('over')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "over\n")


# Other event loops


def under_asyncio(function):
    return asyncio.run(function())


def under_trio(function):
    return trio.run(function)


anywhere = pytest.mark.parametrize("running", [under_asyncio, under_trio, lambda f: run(f())],
                                   ids=["asyncio", "trio", "background"])  # fmt: skip
elsewhere = pytest.mark.parametrize("running", [under_asyncio, under_trio], ids=["asyncio", "trio"])


@anywhere
def test_on_background_runs_on_the_background_loop(running):
    async def which():
        return asyncio.get_running_loop()

    async def caller():
        return await on_background(which())

    assert running(caller) is background_loop()


@anywhere
def test_on_background_raises_the_coroutines_error(running):
    error = OSError("down")

    async def fails():
        raise error

    async def caller():
        await on_background(fails())

    with pytest.raises(OSError, match="down") as caught:
        running(caller)
    assert caught.value is error


@anywhere
def test_on_background_uses_the_context_of_the_caller(running):
    name = contextvars.ContextVar("name", default="the default")

    async def whose():
        return name.get()

    async def caller():
        name.set("the caller's")
        return await on_background(whose())

    assert running(caller) == "the caller's"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_on_background_runs_anyio_under_asyncio(backend):
    async def sleeps():
        await anyio.sleep(0)
        return sniffio.current_async_library()

    async def caller():
        return await on_background(sleeps())

    assert anyio.run(caller, backend=backend) == "asyncio"


def cancelled_coroutine():
    """Return a coroutine that hangs, and events for its start and its cancellation."""
    began, cancelled = threading.Event(), threading.Event()

    async def hangs():
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    return hangs, began, cancelled


def test_on_background_is_cancelled_with_its_caller_under_asyncio():
    hangs, began, cancelled = cancelled_coroutine()

    async def caller():
        task = asyncio.create_task(on_background(hangs()))
        await asyncio.to_thread(began.wait, 5)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(caller())
    assert cancelled.wait(5)


def test_on_background_is_cancelled_with_its_caller_under_trio():
    hangs, began, cancelled = cancelled_coroutine()

    async def caller():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(on_background, hangs())
            await trio.to_thread.run_sync(began.wait, 5)
            nursery.cancel_scope.cancel()

    trio.run(caller)
    assert cancelled.wait(5)


@elsewhere
def test_on_background_runs_many_at_the_same_time(running):
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
