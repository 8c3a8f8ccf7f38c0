"""What every pool backend does: they all pass the same tests.

A new backend is added to `BACKENDS`.
"""

import asyncio
import threading

import pytest

from guerdon import EnvPool
from guerdon.envs import ProcessBackend, RemoteBackend, ThreadBackend
from guerdon.errors import InvalidArgumentError
from guerdon.types import GenericObservation
from tests.envs.worlds import SOON, Served

SHORT = 0.3

BACKENDS = {
    "threads": lambda url, n: ThreadBackend(Served, n),
    "processes": lambda url, n: ProcessBackend(Served, n, workers=2),
    "remote": lambda url, n: RemoteBackend(url, n, observation_type=GenericObservation),
}


# Those with real servers and processes are run by `make edges`.
IN_THREADS = ("threads",)


@pytest.fixture(
    params=[
        pytest.param(name, marks=[] if name in IN_THREADS else pytest.mark.edge)
        for name in BACKENDS
    ]
)
def new_pool(request, world_server):
    """Makes pools of `Served` on each backend; environments that hang end with the test."""
    Served.gate = threading.Event()

    def make(n, **options):
        return EnvPool(n=n, backend=BACKENDS[request.param](world_server.url, n), **options)

    yield make
    Served.gate.set()


def play(main):
    async def limited():
        async with asyncio.timeout(2 * SOON):
            return await main()

    return asyncio.run(limited())


def rewards(observations):
    return [each if each is None else each.reward for each in observations]


def errors(observations):
    return [each.metadata.get("error") for each in observations]


def test_backend_resets_and_steps_in_the_order_of_the_slots(new_pool):
    async def main():
        async with new_pool(3) as pool:
            first = await pool.reset_batch(seeds=4, task="t")
            assert [each.metadata["seed"] for each in first] == [4, 5, 6]
            assert {each.metadata["task"] for each in first} == {"t"}
            stepped = await pool.step_batch([{"value": 1}, None, {"value": 3}])
            assert rewards(stepped) == [0.5, None, 0.5]
            assert stepped[0].metadata["reward_components"] == {"rubric_0": 1.0, "rubric_1": 0.5}
            assert [each and each.value for each in stepped] == [1.0, None, 1.0]

    play(main)


def test_backend_reports_a_slot_that_was_never_reset(new_pool):
    async def main():
        async with new_pool(2) as pool:
            await pool.reset_batch(slots=[0])
            good, bad = await pool.step_batch([{}, {}])
            again = [each async for each in pool.as_completed([None, {}])]
            assert (good.reward, bad.done, again) == (0.5, True, [(1, bad)])
            assert "slot 1 was never reset" in bad.metadata["error"]

    play(main)


def test_backend_resets_some_slots_and_leaves_the_others(new_pool):
    async def main():
        async with new_pool(2) as pool:
            await pool.reset_batch()
            await pool.step_batch([{}, {}])
            await pool.reset_batch(slots=[1])
            assert [each.value for each in await pool.step_batch([{}, {}])] == [2.0, 1.0]

    play(main)


@pytest.mark.parametrize("do", ["raise", "exit"])
def test_backend_isolates_an_environment_that_fails_until_its_next_reset(new_pool, do):
    async def main():
        async with new_pool(2) as pool:
            await pool.reset_batch()
            bad, good = await pool.step_batch([{"do": do}, {}])
            assert (bad.reward, bad.done, good.reward) == (None, True, 0.5)
            assert bad.metadata["error"]
            again, _ = await pool.step_batch([{}, None])
            assert (again.reward, again.done) == (None, True)
            assert "EpisodeError" in again.metadata["error"]
            (first,) = await pool.reset_batch(slots=[0])
            assert not first.done
            assert rewards(await pool.step_batch([{}, {}])) == [0.5, 0.5]

    play(main)


def test_backend_isolates_a_reset_that_fails(new_pool):
    async def main():
        async with new_pool(2) as pool:
            bad, good = await pool.reset_batch(options=[{"task": "fail"}, {}])
            assert (bad.done, good.done) == (True, False)
            assert "no such task" in bad.metadata["error"]
            (again,) = await pool.reset_batch(slots=[0])
            assert not again.done

    play(main)


@pytest.mark.parametrize("options", [{"task": "fail"}, {"episode_id": 5}], ids=str)
def test_backend_refuses_steps_after_a_reset_that_failed(new_pool, options):
    async def main():
        async with new_pool(2) as pool:
            await pool.reset_batch()
            await pool.step_batch([{}, {}])
            (bad,) = await pool.reset_batch(slots=[0], options=[options])
            assert (bad.reward, bad.done) == (None, True)
            refused, good = await pool.step_batch([{}, {}])
            assert (refused.reward, refused.done, good.reward) == (None, True, 0.5)
            assert refused.metadata["error"].startswith("EpisodeError: the last ")
            await pool.reset_batch(slots=[0])
            assert [each.value for each in await pool.step_batch([{}, {}])] == [1.0, 3.0]

    play(main)


