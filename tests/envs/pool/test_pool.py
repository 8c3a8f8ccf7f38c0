"""EnvPool: what a person sees of it, with environments in threads."""

import asyncio
import gc
import sys
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guerdon import EnvPool, Observation, Sequential
from guerdon.envs import PoolBackend, ProcessBackend, RemoteBackend, ThreadBackend
from guerdon.envs.registry import environments
from guerdon.errors import InvalidArgumentError, LoadError
from tests.envs.worlds import SOON, AsyncHalf, Board, Down, Half, Move, Value, World, taken

SHORT = 0.2  # what steps takes no such time, however busy the machine is
BLOCK = Move(value=-1)


def play(main, *, loud=False):
    """Run a test in a loop where nothing may be left to the loop's own error handler."""
    heard = []

    async def limited():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: heard.append(context))
        async with asyncio.timeout(SOON):
            result = await main()
        gc.collect(0)
        await asyncio.sleep(0)
        return result

    result = asyncio.run(limited())
    assert loud or not heard, heard
    return result


def rewards(observations):
    return [each and each.reward for each in observations]


# Order ----------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(
    st.integers(1, 6).flatmap(
        lambda n: st.lists(
            st.lists(st.none() | st.integers(0, 1000), min_size=n, max_size=n), max_size=5
        )
    )
)
def test_env_pool_observations_come_in_the_order_of_the_actions_and_none_is_skipped(batches):
    n = len(batches[0]) if batches else 1
    counts = [0] * n

    async def main():
        async with EnvPool(World, n=n) as pool:
            await pool.reset_batch()
            for values in batches:
                actions = [None if value is None else Move(value=value) for value in values]
                assert rewards(await pool.step_batch(actions)) == values
                for slot, value in enumerate(values):
                    counts[slot] += value is not None
            states = [runner.adapter.environment.state for runner in pool._backend._runners]
            assert [state.step_count for state in states] == counts

    play(main)


def test_env_pool_every_slot_has_an_environment_of_its_own():
    async def main():
        async with EnvPool(World, n=4) as pool:
            assert len(pool) == 4
            await pool.reset_batch()
            await pool.step_batch([Move(), None, Move(), None])
            await pool.step_batch([Move(), None, None, None])
            states = [runner.adapter.environment.state for runner in pool._backend._runners]
            assert [state.step_count for state in states] == [2, 0, 1, 0]

    play(main)


def test_env_pool_the_environments_of_a_batch_step_at_the_same_time():
    barrier = threading.Barrier(5, timeout=SOON)

    class Meets(World):
        def step(self, action, timeout_s=None, **kwargs):
            barrier.wait()
            return super().step(action)

    async def main():
        async with EnvPool(Meets, n=5) as pool:
            await pool.reset_batch()
            assert rewards(await pool.step_batch([Move()] * 5)) == [1.0] * 5

    play(main)


def test_env_pool_step_batch_of_none_returns_at_once():
    async def main():
        async with EnvPool(World, n=3) as pool:
            assert await pool.step_batch([None] * 3) == [None] * 3

    play(main)


# Resetting ------------------------------------------------------------------------------------


def seeds_of(observations):
    return [each.metadata["seed"] for each in observations]


@pytest.mark.parametrize(
    ("seeds", "slots", "expected"),
    [
        (None, None, [None, None, None]),
        (7, None, [7, 8, 9]),
        (0, None, [0, 1, 2]),
        ([5, None, 3], None, [5, None, 3]),
        ((5, 6, 7), None, [5, 6, 7]),
        (7, [2, 0], [7, 8]),
        ([4, 5], [0, 2], [4, 5]),
        (range(2), range(2), [0, 1]),
        (None, [], []),
    ],
)
def test_env_pool_each_slot_gets_its_seed(seeds, slots, expected):
    async def main():
        async with EnvPool(World, n=3) as pool:
            return seeds_of(await pool.reset_batch(seeds, slots))

    assert play(main) == expected


def test_env_pool_some_slots_are_reset_and_the_others_continue():
    async def main():
        async with EnvPool(World, n=3) as pool:
            await pool.reset_batch()
            await pool.step_batch([Move()] * 3)
            await pool.reset_batch(slots=[1], episode_id="new")
            states = [runner.adapter.environment.state for runner in pool._backend._runners]
            assert [(state.episode_id, state.step_count) for state in states] == [
                (None, 1),
                ("new", 0),
                (None, 1),
            ]

    play(main)


def test_env_pool_further_arguments_reach_every_reset_and_options_each_its_own():
    async def main():
        async with EnvPool(World, n=2) as pool:
            observations = await pool.reset_batch(
                3, options=[{"task": 1}, {"task": 2, "level": 9}], level=0
            )
            return [each.metadata for each in observations]

    assert play(main) == [
        {"seed": 3, "level": 0, "task": 1},
        {"seed": 4, "level": 9, "task": 2},
    ]


