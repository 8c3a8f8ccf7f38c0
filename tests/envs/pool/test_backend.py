"""ThreadBackend: sync environments in threads, async ones in the loop, and what hangs."""

import asyncio
import logging
import signal
import subprocess
import sys
import threading

import anyio
import pytest

from guerdon import Environment, EnvPool
from guerdon.envs.pool.backend import ThreadBackend
from guerdon.errors import EpisodeError
from tests.envs.worlds import SOON, AsyncDown, Board, Half, Move, World, taken, unsigned

SHORT = 0.2
BLOCK = Move(value=-1)


def play(main):
    """Run a test in a loop where nothing may be left to the loop's own error handler."""
    heard = []

    async def limited():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: heard.append(context))
        async with asyncio.timeout(SOON):
            return await main()

    result = asyncio.run(limited())
    assert not heard
    return result


def rewards(observations):
    return [each and each.reward for each in observations]


class AsyncWorld(World):
    """Its steps and resets are async; negative actions wait until they are cancelled."""

    reset, step = Environment.reset, Environment.step
    notes = None

    def __init__(self, rubric=None):
        super().__init__(rubric)
        self.note("made")

    async def reset_async(self, seed=None, episode_id=None, **kwargs):
        await asyncio.sleep(0)
        return World.reset(self, seed, episode_id, **kwargs)

    async def step_async(self, action, timeout_s=None, **kwargs):
        if action.value < 0:
            self.note("waits")
            try:
                await asyncio.Event().wait()
            finally:
                await self.tidy_up()
        await asyncio.sleep(0)
        self.episode.step_count += 1
        return await self.score_async(action, Board(value=action.value))

    async def tidy_up(self):
        self.note("cancelled")

    def close(self):
        self.note("closed")
        if self.notes is not None:
            self.closes.release()

    def note(self, what):
        if self.notes is not None:
            self.notes.append(what)


class Mixed(AsyncWorld):
    """Only its steps are async."""

    reset = World.reset
    reset_async = Environment.reset_async


@pytest.fixture(params=[AsyncWorld, Mixed])
def kind(request):
    return type("Noted", (request.param,), {"notes": [], "closes": threading.Semaphore(0)})


def failed(observation, *texts):
    return (
        observation.reward is None
        and observation.done
        and list(observation.metadata) == ["error"]
        and all(each in observation.metadata["error"] for each in texts)
    )


def refused(observation, *texts):
    """Whether an observation reports that an action was refused; its episode goes on."""
    return (
        observation.reward is None
        and not observation.done
        and list(observation.metadata) == ["error"]
        and observation.metadata["error"].startswith("InvalidActionError: ")
        and all(each in observation.metadata["error"] for each in texts)
    )


# Async environments ---------------------------------------------------------------------------


def test_thread_backend_async_environments_play_in_the_order_of_the_actions(kind):
    async def main():
        async with EnvPool(kind, n=3) as pool:
            first = await pool.reset_batch(7, task=1)
            assert [each.metadata for each in first] == [
                {"seed": seed, "task": 1} for seed in (7, 8, 9)
            ]
            stepped = await pool.step_batch([Move(value=1), None, {"value": 3}])
            assert rewards(stepped) == [1.0, None, 3.0]
            assert unsigned(stepped[0].metadata) == {"reward_components": {}}

    play(main)
    assert kind.notes == ["made"] * 3 + ["closed"] * 3


def test_thread_backend_async_steps_run_in_the_loop_and_async_environments_are_made_off_it():
    where = {}

    class Where(AsyncWorld):
        def __init__(self):
            super().__init__()
            where["made"] = threading.current_thread()

        async def reset_async(self, seed=None, **kwargs):
            where["reset"] = threading.current_thread()
            return await super().reset_async(seed)

        async def step_async(self, action, timeout_s=None, **kwargs):
            where["step"] = threading.current_thread()
            return await super().step_async(action)

        def close(self):
            where["closed"] = threading.current_thread()

    async def main():
        async with EnvPool(Where, n=1) as pool:
            await pool.reset_batch()
            await pool.step_batch([Move()])

    play(main)
    here = threading.current_thread()
    assert (where["reset"], where["step"]) == (here, here)
    assert here not in (where["made"], where["closed"])


def test_thread_backend_a_dict_that_is_no_action_is_reported_and_the_episode_continues(kind):
    async def main():
        async with EnvPool(kind, n=1) as pool:
            await pool.reset_batch()
            (bad,) = await pool.step_batch([{"valu": 1}])
            assert refused(bad, "the action is not a valid Move: valu")
            assert rewards(await pool.step_batch([{"value": 2}])) == [2.0]

    play(main)
    assert kind.notes.count("made") == 1


class Mine(BaseException):
    pass


