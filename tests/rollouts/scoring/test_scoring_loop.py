"""ScoringLoop: an event loop in a thread of its own."""

import asyncio
import concurrent.futures
import contextvars
import threading

import pytest

from guerdon._background import on_background
from guerdon.errors import AsyncRubricError
from guerdon.rollouts.scoring.scoring_loop import ScoringLoop


@pytest.fixture
def loop():
    loop = ScoringLoop()
    yield loop
    loop.close()


async def running():
    return asyncio.get_running_loop()


async def raises(error):
    raise error


def test_scoring_loop_runs_all_coroutines_in_one_loop(loop):
    assert loop.run(running()) is loop.run(running())


def test_scoring_loop_keeps_its_tasks_between_calls(loop):
    async def begin():
        return asyncio.get_running_loop().create_task(asyncio.sleep(0, "given"))

    async def end(task):
        return await task

    assert loop.run(end(loop.run(begin()))) == "given"


def test_scoring_loop_goes_on_while_its_owner_does_something_else(loop):
    ended = threading.Event()

    async def several_turns():
        for _ in range(3):
            await asyncio.sleep(0)
        ended.set()

    future = loop.start(several_turns())
    assert ended.wait(20)
    assert future.result() is None


def test_scoring_loop_runs_a_coroutine_in_the_context_of_the_caller(loop):
    name = contextvars.ContextVar("name", default="none")

    async def read():
        return name.get()

    name.set("mine")
    assert loop.run(read()) == "mine"


def test_scoring_loop_runs_beside_the_event_loop_of_the_caller(loop):
    async def main():
        return loop.run(running()) is not asyncio.get_running_loop()

    assert asyncio.run(main())


def test_scoring_loop_is_not_waited_for_on_the_background_loop(loop):
    async def main():
        return loop.run(running())

    with pytest.raises(AsyncRubricError, match="on the background loop"):
        asyncio.run(on_background(main()))


class Mine(BaseException):
    pass


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (ValueError("no"), ValueError),
        (asyncio.CancelledError(), concurrent.futures.CancelledError),
        (SystemExit(3), SystemExit),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (Mine("mine"), Mine),
    ],
    ids=repr,
)
def test_scoring_loop_raises_what_a_coroutine_raises_and_continues(loop, error, raised):
    first = loop.run(running())
    with pytest.raises(raised):
        loop.run(raises(error))
    assert loop.run(running()) is first


def test_scoring_loop_close_ends_its_tasks_and_its_thread(loop):
    ended = []

    async def endless():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("task")

    first = loop.run(running())
    future = loop.start(endless())
    loop.run(running())  # the task has begun
    loop.close()
    assert first.is_closed()
    assert ended == ["task"]
    assert future.cancelled()
    assert not any(thread.name == "guerdon-scoring" for thread in threading.enumerate())


def test_scoring_loop_can_be_closed_twice_and_used_again(loop):
    loop.close()  # it was never used
    first = loop.run(running())
    loop.close()
    loop.close()
    assert loop.run(running()) is not first