@pytest.mark.parametrize(
    "seeds", [[1], [1, 2, 3, 4], "abc", b"abc", True, 1.5, -1, [1, 2, -3], [1.5, 2, 3], ["a"] * 3]
)
def test_env_pool_seeds_that_are_invalid_are_refused(seeds):
    async def main():
        async with EnvPool(World, n=3) as pool:
            with pytest.raises(InvalidArgumentError, match="`seeds` must be"):
                await pool.reset_batch(seeds)
            assert len(await pool.reset_batch(1)) == 3

    play(main)


@pytest.mark.parametrize(
    ("slots", "problem"),
    [
        ([3], r"`slot` must be an integer in \[0, 2\], got 3"),
        ([-1], "got -1"),
        ([True], "got True"),
        (["a"], "got 'a'"),
        ([0, 1, 0], "must contain each slot once"),
        (1, "`slots` must be a list of slots, got 1"),
        ("01", "`slots` must be .* got '01'"),
    ],
)
def test_env_pool_rejects_invalid_slots(slots, problem):
    async def main():
        async with EnvPool(World, n=3) as pool:
            with pytest.raises(InvalidArgumentError, match=problem):
                await pool.reset_batch(slots=slots)

    play(main)


@pytest.mark.parametrize("options", [[{}], [{}, {}, 1], {}, {"task": 1}, 5])
def test_env_pool_rejects_options_that_are_not_one_for_each_slot(options):
    async def main():
        async with EnvPool(World, n=3) as pool:
            with pytest.raises(InvalidArgumentError, match="`options` must be a list"):
                await pool.reset_batch(options=options)

    play(main)


def test_env_pool_rejects_seed_instead_of_seeds():
    async def main():
        async with EnvPool(World, n=2) as pool:
            with pytest.raises(InvalidArgumentError, match="seeds"):
                await pool.reset_batch(seed=3)

    play(main)


# Actions --------------------------------------------------------------------------------------


def test_env_pool_an_action_may_come_as_a_dict():
    async def main():
        async with EnvPool(World, n=2) as pool:
            await pool.reset_batch()
            return await pool.step_batch([{"value": 2}, Move(value=3)])

    assert rewards(play(main)) == [2.0, 3.0]


def test_env_pool_a_dict_that_is_no_action_costs_its_slot_a_step_and_nothing_else():
    async def main():
        async with EnvPool(World, n=3) as pool:
            await pool.reset_batch()
            first, second, third = await pool.step_batch(
                [{"value": "much"}, {"valu": 1}, {"value": 3}]
            )
            assert (first.reward, second.reward, third.reward) == (None, None, 3.0)
            assert refused(first, "the action is not a valid Move: value: ")
            assert refused(second, "the action is not a valid Move: valu: ")
            again = await pool.step_batch([{"value": 1}, {"value": 2}, None])
            assert rewards(again) == [1.0, 2.0, None]
            assert pool._backend._runners[0].adapter.environment.state.step_count == 1

    play(main)


@pytest.mark.parametrize(
    ("actions", "problem"),
    [
        ([Move()], "each of the 2 slots, got 1"),
        ([Move()] * 3, "got 3"),
        ([], "got 0"),
        ({"value": 1}, "`actions` must be a list"),
        ("ab", "`actions` must be a list"),
        (None, "`actions` must be .* got None"),
        (5, "`actions` must be .* got 5"),
        (iter([Move(), Move()]), "`actions` must be a list"),
        ({1, 2}, "`actions` must be a list"),
        (
            [Move(), "left"],
            r"`actions\[1\]` must be an Action, a dict, or None to skip, got 'left'",
        ),
        ([Move(), [1]], r"`actions\[1\]` must be"),
        ([Move(), Observation()], r"`actions\[1\]` must be"),
        ([Move(), 0], r"`actions\[1\]` must be .* got 0"),
    ],
)
@pytest.mark.parametrize("how", ["step_batch", "as_completed"])
def test_env_pool_actions_that_are_invalid_are_refused_before_any_is_taken(actions, problem, how):
    async def main():
        async with EnvPool(World, n=2) as pool:
            await pool.reset_batch()
            with pytest.raises(InvalidArgumentError, match=problem):
                await (
                    pool.step_batch(actions)
                    if how == "step_batch"
                    else anext(pool.as_completed(actions))
                )
            states = [runner.adapter.environment.state for runner in pool._backend._runners]
            assert [state.step_count for state in states] == [0, 0]
            assert rewards(await pool.step_batch([Move()] * 2)) == [1.0, 1.0]

    play(main)


# Rewards --------------------------------------------------------------------------------------


