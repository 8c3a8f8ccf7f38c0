"""`EnvPool(…, backend="ray")`: what every backend does, and what happens to actors and nodes."""

import asyncio
import time

import pytest
import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from cluster.worlds import Where, World
from guerdon import EnvPool
from guerdon.envs import PoolCall, RayBackend
from guerdon.errors import LoadError, WorkerError
from tests.envs.pool import test_contract
from tests.envs.pool.test_contract import *  # noqa: F403  what every backend does
from tests.envs.worlds import Served

pytestmark = [pytest.mark.usefixtures("driver"), pytest.mark.anyio]

PATIENCE = 120  # seconds


@pytest.fixture
def new_pool():
    """Makes pools in two actors."""
    return lambda n, **options: EnvPool(n=n, backend=RayBackend(Served, n, workers=2), **options)


# It opens a gate, which environments in other processes don't have.
del test_backend_keeps_a_late_answer_from_the_next_call  # noqa: F821


@pytest.fixture(autouse=True)
def slower(monkeypatch):
    """An actor starts in seconds."""
    monkeypatch.setattr(test_contract, "SOON", PATIENCE / 2)


def pool_of(n, env=World, **options):
    return EnvPool(n=n, backend=RayBackend(env, n, **options), timeout_s=60)


def errors(observations):
    return [each.metadata.get("error", "") for each in observations]


def free():
    """How many CPUs of the cluster no actor occupies."""
    return ray.available_resources()["CPU"]


async def until(happened):
    async with asyncio.timeout(PATIENCE):
        while not happened():
            await asyncio.sleep(0.1)


async def test_env_pool_on_ray_by_name_has_an_actor_for_each_free_cpu():
    await until(lambda: free() == 6)
    async with EnvPool(World, n=12, backend="ray") as pool:
        first = await pool.reset_batch()
        assert {type(each) for each in first} == {Where}
        assert len({each.process for each in first}) == 6
        assert len({each.node for each in first}) == 2


async def test_ray_backend_runs_environments_of_a_script():
    class Local(World):
        pass

    async with pool_of(2, Local, workers=2) as pool:
        await pool.reset_batch()
        assert [each.steps for each in await pool.step_batch([{}, {}])] == [1, 1]


async def test_ray_backend_starts_actors_with_their_options():
    group = placement_group([{"CPU": 1}] * 2, strategy="STRICT_SPREAD")
    try:
        await group.ready()
        options = {"scheduling_strategy": PlacementGroupSchedulingStrategy(group)}
        async with pool_of(4, workers=2, actor_options=options) as pool:
            first = await pool.reset_batch()
            assert first[0].node == first[2].node != first[1].node == first[3].node
    finally:
        remove_placement_group(group)


async def test_ray_backend_fails_the_slots_of_an_actor_that_dies_until_their_reset():
    async with pool_of(4, workers=2) as pool:
        first = await pool.reset_batch()
        batch = await pool.step_batch([{}, {}, {"do": "exit", "seconds": 1}, {}])
        assert [each.reward for each in batch] == [1.0, 1.0, None, 1.0]
        assert "the actor was lost" in batch[2].metadata["error"]
        assert batch[2].done
        again = await pool.step_batch([{}, {}, {}, {}])
        assert [each.reward for each in again] == [None, 1.0, None, 1.0]
        assert "reset the slot" in again[0].metadata["error"]
        healed = await pool.reset_batch(slots=[0, 2])
        assert errors(healed) == ["", ""]
        assert {each.process for each in healed}.isdisjoint({each.process for each in first})
        steps = await pool.step_batch([{}, {}, {}, {}])
        assert [each.steps for each in steps] == [1, 3, 1, 3]


async def test_ray_backend_names_the_slot_that_its_actor_was_in_as_far_as_it_is_known():
    async with pool_of(4, workers=1) as pool:
        await pool.reset_batch()
        batch = await pool.step_batch([{}, {}, {"do": "exit", "seconds": 1}, {}])
        assert "and was in slot 2 before" in batch[2].metadata["error"]
        await pool.reset_batch()
        batch = await pool.step_batch([{"do": "exit"}, {}, {}, {}])
        assert "the actor was lost" in batch[0].metadata["error"]
        assert "in step of slot" not in "".join(errors(batch))


