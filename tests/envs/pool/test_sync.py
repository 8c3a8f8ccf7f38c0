"""SyncEnvPool: a pool for code that awaits nothing."""

import asyncio
import threading

import pytest

from guerdon import Environment, EnvPool, Sequential
from guerdon.errors import InvalidArgumentError
from tests.envs.worlds import SOON, AsyncHalf, Board, Deed, Half, Move, Value, World

BLOCK = Move(value=-1)


class AsyncWorld(World):
    reset, step = Environment.reset, Environment.step

    async def reset_async(self, seed=None, **kwargs):
        return World.reset(self, seed, **kwargs)

    async def step_async(self, action, timeout_s=None, **kwargs):
        return await self.score_async(action, Board(value=action.value))


class RewardsByHand(World):
    def step(self, action, timeout_s=None, **kwargs):
        board = Board()
        board.reward = self.rubric(action, board)
        return board


@pytest.mark.parametrize("kind", [World, AsyncWorld, RewardsByHand])
@pytest.mark.parametrize("half", [Half, AsyncHalf])
def test_sync_env_pool_an_episode_is_played_without_awaiting_anything(kind, half):
    with EnvPool(lambda: kind(Sequential(Value(), half())), n=2).sync() as pool:
        assert len(pool) == 2
        first = pool.reset_batch(seeds=3, options=[{"task": 1}, {"task": 2}])
        assert [each.metadata for each in first] == [
            {"seed": 3, "task": 1},
            {"seed": 4, "task": 2},
        ]
        stepped = pool.step_batch([Move(value=2), None])
        assert (stepped[0].reward, stepped[1]) == (0.5, None)
        assert stepped[0].metadata["reward_components"] == {"rubric_0": 2.0, "rubric_1": 0.5}
        (again,) = pool.reset_batch([9], slots=[1])
        assert again.metadata == {"seed": 9}


def test_sync_env_pool_it_works_inside_of_a_running_event_loop_too():
    async def main():
        with EnvPool(World, n=1).sync() as pool:
            pool.reset_batch()
            return pool.step_batch([Move(value=2)])[0].reward

    assert asyncio.run(main()) == 2.0


def test_sync_env_pool_applies_the_timeout(blocking):
    with EnvPool(blocking(), n=2).sync() as pool:
        pool.reset_batch()
        stepped = pool.step_batch([BLOCK, Move()], timeout_s=0.2)
        assert "longer than 0.2 s" in stepped[0].metadata["error"]
        assert stepped[1].reward == 1.0


def test_sync_env_pool_yields_the_first_to_complete_first_and_may_be_sent_more(blocking):
    kind = blocking()
    seen = []
    with EnvPool(kind, n=2).sync() as pool:
        pool.reset_batch()
        for slot, board in pool.as_completed([BLOCK, Move(value=0)]):
            seen.append((slot, board.reward))
            if slot == 1 and board.reward < 3:
                pool.send(1, Move(value=board.reward + 1))
            elif slot == 1:
                kind.gate.set()
    assert seen == [(1, 0.0), (1, 1.0), (1, 2.0), (1, 3.0), (0, -1.0)]


def test_sync_env_pool_a_stream_that_is_broken_off_may_be_followed_by_another_at_once(blocking):
    kind = blocking()
    with EnvPool(kind, n=2).sync() as pool:
        pool.reset_batch()
        for _ in pool.as_completed([BLOCK, Move()]):
            break
        assert [slot for slot, _ in pool.as_completed([None, Move()])] == [1]
        with pytest.raises(InvalidArgumentError, match="slot 0 is still in an earlier call"):
            pool.step_batch([Move(), None])
        kind.gate.set()
        pool.reset_batch()
        assert [each.reward for each in pool.step_batch([Move()] * 2)] == [1.0, 1.0]


def test_sync_env_pool_refuses_invalid_arguments_as_by_the_async_pool():
    pool = EnvPool(World, n=1).sync()
    with pytest.raises(
        InvalidArgumentError, match=r"is not open; use it as .* or `with EnvPool\(…\)\.sync\(\)`"
    ):
        pool.reset_batch()
    with pool:
        for call in (
            lambda: pool.step_batch([]),
            lambda: pool.send(0, Move()),
            lambda: next(pool.as_completed([1])),
            lambda: pool.reset_batch(slots=[1]),
        ):
            with pytest.raises(InvalidArgumentError):
                call()
    pool.close()
    with pytest.raises(
        InvalidArgumentError, match=r"is not open; use it as .* or `with EnvPool\(…\)\.sync\(\)`"
    ):
        pool.step_batch([Move()])


def test_sync_env_pool_environments_are_closed_also_where_the_body_raises(blocking):
    kind = blocking()

    def main():
        with EnvPool(kind, n=3).sync() as pool:
            pool.reset_batch()
            raise OSError("mine")

    with pytest.raises(OSError, match="mine"):
        main()
    assert kind.notes.count("closed") == 3


def test_sync_env_pool_pools_in_many_threads_never_see_each_other():
    barrier = threading.Barrier(4, timeout=SOON)
    found = {}

    def play(place):
        with EnvPool(World, n=3).sync() as pool:
            pool.reset_batch()
            barrier.wait()
            found[place] = [
                [each.reward for each in pool.step_batch([Move(value=place)] * 3)]
                for _ in range(10)
            ]

    threads = [threading.Thread(target=play, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
    assert found == {place: [[float(place)] * 3] * 10 for place in range(4)}


def test_sync_env_pool_it_plays_on_a_server_too(world_server):
    with EnvPool(world_server.url, n=2).sync() as pool:
        pool.reset_batch(seeds=0)
        assert [each.reward for each in pool.step_batch([Deed(), {}])] == [0.5, 0.5]