@pytest.mark.parametrize("half", [Half, AsyncHalf])
def test_env_pool_every_observation_reports_its_components(half):
    async def main():
        async with EnvPool(lambda: World(Sequential(Value(), half())), n=3) as pool:
            await pool.reset_batch()
            return await pool.step_batch([Move(value=value) for value in (1, 2, 3)])

    for value, board in enumerate(play(main), start=1):
        assert board.reward == 0.5
        assert board.metadata["reward_components"] == {"rubric_0": value, "rubric_1": 0.5}


def test_env_pool_a_failed_rubric_ends_no_episode_and_breaks_no_environment(blocking):
    kind = blocking(rubric_of=lambda self: Sequential(Half(), Down()))

    async def main():
        async with EnvPool(kind, n=1) as pool:
            await pool.reset_batch()
            for _ in range(2):
                (board,) = await pool.step_batch([Move()])
                assert (board.reward, board.done) == (None, False)
                assert board.metadata["reward_error"] == (
                    "rubric 'rubric_1': OSError: the judge is down"
                )
            await pool.reset_batch()

    play(main)
    assert kind.notes.count("made") == 1


# One that fails, and the others ----------------------------------------------------------------


class Unsayable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


FAILURES = [
    OSError,
    SystemExit,
    KeyboardInterrupt,
    StopIteration,
    asyncio.CancelledError,
    Unsayable,
]


def failed(observation, *texts):
    """Whether an observation has the form of a failure."""
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


@pytest.mark.parametrize("error", FAILURES)
@pytest.mark.parametrize("where", ["made", "reset", "step"])
def test_env_pool_one_that_raises_is_reported_in_its_own_slot_and_made_anew_at_its_next_reset(
    error, where
):
    made = []
    broken = []

    class Fails(World):
        def __init__(self):
            super().__init__()
            made.append(self)
            self.place = len(made)
            self.fail("made")

        def fail(self, name):
            if name == where and self in broken:
                raise error("mine")

        def reset(self, seed=None, **kwargs):
            self.fail("reset")
            return super().reset(seed)

        def step(self, action, timeout_s=None, **kwargs):
            self.fail("step")
            return super().step(action)

    class FirstFails(Fails):
        def __init__(self):
            broken[:] = broken or [self]
            super().__init__()

    async def main():
        async with EnvPool(FirstFails, n=3, timeout_s=SOON) as pool:
            first = await pool.reset_batch()
            stepped = await pool.step_batch([Move()] * 3)
            bad = next(slot for slot in range(3) if failed(first[slot]) or failed(stepped[slot]))
            if where != "step":
                assert failed(first[bad])
                assert failed(stepped[bad], "reset")
            assert failed(stepped[bad])
            problem = stepped if where == "step" else first
            ends_more = error is StopIteration or not issubclass(error, Exception)
            kind = "EnvError" if ends_more else error.__name__
            assert problem[bad].metadata["error"].startswith(kind)
            assert ("sys.exit" if error is SystemExit else error.__name__) in problem[bad].metadata[
                "error"
            ]
            for slot in {0, 1, 2} - {bad}:
                assert (first[slot].done, stepped[slot].reward) == (False, 1.0)
            again = await pool.step_batch([Move()] * 3)
            assert failed(again[bad], "EpisodeError", "reset")
            assert len(made) == 3
            (begun,) = await pool.reset_batch(slots=[bad])
            assert begun.metadata == {"seed": None}
            assert len(made) == 4  # the others were not replaced
            assert rewards(await pool.step_batch([Move()] * 3)) == [1.0] * 3

    play(main)


def test_env_pool_one_that_returns_no_observation_is_reported_in_its_own_slot():
    class Wrong(World):
        def step(self, action, timeout_s=None, **kwargs):
            return {"done": True} if action.value == 9 else super().step(action)

    async def main():
        async with EnvPool(Wrong, n=2) as pool:
            await pool.reset_batch()
            bad, good = await pool.step_batch([Move(value=9), Move()])
            problem = "Wrong.step must return an Observation, got {'done': True}"
            assert failed(bad, "InvalidObservationError", problem)
            assert good.reward == 1.0

    play(main)


def test_env_pool_a_step_before_the_first_reset_is_reported():
    async def main():
        async with EnvPool(World, n=1) as pool:
            (board,) = await pool.step_batch([Move()])
            assert failed(
                board,
                "EpisodeError",
                "slot 0 was never reset; reset_batch begins its first episode",
            )
            await pool.reset_batch()
            assert rewards(await pool.step_batch([Move()])) == [1.0]

    play(main)


def no_thread(thread):
    raise RuntimeError("can't start new thread")


