"""The event loop of a scorer, in which its async reward runs."""

import asyncio
import inspect

import pytest

from guerdon import NumericAnswer
from guerdon.errors import AsyncRubricError
from guerdon.rollouts.scoring.scorers import LoopRunningError, RubricScorer


@pytest.fixture
def loop():
    with RubricScorer(NumericAnswer()) as scorer:
        yield scorer


async def running():
    return asyncio.get_running_loop()


async def raises(error):
    raise error


def test_scorer_runs_all_coroutines_in_one_loop(loop):
    assert loop._run(running(), "r") is loop._run(running(), "r")


def test_scorer_loop_keeps_its_tasks_between_calls(loop):
    async def begin():
        return asyncio.get_running_loop().create_task(asyncio.sleep(0, "given"))

    async def end(task):
        return await task

    assert loop._run(end(loop._run(begin(), "r")), "r") == "given"


def test_scorer_rejects_and_closes_a_coroutine_beside_a_running_loop(loop):
    async def main():
        coroutine = running()
        with pytest.raises(LoopRunningError, match="quality is async, and an event loop is"):
            loop._run(coroutine, "quality")
        return coroutine

    assert inspect.getcoroutinestate(asyncio.run(main())) == inspect.CORO_CLOSED
    assert issubclass(LoopRunningError, AsyncRubricError)
    assert isinstance(loop._run(running(), "quality"), asyncio.AbstractEventLoop)


class Mine(BaseException):
    pass


@pytest.mark.parametrize(
    "error", [ValueError("no"), asyncio.CancelledError(), SystemExit(3), Mine("mine")], ids=repr
)
def test_scorer_raises_what_a_coroutine_raises_and_continues(loop, error):
    first = loop._run(running(), "r")
    with pytest.raises(type(error)) as raised:
        loop._run(raises(error), "r")
    assert raised.value is error or isinstance(error, asyncio.CancelledError)
    assert loop._run(running(), "r") is first


def test_scorer_close_closes_the_loop_and_its_tasks(loop):
    ended = []

    async def begin():
        async def endless():
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("task")

        task = asyncio.get_running_loop().create_task(endless())
        await asyncio.sleep(0)
        return task

    first = loop._run(running(), "r")
    task = loop._run(begin(), "r")
    loop.close()
    assert first.is_closed()
    assert (ended, task.cancelled()) == (["task"], True)


def test_scorer_can_be_closed_twice_and_used_again(loop):
    loop.close()  # it was never used
    first = loop._run(running(), "r")
    loop.close()
    loop.close()
    assert loop._run(running(), "r") is not first


def test_scorer_leaves_no_loop_behind(loop):
    loop._run(running(), "r")
    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()
