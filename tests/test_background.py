"""The event loop in a thread, where sync code has async code run."""

import asyncio
import contextvars
import os
import subprocess
import sys
import threading

import pytest

from guerdon._background import background_loop, run, wait_for
from guerdon.errors import AsyncRubricError


async def answer(value):
    await asyncio.sleep(0)
    return value


def test_sync_code_gets_what_async_code_gives():
    assert run(answer(42)) == 42
    assert wait_for(answer(42)) == 42


def test_anything_that_can_be_awaited_is_waited_for():
    class Awaitable:
        def __await__(self):
            return answer("given").__await__()

    assert wait_for(Awaitable()) == "given"


def test_what_is_raised_is_raised_as_it_is():
    error = OSError("down")

    async def fails():
        raise error

    with pytest.raises(OSError, match="down") as caught:
        run(fails())
    assert caught.value is error


def test_there_is_one_loop_whoever_waits():
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


def test_it_works_inside_of_a_running_event_loop():
    async def main():
        return run(answer(1)), asyncio.get_running_loop() is background_loop()

    assert asyncio.run(main()) == (1, False)


def test_many_threads_wait_at_the_same_time():
    """Each answers only when all are there: one after the other would wait for ever."""
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


def test_the_context_of_the_caller_goes_along():
    variable = contextvars.ContextVar("variable", default="none")
    variable.set("the caller's")

    async def look():
        return variable.get()

    assert run(look()) == "the caller's"


def test_the_loop_itself_cant_wait_for_itself():
    async def inner():
        return run(answer(1))

    with pytest.raises(AsyncRubricError, match="use the async twin"):
        run(inner())
    assert run(answer(2)) == 2


def test_where_waiting_is_interrupted_the_coroutine_is_cancelled(monkeypatch):
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
def test_a_forked_process_has_a_loop_of_its_own():
    assert run(answer(1)) == 1
    child = os.fork()
    if child == 0:  # it may do nothing that pytest would hear of
        code = 1
        try:
            code = 0 if run(answer(3)) == 3 else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert run(answer(4)) == 4


def test_it_ends_with_the_process_also_while_something_waits_in_it():
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
