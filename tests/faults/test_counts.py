"""Each of the six counts of `make faults` notices what it counts."""

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from faults import worlds
from faults.counts import (
    COUNTS,
    DOUBLED,
    HEALED,
    LEFT,
    LOST,
    NUMBERS,
    SLOTS,
    Ledger,
    tasks_left,
    watched,
)
from faults.player import Player
from guerdon import EnvPool, Observation
from guerdon.envs import ThreadBackend
from guerdon.errors import EnvError

FAULTS = {"": 4.0, worlds.LARGE: 2.0} | dict.fromkeys(
    ["environment raises", "rubric raises", "rubric returns nan"], 0.4
)


class Changing(ThreadBackend):
    """Changes each call before the pool sees its result."""

    def submit(self, calls):
        for call in calls:
            call.finished = partial(self.finished, call.finished)
        super().submit(calls)

    def finished(self, then, call):
        self.change(call)
        then(call)


class Zeroing(Changing):
    """Turns failures into 0.0."""

    def change(self, call):
        if call.observation is None or call.observation.reward is None:
            call.observation, call.error = Observation(reward=0.0), None


class Losing(Changing):
    """Loses some answers."""

    steps = 0

    def change(self, call):
        self.steps += not call.is_reset
        if self.steps % 5 == 0:
            call.observation, call.error = None, EnvError("the connection was lost")


class NeverHealing(Changing):
    """Never makes a new environment for a slot that failed."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.failed = set()

    def change(self, call):
        if call.error is not None:
            self.failed.add(call.slot)
        if call.is_reset and call.slot in self.failed:
            call.observation, call.error = None, EnvError("the process has ended")


class Overwriting(Changing):
    """Uses the memory of an array again for the next."""

    memory = np.zeros(worlds.FRAME, np.uint8)

    def change(self, call):
        if (frame := getattr(call.observation, "frame", None)) is not None:
            self.memory[:] = frame
            call.observation.frame = self.memory


class Swapping(ThreadBackend):
    """Sends each action to the environment of the next slot."""

    def submit(self, calls):
        def ended(call, own):
            call.finish(own.observation, own.error)

        others = [call.slot for call in (*calls[1:], calls[0])]
        if not calls[0].is_reset:
            calls = [
                replace(call, slot=other, finished=partial(ended, call))
                for call, other in zip(calls, others, strict=True)
            ]
        super().submit(calls)


class Repeating(ThreadBackend):
    """Takes each step twice."""

    def submit(self, calls):
        def again(call, first):
            super(Repeating, self).submit([call])

        if calls[0].is_reset:
            super().submit(calls)
        else:
            super().submit([replace(call, finished=partial(again, call)) for call in calls])


@pytest.fixture
def ledger(tmp_path):
    return Ledger("test", 7, tmp_path)


def counted(ledger, backend_type):
    """Play a few batches, and return how many problems of each kind were found."""

    async def main():
        backend = backend_type(worlds.World, 4)
        async with EnvPool(backend=backend, n=4) as pool:
            await Player(ledger, pool, FAULTS, first=0).play(120)

    worlds.taken.clear()
    asyncio.run(main())
    ledger.take(worlds.taken)
    return {name: len(problems) for name, problems in ledger.problems().items() if problems}


def test_ledger_counts_nothing_for_a_backend_that_works(ledger):
    assert counted(ledger, ThreadBackend) == {}
    assert ledger.injected.total() > 10
    assert ledger.report().steps > 100


@pytest.mark.parametrize(
    ("backend_type", "count"),
    [
        (Swapping, SLOTS),
        (Overwriting, SLOTS),
        (Losing, LOST),
        (Repeating, DOUBLED),
        (NeverHealing, HEALED),
        (Zeroing, NUMBERS),
    ],
)
def test_ledger_counts_what_a_wrong_backend_does(ledger, backend_type, count):
    assert counted(ledger, backend_type)[count] > 5


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
    assert [len(ledger.problems()[name]) for name in COUNTS] == [0, 1, 0, 0, 0, 0]


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


def leave_segment(until):
    segment = Path(f"/dev/shm/left-{os.getpid()}")
    segment.touch()  # no process maps it
    return segment.unlink


@pytest.mark.parametrize(
    "leave", [leave_thread, leave_descriptor, leave_process, leave_file, leave_segment]
)
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
