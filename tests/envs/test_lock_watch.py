"""LockWatch: which environment held the interpreter lock."""

import asyncio
import logging
import os
import threading
import time

import pytest

from guerdon import EnvPool, check_environment
from guerdon.envs.lock_watch import LockWatch, WatchedThread, lock_watch
from tests.envs.worlds import SOON, Board, Half, Move, World, hold_the_lock, lock_count

LOCK = "held the interpreter lock for"


class Stops(World):
    """Holds the lock in a step with a negative value, and waits in one with 0 for `gate`."""

    gate = None

    def step(self, action, timeout_s=None, **kwargs):
        if action.value < 0:
            hold_the_lock()
        if action.value == 0:
            assert self.gate.wait(SOON)
        return super().step(action)


class Async(World):
    rubric_of = Half

    async def reset_async(self, seed=None, **kwargs):
        return Board()

    async def step_async(self, action, timeout_s=None, **kwargs):
        async def task():
            if action.value < 0:
                time.sleep(0.4)
            if action.value > 1:
                hold_the_lock()

        await asyncio.create_task(task())
        return await self.score_async(action, Board())


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr("guerdon.envs.lock_watch.LONG_S", 0.2)
    lock_count()  # takes a while, the first time


@pytest.fixture
def gate():
    Stops.gate = threading.Event()
    yield Stops.gate
    Stops.gate.set()


def play(kind, values, timeout_s=SOON):
    async def main():
        async with EnvPool(kind, n=len(values), timeout_s=timeout_s) as pool:
            await pool.reset_batch()
            stepped = await pool.step_batch([Move(value=value) for value in values])
            return [(each.reward, each.metadata.get("error", "")) for each in stepped]

    return asyncio.run(main())


def test_lock_watch_names_the_environment_that_held_the_lock(caplog):
    began = time.monotonic()
    with caplog.at_level(logging.WARNING, "guerdon.envs"):
        play(Stops, [1, -1, 2])
        assert f"step of Stops in slot 1 {LOCK}" in lock_watch.since(began)
    assert "step of Stops in slot 1 held the interpreter lock" in caplog.text
    assert "slot 0" not in caplog.text
    assert "slot 2" not in caplog.text


def test_lock_watch_names_the_environment_in_the_errors_of_others(gate):
    (_, error), _ = play(Stops, [0, -1], timeout_s=1)
    assert (
        f"EnvTimeoutError: the step took longer than 1 s (step of Stops in slot 1 {LOCK}" in error
    )


def test_lock_watch_names_no_environment_whose_code_releases_the_lock(caplog, monkeypatch):
    monkeypatch.setattr("guerdon.envs.lock_watch.LONG_S", 1.0)  # the machine may be busy

    class Computes(World):
        def step(self, action, timeout_s=None, **kwargs):
            end = time.monotonic() + 1.2
            while time.monotonic() < end:
                pass
            return super().step(action)

    with caplog.at_level(logging.WARNING, "guerdon.envs"):
        play(Computes, [1, 1])
    assert "held" not in caplog.text


@pytest.mark.parametrize("value", [-1, 2], ids=["sleeps", "computes"])
def test_lock_watch_names_an_async_environment(caplog, value):
    with caplog.at_level(logging.WARNING, "guerdon.envs"):
        play(Async, [1, value])
    assert "step of Async in slot 1 block" in caplog.text
    assert "slot 0" not in caplog.text


def test_lock_watch_names_no_environment_if_other_code_blocks_the_event_loop(caplog):
    class Sleeps(Async):
        async def step_async(self, action, timeout_s=None, **kwargs):
            await asyncio.sleep(action.value)
            return await self.score_async(action, Board())

    async def main():
        async with EnvPool(Sleeps, n=2) as pool:
            await pool.reset_batch()
            async for _ in pool.as_completed([Move(value=0), Move(value=1)]):
                hold_the_lock()

    with caplog.at_level(logging.WARNING, "guerdon.envs"):
        asyncio.run(main())
    assert not caplog.text


def test_lock_watch_works_after_the_thread_of_an_event_loop_has_ended():
    loops = []

    def run_and_stop():  # with calls under way, so that it is never discarded
        loops.append(WatchedThread(runs_loop=True))
        lock_watch.add(loops[0])

    thread = threading.Thread(target=run_and_stop)
    thread.start()
    thread.join()
    time.sleep(0.2)  # the thread's clock ends a little later
    assert lock_watch.since(time.monotonic()) == ""


def test_lock_watch_ends_its_thread_with_the_last_that_it_watches():
    watch, watched, before = LockWatch(), WatchedThread(), set(threading.enumerate())
    watch.add(watched)
    [thread] = set(threading.enumerate()) - before
    watch.discard(watched)
    thread.join(SOON)
    assert not thread.is_alive()


@pytest.mark.edge
def test_lock_watch_works_in_a_forked_process(gate):
    async def main():
        async with EnvPool(Stops, n=1) as pool:
            await pool.reset_batch()
            child = os.fork()
            if not child:
                os._exit(bool(lock_watch.since(0.0)) or lock_watch._watcher is not None)
            return os.waitpid(child, 0)[1]

    assert asyncio.run(main()) == 0


def test_check_environment_notes_code_that_holds_the_interpreter_lock():
    held = []

    class Once(World):
        def step(self, action, timeout_s=None, **kwargs):
            if not held:
                held.append(hold_the_lock())
            return super().step(action)

    report = check_environment(Once, steps=1)
    [line] = [line for line in report.lines if line.name == "others run meanwhile"]
    assert line.status == "note"
    assert f"step of Once {LOCK}" in line.detail


def test_check_environment_has_no_note_of_code_that_lets_others_run():
    report = check_environment(Stops, actions=[{"value": 1.0}], steps=1)
    assert "others run meanwhile" not in [line.name for line in report.lines]