def test_env_pool_resets_that_get_no_thread_fail_until_one_can_be_started(monkeypatch):
    async def main():
        async with EnvPool(World, n=3, timeout_s=SOON) as pool:
            with monkeypatch.context() as full:
                full.setattr(threading.Thread, "start", no_thread)
                for _ in range(2):
                    for failed in await pool.reset_batch():
                        assert failed.done
                        assert "can't start new thread" in failed.metadata["error"]
            await pool.reset_batch()
            assert rewards(await pool.step_batch([Move(value=2)] * 3)) == [2.0] * 3

    play(main)


def test_env_pool_steps_that_get_no_thread_fail_without_blocking_the_next_reset(monkeypatch):
    monkeypatch.setattr("guerdon.envs.runner.IDLE_S", 0.01)
    before = set(threading.enumerate())

    async def main():
        # One slot: before Python 3.13, one of several idle threads may not end.
        async with EnvPool(World, n=1, timeout_s=SOON) as pool:
            await pool.reset_batch()
            while any(each.name == "guerdon-pool" for each in set(threading.enumerate()) - before):
                await asyncio.sleep(0.01)
            with monkeypatch.context() as full:
                full.setattr(threading.Thread, "start", no_thread)
                (failed,) = await pool.step_batch([Move()])
                assert failed.reward is None
                assert "can't start new thread" in failed.metadata["error"]
            await pool.reset_batch()
            assert rewards(await pool.step_batch([Move(value=2)])) == [2.0]

    play(main)


@pytest.mark.parametrize("hangs", [False, True])
def test_env_pool_does_not_count_the_time_of_a_blocked_event_loop(blocking, hangs, monkeypatch):
    monkeypatch.setattr("guerdon.envs.pool.pool.BLOCKED_S", 0.1)
    kind = blocking()

    async def main():
        async with EnvPool(kind, n=1, timeout_s=0.5) as pool:
            await pool.reset_batch()
            step = asyncio.ensure_future(pool.step_batch([BLOCK]))
            await taken(kind.begun)
            time.sleep(0.9)  # as an environment that holds the interpreter lock, or the trainer
            if not hangs:
                kind.gate.set()
            [observation] = await step
            if hangs:
                assert failed(observation, "EnvTimeoutError: the step took longer than 0.5 s")
            else:
                assert observation.reward == -1.0

    play(main)


def test_env_pool_returns_results_that_arrived_before_the_time_limit_in_a_blocked_event_loop():
    """Also in uvloop, which calls timers before it handles what has arrived."""
    uvloop = pytest.importorskip("uvloop")

    class Waits(PoolBackend):
        async def open(self): ...

        def submit(self, calls):
            (self.call,) = calls

        def give_up(self, call): ...

        async def close(self): ...

    async def main():
        backend = Waits()
        pool = EnvPool(n=1, backend=backend, timeout_s=0.1)
        async with asyncio.timeout(SOON), pool:
            reset = asyncio.ensure_future(pool.reset_batch())
            await asyncio.sleep(0)
            finish = asyncio.get_running_loop().call_soon_threadsafe
            finish(backend.call.finish, Observation(metadata={"seed": 1}))
            time.sleep(0.2)  # as the code of a trainer
            return seeds_of(await reset)

    for new_event_loop in (asyncio.new_event_loop, uvloop.new_event_loop):
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            assert runner.run(main()) == [1]


def test_env_pool_a_hanging_environment_does_not_delay_the_others(blocking):
    kind = blocking()

    async def main():
        async with EnvPool(kind, n=3, timeout_s=SHORT) as pool:
            await pool.reset_batch()
            stepped = await pool.step_batch([Move(), BLOCK, Move()])
            assert failed(stepped[1], "EnvTimeoutError: the step took longer than 0.2 s")
            assert rewards(stepped) == [1.0, None, 1.0]
            assert pool.hanging == 1
            again = await pool.step_batch([Move(value=2)] * 3)
            assert failed(again[1], "reset it")
            assert rewards(again) == [2.0, None, 2.0]
            await pool.reset_batch(slots=[1])
            assert kind.notes == ["made"] * 3 + ["blocks", "made"]  # the old one isn't back
            assert rewards(await pool.step_batch([Move(value=3)] * 3)) == [3.0] * 3
            kind.gate.set()
            await taken(kind.closes)
            assert kind.notes[-2:] == ["goes on", "closed"]
            while pool.hanging:
                await asyncio.sleep(0.01)

    play(main)
    assert kind.notes.count("closed") == 4


def test_env_pool_every_slot_may_hang_and_all_heal(blocking):
    kind = blocking()

    async def main():
        async with EnvPool(kind, n=4, timeout_s=SHORT) as pool:
            for _ in range(2):
                await pool.reset_batch()
                assert all(failed(each) for each in await pool.step_batch([BLOCK] * 4))
            await pool.reset_batch()
            assert rewards(await pool.step_batch([Move()] * 4)) == [1.0] * 4
            kind.gate.set()
            for _ in range(8):
                await taken(kind.closes)

    play(main)
    assert kind.notes.count("closed") == kind.notes.count("made") == 12