@pytest.mark.parametrize("error", [OSError, SystemExit, asyncio.CancelledError, Mine])
@pytest.mark.parametrize("where", ["reset", "step"])
def test_thread_backend_an_async_environment_that_raises_is_reported_at_once_and_made_anew(
    kind, error, where
):
    armed = []

    class Raises(kind):
        async def step_async(self, action, timeout_s=None, **kwargs):
            if armed and where == "step":
                raise error("mine")
            return await super().step_async(action)

        if kind.__mro__[1] is AsyncWorld:

            async def reset_async(self, seed=None, **kwargs):
                if armed and where == "reset":
                    raise error("mine")
                return await super().reset_async(seed)

        else:

            def reset(self, seed=None, **kwargs):
                if armed and where == "reset":
                    raise error("mine")
                return super().reset(seed)

    async def main():
        async with EnvPool(Raises, n=1, timeout_s=SOON) as pool:
            await pool.reset_batch()
            armed.append(True)
            if where == "step":
                (bad,) = await pool.step_batch([Move()])
            else:
                (bad,) = await pool.reset_batch()
            assert failed(bad)
            assert "EnvTimeoutError" not in bad.metadata["error"]
            (again,) = await pool.step_batch([Move()])
            assert failed(again, "reset")
            armed.clear()
            await pool.reset_batch()
            assert rewards(await pool.step_batch([Move()])) == [1.0]

    play(main)
    assert kind.notes == ["made", "closed", "made", "closed"]


async def raises(error):
    raise error


async def in_task(error):
    await asyncio.create_task(raises(error))


async def in_gather(error):
    await asyncio.gather(raises(error), asyncio.sleep(0))


async def in_group(error):
    async with asyncio.TaskGroup() as group:
        group.create_task(raises(error))


async def in_anyio_group(error):
    async with anyio.create_task_group() as group:
        group.start_soon(raises, error)


async def unawaited(error):
    task = asyncio.create_task(raises(error))
    while not task.done():
        await asyncio.sleep(0)
    raise task.exception()


@pytest.mark.parametrize("error", [KeyboardInterrupt("mine"), SystemExit("mine")], ids=repr)
@pytest.mark.parametrize("how", [raises, in_task, in_gather, in_group, in_anyio_group, unawaited])
def test_thread_backend_async_environment_that_would_end_the_loop_fails_alone(how, error):
    class Ends(AsyncWorld):
        async def step_async(self, action, timeout_s=None, **kwargs):
            if action.value == 0:
                await how(error)
            return await super().step_async(action)

    async def main():
        async with EnvPool(Ends, n=2, timeout_s=SOON) as pool:
            await pool.reset_batch()
            bad, good = await pool.step_batch([Move(value=0), Move()])
            assert bad.done
            assert bad.reward is None
            assert good.reward == 1.0
            await pool.reset_batch()
            assert rewards(await pool.step_batch([Move()] * 2)) == [1.0, 1.0]

    play(main)


def test_thread_backend_leaves_the_tasks_of_others_in_its_loop_unchanged():
    async def main():
        async with EnvPool(AsyncWorld, n=1, timeout_s=SOON) as pool:
            await pool.reset_batch()
            with pytest.raises(OSError, match="mine"):
                await asyncio.create_task(raises(OSError("mine")), name="named")
            await asyncio.create_task(raises(KeyboardInterrupt("real")))

    with pytest.raises(KeyboardInterrupt, match="real"):
        play(main)


CTRL_C = """
import asyncio
from guerdon import EnvPool
from tests.envs.pool.test_backend import AsyncWorld, Move

class Busy(AsyncWorld):
    async def step_async(self, action, **kwargs):
        print("steps", flush=True)
        while True:
            sum(range(1000))
            await asyncio.sleep(0)

async def main():
    async with EnvPool(Busy, n=2) as pool:
        await pool.reset_batch()
        await pool.step_batch([Move(), Move()])

asyncio.run(main())
"""


@pytest.mark.edge
def test_thread_backend_ctrl_c_ends_a_trainer_with_async_environments():
    process = subprocess.Popen(
        [sys.executable, "-c", CTRL_C], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "steps\n"
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=SOON)
    assert "KeyboardInterrupt" in error
    assert process.returncode == -signal.SIGINT


def test_thread_backend_an_async_environment_that_waits_for_ever_does_not_delay_the_others(kind):
    async def main():
        async with EnvPool(kind, n=3, timeout_s=SHORT) as pool:
            await pool.reset_batch()
            stepped = await pool.step_batch([Move(), BLOCK, Move()])
            assert rewards(stepped) == [1.0, None, 1.0]
            assert failed(stepped[1], "EnvTimeoutError: the step took longer than 0.2 s")
            await taken(kind.closes)
            assert kind.notes[-2:] == ["cancelled", "closed"]
            (again,) = await pool.reset_batch(slots=[1])
            assert not again.done
            assert rewards(await pool.step_batch([Move(value=2)] * 3)) == [2.0] * 3

    play(main)
    assert kind.notes.count("made") == kind.notes.count("closed") == 4


