"""The event loop of a scorer, in which its async reward runs."""

import asyncio

import pytest

from guerdon import NumericAnswer
from guerdon._background import background_loop
from guerdon.rollouts.scoring.scorers import RubricScorer


@pytest.fixture
def loop():
    with RubricScorer(NumericAnswer()) as scorer:
        yield scorer


async def running():
    return asyncio.get_running_loop()


async def raises(error):
    raise error


def test_scorer_runs_all_coroutines_in_one_loop(loop):
    assert loop._run(running()) is loop._run(running())


def test_scorer_loop_keeps_its_tasks_between_calls(loop):
    async def begin():
        return asyncio.get_running_loop().create_task(asyncio.sleep(0, "given"))

    async def end(task):
        return await task

    assert loop._run(end(loop._run(begin()))) == "given"


def test_scorer_runs_a_coroutine_in_the_background_loop_beside_a_running_one(loop):
    async def main():
        return loop._run(running()), asyncio.get_running_loop()

    used, outer = asyncio.run(main())
    assert used is background_loop()
    assert used is not outer
    assert loop._run(running()) not in (used, outer)


class Mine(BaseException):
    pass


@pytest.mark.parametrize(
    "error", [ValueError("no"), asyncio.CancelledError(), SystemExit(3), Mine("mine")], ids=repr
)
def test_scorer_raises_what_a_coroutine_raises_and_continues(loop, error):
    first = loop._run(running())
    with pytest.raises(type(error)) as raised:
        loop._run(raises(error))
    assert raised.value is error or isinstance(error, asyncio.CancelledError)
    assert loop._run(running()) is first


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

    first = loop._run(running())
    task = loop._run(begin())
    loop.close()
    assert first.is_closed()
    assert (ended, task.cancelled()) == (["task"], True)


def test_scorer_can_be_closed_twice_and_used_again(loop):
    loop.close()  # it was never used
    first = loop._run(running())
    loop.close()
    loop.close()
    assert loop._run(running()) is not first


def test_scorer_leaves_no_loop_behind(loop):
    loop._run(running())
    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()