def test_env_pool_a_reset_that_hangs_is_reported_and_its_environment_closed_when_it_ends(blocking):
    def reset(self, seed=None, **kwargs):
        if seed == 13:
            self.begun.release()
            assert self.gate.wait(SOON)
            self.notes.append("goes on")
        return World.reset(self, seed)

    kind = blocking(reset=reset)

    async def main():
        async with EnvPool(kind, n=2, timeout_s=SHORT) as pool:
            good, bad = await pool.reset_batch([1, 13])
            assert good.metadata == {"seed": 1}
            assert failed(bad, "EnvTimeoutError: the reset took longer than 0.2 s")
            await pool.reset_batch([2], slots=[1])
            assert rewards(await pool.step_batch([Move()] * 2)) == [1.0, 1.0]
            kind.gate.set()
            await taken(kind.closes)
            assert kind.notes[-2:] == ["goes on", "closed"]

    play(main)


def test_env_pool_a_step_may_be_given_more_or_less_time_than_the_pool_has(blocking):
    kind = blocking()

    async def main():
        async with EnvPool(kind, n=1, timeout_s=SOON) as pool:
            await pool.reset_batch()
            (board,) = await pool.step_batch([BLOCK], timeout_s=SHORT)
            assert failed(board, "longer than 0.2 s")
            await pool.reset_batch()
            kind.gate.set()
            (board,) = await pool.step_batch([BLOCK], timeout_s=SOON)
            assert board.reward == -1.0

    play(main)


# as_completed ---------------------------------------------------------------------------------


def test_env_pool_yields_the_first_to_complete_first(blocking):
    kind = blocking()

    async def main():
        order = []
        async with EnvPool(kind, n=3) as pool:
            await pool.reset_batch()
            async for slot, board in pool.as_completed([BLOCK, Move(value=2), Move(value=3)]):
                order.append((slot, board.reward))
                if len(order) == 2:
                    kind.gate.set()
        assert sorted(order[:2]) == [(1, 2.0), (2, 3.0)]
        assert order[2] == (0, -1.0)

    play(main)


def test_env_pool_send_keeps_the_fast_ones_going_while_the_slowest_steps(blocking):
    kind = blocking()

    async def main():
        seen = []
        async with EnvPool(kind, n=2) as pool:
            await pool.reset_batch()
            async for slot, board in pool.as_completed([BLOCK, Move(value=0)]):
                seen.append((slot, board.reward))
                if slot == 1:
                    if board.reward < 5:
                        pool.send(1, {"value": board.reward + 1})
                    else:
                        kind.gate.set()
        assert seen == [(1, float(value)) for value in range(6)] + [(0, -1.0)]

    play(main)


def test_env_pool_as_completed_skips_none():
    async def main():
        async with EnvPool(World, n=3) as pool:
            await pool.reset_batch()
            found = [slot async for slot, _ in pool.as_completed([None, Move(), None])]
            assert found == [1]
            assert [each async for each in pool.as_completed([None] * 3)] == []

    play(main)


def test_env_pool_a_slot_that_hangs_or_raises_is_reported_in_the_stream(blocking):
    kind = blocking()

    async def main():
        async with EnvPool(kind, n=2, timeout_s=SOON) as pool:
            await pool.reset_batch()
            stream = pool.as_completed([BLOCK, {"value": "much"}], timeout_s=SHORT)
            found = {slot: board async for slot, board in stream}
            assert failed(found[0], "longer than 0.2 s")
            assert refused(found[1], "the action is not a valid Move")

    play(main)


def test_env_pool_an_action_that_is_sent_has_a_time_limit_of_its_own(blocking):
    kind = blocking()

    async def main():
        async with EnvPool(kind, n=1) as pool:
            await pool.reset_batch()
            boards = []
            async for _, board in pool.as_completed([Move()], timeout_s=SHORT):
                boards.append(board)
                if len(boards) == 1:
                    pool.send(0, BLOCK)
            assert boards[0].reward == 1.0
            assert failed(boards[1], "longer than 0.2 s")

    play(main)


def test_env_pool_send_is_refused_if_it_is_invalid(blocking):
    kind = blocking()

    async def main():
        async with EnvPool(kind, n=3) as pool:
            await pool.reset_batch()
            with pytest.raises(InvalidArgumentError, match="as_completed"):
                pool.send(0, Move())
            async for slot, _ in pool.as_completed([BLOCK, Move(), None]):
                if slot == 0:
                    continue
                with pytest.raises(InvalidArgumentError, match="slot 0 is still in an earlier"):
                    pool.send(0, Move())
                for wrong in (None, "left"):
                    with pytest.raises(InvalidArgumentError, match=r"`actions\[1\]` must be"):
                        pool.send(1, wrong)
                for nowhere in (3, -1, True, "1"):
                    with pytest.raises(InvalidArgumentError, match="`slot` must be"):
                        pool.send(nowhere, Move())
                kind.gate.set()
            with pytest.raises(InvalidArgumentError, match="as_completed"):
                pool.send(0, Move())

    play(main)