def test_thread_backend_an_async_environment_is_closed_when_its_own_code_has_ended(kind):
    """It still cleans up when it is cancelled."""
    tidied = asyncio.Event()

    async def tidy_up(self):
        await tidied.wait()
        self.note("tidied")

    kind.tidy_up = tidy_up

    async def main():
        async with EnvPool(kind, n=1, timeout_s=SHORT) as pool:
            await pool.reset_batch()
            await pool.step_batch([BLOCK])
            await pool.reset_batch()  # a turn or more in which it might be closed too early
            assert rewards(await pool.step_batch([Move()])) == [1.0]
            assert kind.notes == ["made", "waits", "made"]
            tidied.set()
            await taken(kind.closes)
            assert kind.notes[-2:] == ["tidied", "closed"]

    play(main)


def test_thread_backend_resets_work_though_closing_an_async_environment_hangs(kind):
    gate = threading.Event()

    def close(self):
        self.note("closing")
        if self.notes.count("closing") == 1:
            gate.wait(SOON)
        self.note("closed")

    kind.close = close

    async def main():
        backend = ThreadBackend(kind, 1, close_timeout_s=SHORT)
        async with EnvPool(n=1, backend=backend, timeout_s=SHORT) as pool:
            await pool.reset_batch()
            await pool.step_batch([BLOCK])
            (again,) = await pool.reset_batch()
            assert again.metadata == {"seed": None}
            assert pool.hanging == 1
            assert rewards(await pool.step_batch([Move()])) == [1.0]

    try:
        play(main)
        assert kind.notes.count("closing") == 2
        assert kind.notes.count("closed") == 1
    finally:
        gate.set()


def test_thread_backend_a_failed_rubric_of_an_async_environment_breaks_nothing(kind):
    async def main():
        async with EnvPool(lambda: kind(AsyncDown()), n=1) as pool:
            await pool.reset_batch()
            for _ in range(2):
                (board,) = await pool.step_batch([Move()])
                assert (board.reward, board.done) == (None, False)
                assert board.metadata["reward_error"] == "OSError: the judge is down"

    play(main)
    assert kind.notes == ["made", "closed"]


def test_thread_backend_closing_cancels_async_steps_and_closes_their_environments(kind):
    async def main():
        async with EnvPool(kind, n=2) as pool:
            await pool.reset_batch()
            task = asyncio.ensure_future(pool.step_batch([BLOCK, Move()]))
            while "waits" not in kind.notes:
                await asyncio.sleep(0)
        stepped = await task
        assert failed(stepped[0])
        for _ in range(2):
            await taken(kind.closes)

    play(main)
    assert kind.notes.count("closed") == 2
    assert kind.notes.index("cancelled") < len(kind.notes) - 1


def test_thread_backend_closing_that_is_cancelled_at_once_closes_every_environment(blocking):
    kind = blocking()

    async def main():
        pool = EnvPool(backend=ThreadBackend(kind, 2), n=2)
        await pool.__aenter__()
        await pool.reset_batch()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await pool.close()
        for _ in range(2):
            await taken(kind.closes)

    play(main)
    assert kind.notes == ["made"] * 2 + ["closed"] * 2


# Threads --------------------------------------------------------------------------------------


def test_thread_backend_starts_threads_only_for_steps_and_at_most_one_for_each_slot():
    def own():
        return [each for each in threading.enumerate() if each.name == "guerdon-pool"]

    async def main():
        before = len(own())
        async with EnvPool(World, n=16) as pool:
            assert len(own()) == before
            for _ in range(5):
                await pool.reset_batch()
                await pool.step_batch([Move()] * 16)
            assert len(own()) - before <= 16

    play(main)


def test_thread_backend_creates_no_environments_while_too_many_hang(blocking):
    kind = blocking()

    async def main():
        async with EnvPool(kind, n=2, timeout_s=SHORT) as pool:
            pool._backend._threads.max_stuck = 1
            await pool.reset_batch()
            await pool.step_batch([BLOCK, BLOCK])
            refused = await pool.reset_batch()
            for each in refused:
                assert failed(each, "2 environments hang in their own code, more than 1")
                assert "s in step of Blocks in slot " in each.metadata["error"]
            kind.gate.set()
            for _ in range(2):
                await taken(kind.closes)
            while pool._backend._threads.stuck:
                await asyncio.sleep(0)
            await pool.reset_batch()
            assert rewards(await pool.step_batch([Move()] * 2)) == [1.0, 1.0]

    play(main)


