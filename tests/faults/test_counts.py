"""Each of the five counts of `make faults` notices what it counts."""

import asyncio
import subprocess
import sys
import tempfile
import threading

import pytest

from faults import worlds
from faults.counts import COUNTS, DOUBLED, LEFT, LOST, NUMBERS, SLOTS, Ledger, tasks_left, watched
from faults.pool import Player
from guerdon import EnvPool

FAULTS = ["environment raises", "rubric raises", "rubric returns nan"]


class Swapping(EnvPool):
    """Swaps the answers of the first two slots."""

    async def step_batch(self, actions, **options):
        first, second, *others = await super().step_batch(actions, **options)
        return [second, first, *others]


class Losing(EnvPool):
    """Loses the answer of the first slot."""

    async def step_batch(self, actions, **options):
        _, *others = await super().step_batch(actions, **options)
        return [None, *others]


class Repeating(EnvPool):
    """Takes the step of the first slot twice."""

    async def step_batch(self, actions, **options):
        await super().step_batch([actions[0]] + [None] * (self.n - 1), **options)
        return await super().step_batch(actions, **options)


class Zeroing(EnvPool):
    """Turns failures into 0.0."""

    async def step_batch(self, actions, **options):
        observations = await super().step_batch(actions, **options)
        for each in observations:
            if each is not None and each.reward is None:
                each.reward = 0.0
        return observations


@pytest.fixture
def ledger(tmp_path):
    return Ledger("test", 7, tmp_path)


def counted(ledger, pool_type):
    """Play a few batches, and return how many problems of each kind were found."""

    async def main():
        async with pool_type(worlds.World, n=4) as pool:
            player = Player(ledger, pool, FAULTS, first=0)
            for _ in range(30):
                await player.reset()
                await player.batch()

    worlds.taken.clear()
    asyncio.run(main())
    ledger.take(worlds.taken)
    return {name: len(problems) for name, problems in ledger.problems().items() if problems}


def test_ledger_counts_nothing_for_a_pool_that_works(ledger):
    assert counted(ledger, EnvPool) == {}
    assert ledger.injected.total() > 10
    assert ledger.report().steps > 100


@pytest.mark.parametrize(
    ("pool_type", "count"),
    [(Swapping, SLOTS), (Losing, LOST), (Repeating, DOUBLED), (Zeroing, NUMBERS)],
)
def test_ledger_counts_what_a_wrong_pool_does(ledger, pool_type, count):
    assert counted(ledger, pool_type)[count] > 5


@pytest.mark.parametrize("score", [0.0, 1e9, float("nan")])
def test_ledger_counts_a_number_that_no_step_has(ledger, score):
    ticket = ledger.issue(("slot", 1))
    ledger.take([ticket])
    ledger.answer(ticket, score)
    assert [name for name, problems in ledger.problems().items() if problems] == [NUMBERS]


def test_ledger_counts_an_error_that_names_the_step_of_another_slot(ledger):
    first, second = ledger.issue(("slot", 1), "raises"), ledger.issue(("slot", 2), "raises")
    ledger.answer(first, None, error=f"ValueError: fault #{second}")
    ledger.answer(second, None, error=f"ValueError: fault #{second}")
    assert [len(ledger.problems()[name]) for name in COUNTS] == [0, 1, 0, 0, 0]


def leave_thread(until):
    thread = threading.Thread(target=until.wait, name="left")
    thread.start()
    return thread.join


def leave_descriptor(until):
    return tempfile.TemporaryFile().close


def leave_process(until):
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    return process.communicate


def leave_file(until):
    return tempfile.NamedTemporaryFile(prefix="left").close


@pytest.mark.parametrize("leave", [leave_thread, leave_descriptor, leave_process, leave_file])
def test_watched_counts_what_is_left_behind(ledger, leave):
    until = threading.Event()
    with watched(ledger, settle_s=0.0):
        end = leave(until)
    until.set()
    end()
    kind = leave.__name__.removeprefix("leave_")
    assert any(each.startswith(kind) for each in ledger.problems()[LEFT])


def test_tasks_left_returns_the_tasks_that_still_run():
    async def main():
        assert tasks_left() == []
        task = asyncio.create_task(asyncio.Event().wait())
        assert len(tasks_left()) == 1
        task.cancel()

    asyncio.run(main())