def test_env_pool_a_stream_that_is_broken_off_leaves_the_free_slots_usable_at_once(blocking):
    kind = blocking()

    async def main():
        async with EnvPool(kind, n=2) as pool:
            await pool.reset_batch()
            async for slot, _ in pool.as_completed([BLOCK, Move()]):
                assert slot == 1
                break
            with pytest.raises(InvalidArgumentError, match="slot 0 is still in an earlier call"):
                await pool.step_batch([Move(), Move()])
            assert rewards(await pool.step_batch([None, Move(value=2)])) == [None, 2.0]
            found = [each async for each in pool.as_completed([None, Move(value=3)])]
            assert [(slot, board.reward) for slot, board in found] == [(1, 3.0)]
            kind.gate.set()
            (first,) = await pool.reset_batch(slots=[0])  # waits for the step that is under way
            assert first.metadata == {"seed": None}
            assert kind.notes.count("made") == 2
            assert rewards(await pool.step_batch([Move(), Move()])) == [1.0, 1.0]

    play(main)


def test_env_pool_what_a_broken_off_stream_left_hanging_is_abandoned_in_its_time(blocking):
    kind = blocking()

    async def main():
        async with EnvPool(kind, n=2) as pool:
            await pool.reset_batch()
            async for _ in pool.as_completed([BLOCK, Move()], timeout_s=SHORT):
                break
            await pool.reset_batch(slots=[0])
            assert kind.notes.count("made") == 3
            assert rewards(await pool.step_batch([Move(), Move()])) == [1.0, 1.0]

    play(main)


@settings(max_examples=20)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=5))
def test_env_pool_every_action_of_a_stream_is_answered_once(episodes):
    """However many actions each slot is sent."""
    left = list(episodes)

    async def main():
        seen = [0] * len(episodes)
        async with EnvPool(World, n=len(episodes)) as pool:
            await pool.reset_batch()
            async for slot, board in pool.as_completed([Move(value=0)] * len(episodes)):
                assert board.reward == seen[slot]
                seen[slot] += 1
                left[slot] -= 1
                if left[slot]:
                    pool.send(slot, Move(value=seen[slot]))
        assert seen == episodes

    play(main)


# Cancelling and closing -----------------------------------------------------------------------


def test_env_pool_a_batch_that_is_cancelled_leaves_the_pool_usable(blocking):
    kind = blocking()

    async def main():
        async with EnvPool(kind, n=2) as pool:
            await pool.reset_batch()
            task = asyncio.ensure_future(pool.step_batch([BLOCK, None]))
            await taken(kind.begun)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(InvalidArgumentError, match="slot 0 is still in an earlier call"):
                await pool.step_batch([Move(), None])
            assert rewards(await pool.step_batch([None, Move(value=2)])) == [None, 2.0]
            kind.gate.set()
            await pool.reset_batch()
            assert rewards(await pool.step_batch([Move(value=3)] * 2)) == [3.0, 3.0]

    play(main)
    assert kind.notes.count("made") == 2


def test_env_pool_tasks_that_reset_one_busy_slot_take_turns(blocking):
    running, most, lock = [0], [0], threading.Lock()

    def reset(self, seed=None, **kwargs):
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        board = World.reset(self, seed)
        with lock:
            running[0] -= 1
        return board

    kind = blocking(reset=reset)

    async def main():
        async with EnvPool(kind, n=4) as pool:
            await pool.reset_batch()
            most[0] = 0
            step = asyncio.ensure_future(pool.step_batch([BLOCK, None, None, None]))
            await taken(kind.begun)
            resets = [asyncio.ensure_future(pool.reset_batch(slots=[0])) for _ in range(8)]
            await asyncio.sleep(0)
            kind.gate.set()
            await asyncio.gather(step, *resets)
            assert most[0] == 1

    play(main)


def test_env_pool_closing_a_pool_ends_a_batch_that_another_task_waits_for(blocking):
    kind = blocking()

    async def main():
        async with EnvPool(kind, n=2) as pool:
            await pool.reset_batch()
            task = asyncio.ensure_future(pool.step_batch([BLOCK, Move()]))
            await taken(kind.begun)
        stepped = await task
        assert failed(stepped[0], "the pool was closed")
        assert "goes on" not in kind.notes

    play(main)