def test_thread_backend_closing_that_hangs_is_left_behind_in_time(blocking, caplog):
    def close(self):
        self.notes.append("closing")
        assert self.gate.wait(SOON)
        self.closes.release()

    kind = blocking(close=close)

    async def main():
        backend = ThreadBackend(kind, 2, close_timeout_s=SHORT)
        async with EnvPool(n=2, backend=backend) as pool:
            await pool.reset_batch()

    with caplog.at_level(logging.ERROR):
        play(main)
    assert kind.notes.count("closing") == 2
    assert caplog.text.count("closing Blocks failed: EnvTimeoutError: close took longer") == 2


def test_thread_backend_resets_work_though_closing_the_environments_that_broke_hangs(blocking):
    def close(self):
        self.notes.append("closing")
        if self.notes.count("closing") <= 2:
            self.gate.wait(SOON)
            self.notes.append("goes on")

    kind = blocking(close=close, step=lambda self, action: 1 / 0)

    async def main():
        backend = ThreadBackend(kind, 2, close_timeout_s=SHORT)
        async with EnvPool(n=2, backend=backend, timeout_s=SHORT) as pool:
            await pool.reset_batch()
            await pool.step_batch([Move()] * 2)
            for each in await pool.reset_batch():
                assert failed(each, "EnvTimeoutError: the reset took longer than 0.2 s")
            again = await pool.reset_batch()
            assert [each.metadata for each in again] == [{"seed": None}] * 2
            assert pool.hanging == 2

    play(main)
    assert kind.notes.count("made") == kind.notes.count("closing") == 4
    assert "goes on" not in kind.notes


def test_thread_backend_an_environment_that_broke_is_closed_before_another_is_made(blocking):
    def step(self, action, timeout_s=None, **kwargs):
        raise OSError("broken")

    kind = blocking(step=step)

    async def main():
        async with EnvPool(kind, n=1) as pool:
            await pool.reset_batch()
            await pool.step_batch([Move()])
            assert kind.notes == ["made"]
            await pool.reset_batch()
            assert kind.notes == ["made", "closed", "made"]

    play(main)


def test_thread_backend_what_closing_a_broken_environment_raises_is_logged_and_the_reset_continues(
    blocking, caplog
):
    def close(self):
        raise OSError("stuck door")

    kind = blocking(close=close, step=lambda self, action: 1 / 0)

    async def main():
        async with EnvPool(kind, n=1) as pool:
            await pool.reset_batch()
            await pool.step_batch([Move()])
            (first,) = await pool.reset_batch()
            assert first.metadata == {"seed": None}

    play(main)
    assert "stuck door" in caplog.text
    assert kind.notes == ["made", "made"]


def test_thread_backend_a_step_after_the_episodes_end_that_is_refused_breaks_nothing(blocking):
    def step(self, action, timeout_s=None, **kwargs):
        if self.episode.step_count:
            raise EpisodeError("the episode is over; reset begins another")
        return World.step(self, action)

    kind = blocking(step=step)

    async def main():
        async with EnvPool(kind, n=1) as pool:
            await pool.reset_batch()
            await pool.step_batch([Move()])
            (over,) = await pool.step_batch([Move()])
            assert failed(over, "EpisodeError: the episode is over")
            await pool.reset_batch()
            assert rewards(await pool.step_batch([Move()])) == [1.0]

    play(main)
    assert kind.notes.count("made") == 1


def test_thread_backend_a_reset_that_is_refused_is_followed_by_a_new_environment(blocking):
    """After any error, an environment that can't begin is unusable."""

    def reset(self, seed=None, **kwargs):
        if seed == 13:
            raise EpisodeError("no luck")
        return World.reset(self, seed)

    kind = blocking(reset=reset)

    async def main():
        async with EnvPool(kind, n=1) as pool:
            assert failed((await pool.reset_batch(13))[0], "EpisodeError: no luck")
            assert failed((await pool.step_batch([Move()]))[0], "reset")
            await pool.reset_batch()
            assert kind.notes == ["made", "closed", "made"]

    play(main)


def test_thread_backend_two_pools_in_one_loop_never_see_each_other():
    async def main():
        async with EnvPool(World, n=2) as one, EnvPool(lambda: World(Half()), n=2) as other:
            await asyncio.gather(one.reset_batch(), other.reset_batch())
            first, second = await asyncio.gather(
                one.step_batch([Move(value=2)] * 2), other.step_batch([Move(value=2)] * 2)
            )
            assert (rewards(first), rewards(second)) == ([2.0, 2.0], [0.5, 0.5])

    play(main)