def test_backend_reports_a_failed_rubric_as_an_observation_without_a_reward(new_pool):
    async def main():
        async with new_pool(1) as pool:
            await pool.reset_batch()
            (board,) = await pool.step_batch([{"do": "fail"}])
            assert (board.reward, board.done) == (None, False)
            assert board.metadata["reward_error"].endswith("OSError: the judge is down")
            assert "error" not in board.metadata

    play(main)


def test_backend_refuses_an_invalid_action_before_the_environment_receives_it(new_pool):
    async def main():
        async with new_pool(2) as pool:
            await pool.reset_batch()
            bad, good = await pool.step_batch([{"valu": 1}, {}])
            assert bad.metadata["error"].startswith("InvalidActionError: ")
            assert (bad.reward, bad.done, good.reward) == (None, False, 0.5)
            assert [each.value for each in await pool.step_batch([{}, {}])] == [1.0, 2.0]

    play(main)


def test_backend_abandons_an_environment_that_exceeds_the_time_limit(new_pool):
    async def main():
        async with new_pool(2) as pool:
            await pool.reset_batch()
            bad, good = await pool.step_batch([{"do": "hang"}, {}], timeout_s=SHORT)
            assert (bad.reward, bad.done, good.reward) == (None, True, 0.5)
            assert "EnvTimeoutError: the step took longer than 0.3 s" in bad.metadata["error"]
            await pool.reset_batch(slots=[0])
            assert [each.value for each in await pool.step_batch([{}, {}])] == [1.0, 2.0]

    play(main)


def test_backend_keeps_a_late_answer_from_the_next_call(new_pool):
    async def main():
        async with new_pool(1) as pool:
            await pool.reset_batch(seeds=1)
            (late,) = await pool.step_batch([{"do": "hang", "value": 9}], timeout_s=SHORT)
            assert late.done
            Served.gate.set()  # in this process, the abandoned step ends now
            (first,) = await pool.reset_batch(seeds=2)
            assert (first.reward, first.metadata["seed"]) == (None, 2)
            (board,) = await pool.step_batch([{}])
            assert (board.reward, board.value) == (0.5, 1.0)

    play(main)


def test_backend_leaves_the_pool_usable_after_a_cancelled_batch(new_pool):
    async def main():
        async with new_pool(2, timeout_s=SHORT) as pool:
            await pool.reset_batch()
            batch = asyncio.ensure_future(pool.step_batch([{"do": "hang"}, {}]))
            await asyncio.sleep(0)
            batch.cancel()
            with pytest.raises(asyncio.CancelledError):
                await batch
            await pool.reset_batch()
            assert [each.value for each in await pool.step_batch([{}, {}])] == [1.0, 1.0]

    play(main)


def test_backend_ends_running_calls_when_the_pool_is_closed(new_pool):
    async def main():
        async with new_pool(2) as pool:
            await pool.reset_batch()
            batch = asyncio.ensure_future(pool.step_batch([{"do": "hang"}, None]))
            await asyncio.sleep(0)
        (ended, skipped) = await batch
        assert ended.done
        assert "the pool was closed" in ended.metadata["error"]
        assert skipped is None
        with pytest.raises(InvalidArgumentError, match="the pool is not open"):
            await pool.reset_batch()

    play(main)


def test_backend_yields_observations_as_they_complete(new_pool):
    async def main():
        async with new_pool(2) as pool:
            await pool.reset_batch()
            seen = []
            async for slot, board in pool.as_completed([{}, {"do": "hang"}], timeout_s=SHORT):
                seen.append((slot, board.reward))
                if len(seen) < 3 and slot == 0:
                    pool.send(0, {})
            assert seen[:3] == [(0, 0.5)] * 3
            assert seen[3] == (1, None)

    play(main)


def test_backend_plays_by_the_sync_pool(new_pool):
    with new_pool(2).sync() as pool:
        assert errors(pool.reset_batch(seeds=[1, None])) == [None, None]
        assert rewards(pool.step_batch([{}, {}])) == [0.5, 0.5]
        assert dict(pool.as_completed([{}, None])).keys() == {0}


def test_backend_refuses_fields_of_another_action(new_pool):
    async def main():
        async with new_pool(2) as pool:
            await pool.reset_batch()
            refused, taken = await pool.step_batch([{"move": 1}, {"value": 1}])
            assert "move: Extra inputs are not permitted" in refused.metadata["error"]
            assert (refused.done, refused.reward, taken.reward) == (False, None, 0.5)

    play(main)