def test_env_pool_an_environment_is_closed_after_its_step_has_ended_also_at_the_pools_end(blocking):
    kind = blocking()

    async def main():
        async with EnvPool(kind, n=2) as pool:
            await pool.reset_batch()
            task = asyncio.ensure_future(pool.step_batch([BLOCK, None]))
            await taken(kind.begun)
            task.cancel()
        assert kind.notes == ["made", "made", "blocks", "closed"]  # the other's
        kind.gate.set()
        await taken(kind.closes)
        await taken(kind.closes)
        assert kind.notes[-2:] == ["goes on", "closed"]

    play(main)


def test_env_pool_closing_closes_every_environment_once(blocking):
    kind = blocking()

    async def main():
        pool = EnvPool(kind, n=3)
        async with pool:
            await pool.reset_batch()
        assert kind.notes == ["made"] * 3 + ["closed"] * 3
        await pool.close()
        await pool.close()
        assert kind.notes.count("closed") == 3

    play(main)


def test_env_pool_what_closing_raises_or_exits_with_disturbs_no_other_slot(caplog):
    closed = []

    class Raises(World):
        def close(self):
            closed.append(self)
            if len(closed) == 1:
                raise OSError("stuck door")
            if len(closed) == 2:
                sys.exit(3)

    async def main():
        async with EnvPool(Raises, n=4) as pool:
            await pool.reset_batch()

    play(main)
    assert len(closed) == 4
    assert "stuck door" in caplog.text
    assert "sys.exit(3)" in caplog.text


@pytest.mark.parametrize("used", ["before", "after"])
def test_env_pool_reports_that_it_is_not_open(used):
    async def main():
        pool = EnvPool(World, n=2)
        if used == "after":
            async with pool:
                await pool.reset_batch()
        for call in (
            pool.reset_batch,
            lambda: pool.step_batch([None, None]),
            lambda: pool.step_batch([Move(), Move()]),
            lambda: anext(pool.as_completed([Move(), Move()])),
        ):
            with pytest.raises(InvalidArgumentError, match="is not open; use it as `async with"):
                await call()
        await pool.close()

    play(main)


def test_env_pool_a_pool_may_be_opened_again(blocking):
    kind = blocking()

    async def main():
        pool = EnvPool(kind, n=2)
        for _ in range(2):
            async with pool:
                await pool.reset_batch()
                assert rewards(await pool.step_batch([Move()] * 2)) == [1.0, 1.0]
        assert kind.notes.count("made") == kind.notes.count("closed") == 4

    play(main)


def test_env_pool_may_be_opened_again_in_another_event_loop(blocking):
    kind = blocking()
    pool = EnvPool(kind, n=1)

    async def main():
        async with pool:
            await pool.reset_batch()
            step = asyncio.ensure_future(pool.step_batch([BLOCK]))
            await taken(kind.begun)
            reset = asyncio.ensure_future(pool.reset_batch(3))  # waits for the step
            await asyncio.sleep(0)
            kind.gate.set()
            assert rewards(await step) == [-1.0]
            assert seeds_of(await reset) == [3]

    for _ in range(2):
        kind.gate.clear()
        play(main)


def test_env_pool_send_after_close_is_refused_and_the_pool_may_be_opened_again():
    async def main():
        pool = EnvPool(World, n=2)
        async with pool:
            await pool.reset_batch()
            stream = pool.as_completed([Move(), None])
            slot, _ = await anext(stream)
        with pytest.raises(InvalidArgumentError, match="is not open; use it as `async with"):
            pool.send(slot, Move())
        async with pool:
            await pool.reset_batch()
            assert rewards(await pool.step_batch([Move()] * 2)) == [1.0, 1.0]
        await stream.aclose()

    play(main)


def test_env_pool_the_threads_end_with_the_pool():
    async def main():
        before = set(threading.enumerate())
        async with EnvPool(World, n=8) as pool:
            await pool.reset_batch()
            own = {each for each in threading.enumerate() if each.name == "guerdon-pool"} - before
            assert own
        for thread in own:
            thread.join(SOON)
            assert not thread.is_alive()

    play(main)


# Making one -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, -1, 1.5, True, "2", None])
def test_env_pool_rejects_n_below_1(n):
    with pytest.raises(InvalidArgumentError, match="`n` must be an integer >= 1"):
        EnvPool(World, n=n)


@pytest.mark.parametrize("timeout_s", [0, -1, True, "1", None, float("nan")])
def test_env_pool_a_timeout_that_is_invalid_is_refused(timeout_s):
    with pytest.raises(
        InvalidArgumentError, match="`timeout_s` must be a number of seconds above 0"
    ):
        EnvPool(World, timeout_s=timeout_s)
    if timeout_s is None:
        return  # the pool's own

    async def main():
        async with EnvPool(World, n=1) as pool:
            await pool.reset_batch()
            with pytest.raises(InvalidArgumentError, match="`timeout_s` must be"):
                await pool.step_batch([Move()], timeout_s=timeout_s)

    play(main)