async def test_ray_backend_kills_the_actor_of_a_step_that_exceeds_its_time_limit():
    async with pool_of(6, workers=2) as pool:
        await pool.reset_batch()
        batch = await pool.step_batch(
            [{}, {}, {"seconds": 60}, {}, {}, {"seconds": 0.5}], timeout_s=3
        )
        assert [each.reward for each in batch] == [1.0, 1.0, None, 1.0, None, 1.0]
        assert "EnvTimeoutError: the step took longer than 3 s" in batch[2].metadata["error"]
        assert "step of slot 2 exceeded its time limit" in batch[4].metadata["error"]
        healed = await pool.reset_batch(slots=[0, 2, 4])
        assert errors(healed) == ["", "", ""]


async def test_ray_backend_doesnt_count_the_time_that_a_step_waits_for_others():
    async with pool_of(4, workers=1) as pool:
        await pool.reset_batch()
        batch = await pool.step_batch([{"seconds": 0.5}] * 4, timeout_s=1.2)
        assert errors(batch) == [""] * 4


async def test_ray_backend_yields_results_of_an_actor_while_it_computes():
    async with pool_of(2, workers=1) as pool:
        await pool.reset_batch()
        start = time.monotonic()
        arrived = {}
        async for slot, _ in pool.as_completed([{}, {"seconds": 3}]):
            arrived[slot] = time.monotonic() - start
        assert arrived[0] < 2 < arrived[1]


async def test_ray_backend_fails_the_slots_of_a_node_that_is_lost_until_their_reset(cluster, node):
    async with pool_of(3, workers=3) as pool:
        first = await pool.reset_batch()
        lost = [slot for slot, each in enumerate(first) if each.node == node.node_id]
        assert len(lost) == 1
        stepping = asyncio.ensure_future(pool.step_batch([{"seconds": 2}] * 3))
        await asyncio.sleep(0.5)
        await asyncio.to_thread(cluster.remove_node, node, allow_graceful=False)
        batch = await stepping
        rewards = [each.reward for each in batch]
        assert rewards == [None if slot in lost else 1.0 for slot in range(3)]
        assert "the actor was lost" in batch[lost[0]].metadata["error"]
        (healed,) = await pool.reset_batch(slots=lost)
        assert errors([healed]) == [""]
        assert healed.node != node.node_id
        assert errors(await pool.step_batch([{}] * 3)) == [""] * 3


async def test_ray_backend_ends_its_actors_when_the_pool_is_closed():
    await until(lambda: free() == 6)
    async with pool_of(4, workers=2) as pool:
        await pool.reset_batch()
        await until(lambda: free() == 4)
    await until(lambda: free() == 6)


async def test_ray_backend_ends_its_actors_though_closing_is_cancelled():
    await until(lambda: free() == 6)
    backend = RayBackend(World, 1, workers=1)
    await backend.open()
    ended = []
    backend.submit([PoolCall(0, ended.append, extra={})])
    await until(lambda: ended)
    backend.submit([PoolCall(0, ended.append, action={"seconds": 2 * PATIENCE})])
    await asyncio.sleep(1)  # the step has begun
    closing = asyncio.ensure_future(backend.close())
    await asyncio.sleep(1)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await until(lambda: free() == 6)


async def test_ray_backend_raises_what_loading_the_environment_raises(tmp_path):
    (tmp_path / "world.py").write_text(
        "from cluster.worlds import World\n\nclass Own(World):\n    pass\n"
    )
    backend = RayBackend(f"{tmp_path}/world.py:Own", 2, workers=2)
    (tmp_path / "world.py").unlink()
    with pytest.raises(LoadError, match="there is no file"):
        async with EnvPool(n=2, backend=backend):
            pass


async def test_ray_backend_fails_if_the_cluster_lacks_what_actors_require(monkeypatch):
    monkeypatch.setattr("guerdon.envs.pool.ray.START_S", 2.0)
    with pytest.raises(WorkerError, match="does the cluster have what"):
        async with pool_of(2, workers=1, actor_options={"resources": {"tpu": 1}}):
            pass
    await until(lambda: free() == 6)
    assert ray.is_initialized()