@pytest.mark.parametrize("env", [None, 3, World, [World]])
def test_env_pool_rejects_what_is_not_a_factory(env):
    with pytest.raises(InvalidArgumentError, match="`env` must be an environment class"):
        EnvPool(World() if env is World else env)


def test_env_pool_a_name_that_is_not_registered_is_reported(monkeypatch):
    entries = {}
    monkeypatch.setattr(environments, "_entries", entries)
    with pytest.raises(LoadError, match="'maze' is not a folder"):
        EnvPool("maze")
    environments.register("maze", World)

    async def main():
        async with EnvPool("maze", n=1) as pool:
            await pool.reset_batch()
            return rewards(await pool.step_batch([Move(value=2)]))

    assert play(main) == [2.0]


@pytest.mark.parametrize(
    "factory", [lambda: None, lambda: Board(), lambda: 1 / 0, lambda: sys.exit(3)]
)
def test_env_pool_a_factory_that_fails_is_reported_in_every_slot(factory):
    async def main():
        async with EnvPool(factory, n=2) as pool:
            return await pool.reset_batch()

    assert all(failed(each) for each in play(main))


@pytest.mark.parametrize("backend", ["process", 4, False])
def test_env_pool_refuses_a_backend_that_is_none(backend):
    with pytest.raises(InvalidArgumentError, match=r"`backend` must be one of \['threads', "):
        EnvPool(n=2, backend=backend)


def test_env_pool_refuses_an_environment_beside_a_backend_which_has_its_own():
    with pytest.raises(InvalidArgumentError, match=r"`env` must be left out if `backend` is given"):
        EnvPool(World, n=2, backend=ThreadBackend(World, 2))


@pytest.mark.parametrize(
    "backend",
    [
        lambda: ThreadBackend(World, 2),
        lambda: ProcessBackend(World, 2),
        lambda: RemoteBackend("http://127.0.0.1:1", 2, observation_type=Board),
    ],
    ids=["threads", "processes", "remote"],
)
def test_env_pool_refuses_another_n_than_that_of_the_backend(backend):
    with pytest.raises(InvalidArgumentError, match="`n` must be that of the backend, 2, got 64"):
        EnvPool(backend=backend())
    assert len(EnvPool(n=2, backend=backend())) == 2


def test_env_pool_another_backend_may_be_brought():
    """The seam for processes and clusters."""

    class Echoes(PoolBackend):
        def __init__(self):
            self.notes = []

        async def open(self):
            self.notes.append("open")

        def submit(self, calls):
            self.notes.append([call.slot for call in calls])
            for call in calls:
                if call.is_reset:
                    call.finish(Observation(metadata={"seed": call.seed}))
                elif call.action.value >= 0:
                    call.finish(Observation(reward=call.action.value))
                    call.finish(Observation(reward=99))  # what comes too late is dropped

        def give_up(self, call):
            self.notes.append(("give up", call.slot))
            call.finish(Observation(reward=99))

        async def close(self):
            self.notes.append("close")

    backend = Echoes()

    async def main():
        async with EnvPool(n=2, backend=backend) as pool:
            assert seeds_of(await pool.reset_batch(4)) == [4, 5]
            assert rewards(await pool.step_batch([Move(value=2), None])) == [2.0, None]
            await pool.step_batch([None, BLOCK], timeout_s=SHORT)

    play(main)
    assert backend.notes == ["open", [0, 1], [0], [1], ("give up", 1), "close"]


@pytest.mark.parametrize(
    "call",
    [
        lambda pool: pool.reset_batch(),
        lambda pool: pool.step_batch([Move()] * 2),
        lambda pool: anext(pool.as_completed([Move()] * 2)),
    ],
    ids=["reset_batch", "step_batch", "as_completed"],
)
def test_env_pool_raises_what_submit_of_the_backend_raises_and_the_slots_are_free_again(call):
    class Fails(PoolBackend):
        fails = False

        async def open(self): ...

        def submit(self, calls):
            if self.fails:
                raise OSError("the cluster can't be reached")
            for call in calls:
                call.finish(Observation(reward=1.0))

        def give_up(self, call): ...

        async def close(self): ...

    backend = Fails()

    async def main():
        async with EnvPool(n=2, backend=backend) as pool:
            await pool.reset_batch()
            backend.fails = True
            with pytest.raises(OSError, match="the cluster can't be reached"):
                await call(pool)
            backend.fails = False
            assert rewards(await pool.step_batch([Move()] * 2)) == [1.0, 1.0]
            assert rewards(await pool.reset_batch()) == [1.0, 1.0]

    play(main)
