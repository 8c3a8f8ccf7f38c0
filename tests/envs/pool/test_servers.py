"""A pool whose environments are on several servers, which have one reward configuration."""

import asyncio
import itertools
import socket
from collections import Counter

import pytest

from guerdon import EnvPool, HTTPEnvClient, Rubric, RubricComposer, create_app
from guerdon.envs import RemoteBackend
from guerdon.errors import (
    ClientTimeoutError,
    ConfigConflictError,
    ConnectionLostError,
    InvalidArgumentError,
    RewardConfigError,
)
from tests.envs.client.servers import Echo, Echoed, Served
from tests.envs.worlds import SOON, Server

pytestmark = pytest.mark.edge  # real servers and processes


def run(main):
    async def limited():
        async with asyncio.timeout(SOON):
            return await main

    return asyncio.run(limited())


def processes(observations):
    return [each.metadata.get("process") for each in observations]


def errors(observations):
    return [each.metadata.get("error", "") for each in observations]


# Slots ------------------------------------------------------------------------------------------


def test_env_pool_on_servers_spreads_slots_by_their_free_sessions():
    async def main(urls):
        async with EnvPool(urls, n=8) as pool:
            first = await pool.reset_batch(seeds=0)
            assert [each.metadata["seed"] for each in first] == list(range(8))
            assert sorted(Counter(processes(first)).values()) == [2, 6]
            stepped = await pool.step_batch([{"value": slot} for slot in range(8)])
            assert [each.reward for each in stepped] == [0.0] + [0.5] * 7

    with Server(sessions=10) as one, Server(sessions=30) as two:
        run(main([one.url, two.url]))


def test_env_pool_on_servers_slots_of_a_server_that_dies_fail_alone_move_and_move_back():
    async def main(one, two):
        async with EnvPool((one.url, two.url), n=4) as pool:
            first = await pool.reset_batch()
            victims = [slot for slot in range(4) if processes(first)[slot] == processes(first)[0]]
            assert len(victims) == 2
            die = [{"do": "die"} if slot == 0 else {} for slot in range(4)]
            stepped = await pool.step_batch(die)
            for slot in range(4):
                assert ("ConnectionLostError" in errors(stepped)[slot]) is (slot in victims)
            stepped = await pool.step_batch([{}] * 4)
            assert [bool(each) for each in errors(stepped)] == [s in victims for s in range(4)]
            again = await pool.reset_batch(slots=victims)
            assert errors(again) == ["", ""]
            assert not set(processes(again)) & {first[0].metadata["process"]}
            assert [each.value for each in await pool.step_batch([{}] * 4)] == [
                1 if slot in victims else 3 for slot in range(4)
            ]
            with await asyncio.to_thread(Server, port=one.port):
                while True:  # at resets it is tried again, once a second
                    counts = Counter(processes(await pool.reset_batch()))
                    if len(counts) == 2:
                        break
                    await asyncio.sleep(0.05)
                assert sorted(counts.values()) in ([1, 3], [2, 2])
                counts = Counter(processes(await pool.reset_batch()))
                assert sorted(counts.values()) == [2, 2]

    with Server() as one, Server() as two:
        run(main(one, two))


def test_env_pool_on_servers_a_full_server_leaves_its_slots_to_the_others():
    async def main(one, two):
        async with EnvPool([one.url, two.url], n=8) as pool, EnvPool(one.url, n=3) as other:
            await other.reset_batch()  # takes places that the pool has counted
            first = errors(await pool.reset_batch())
            (full,) = [slot for slot, error in enumerate(first) if error]
            assert "CAPACITY_REACHED" in first[full]
            assert errors(await pool.reset_batch(slots=[full])) == [""]

    with Server(sessions=4) as one, Server(sessions=12) as two:
        run(main(one, two))


def test_env_pool_on_servers_uses_a_server_that_was_full_for_a_moment_again():
    async def main(one, two):
        async with EnvPool([one.url, two.url], n=8) as pool:
            async with EnvPool(one.url, n=4) as other:
                await other.reset_batch()
                first = errors(await pool.reset_batch())
            full = [slot for slot, error in enumerate(first) if error]
            assert len(full) == 4
            while full:  # until the server has closed the sessions of the other pool
                again = errors(await pool.reset_batch(slots=full))
                full = [slot for slot, error in zip(full, again, strict=True) if error]
            assert errors(await pool.step_batch([{}] * 8)) == [""] * 8

    with Server(sessions=4) as one, Server(sessions=4) as two:
        run(main(one, two))


def test_env_pool_on_servers_one_that_is_not_available_refuses_the_pool():
    with socket.socket() as taken, Server() as one:
        taken.bind(("127.0.0.1", 0))
        gone = f"http://127.0.0.1:{taken.getsockname()[1]}"

        async def main():
            pool = EnvPool([one.url, gone], n=2)
            with pytest.raises(ConnectionLostError, match=gone.removeprefix("http://")):
                await pool.__aenter__()

        run(main())


@pytest.mark.parametrize("urls", [[], ["http://a:1", "a:1"]])
def test_env_pool_refuses_a_list_without_servers_or_with_one_twice(urls):
    with pytest.raises(InvalidArgumentError, match="each server once"):
        EnvPool(urls)


# Configuration ----------------------------------------------------------------------------------


class Fixed(Rubric):
    score_range = (0.0, 1.0)
    tunable = ("value",)

    def __init__(self, value=1.0):
        super().__init__()
        self.value = value

    def forward(self, action, observation):
        return self.value


class Composed(Echo):
    def __init__(self):
        super().__init__()
        self.rubric = RubricComposer({"a": Fixed(), "b": Fixed(0.5)}, {"a": 1.0, "b": 2.0})


@pytest.fixture
def serve():
    """Serves an environment in a thread, and stops it when the test ends."""
    running = []

    def serve(factory=Composed, port=0):
        running.append(Served(create_app(factory), port))
        return running[-1]

    yield serve
    for served in running:
        served.stop()


async def rewards(pool):
    assert errors(await pool.reset_batch()) == [""] * len(pool)
    return [each.reward for each in await pool.step_batch([{"message": "hello"}] * len(pool))]


async def configurations(*served):
    found = []
    for each in served:
        async with HTTPEnvClient(each.url) as client:
            found.append(await client.get_config())
    return found


def is_same(configs):
    """Whether servers score alike; their versions count the changes of each."""
    return len({(each["fingerprint"], str(each["per_turn"])) for each in configs}) == 1


def weights(config):
    return [entry["weight"] for entry in config["per_turn"]]


def test_env_pool_update_config_changes_all_servers(serve):
    async def main():
        one, two = serve(), serve()
        async with EnvPool([one.url, two.url], n=4) as pool:
            assert await rewards(pool) == [2.0] * 4
            answer = await pool.update_config({"weights": {"a": 3.0}})
            assert answer["status"] == "ok"
            assert await rewards(pool) == [4.0] * 4
            await pool.update_config({"training_step": 7})
            first, second = await configurations(one, two)
            assert first["version"] == second["version"] == answer["config"]["version"]
            assert weights(first) == weights(second) == [3.0, 2.0]

    run(main())


def test_env_pool_update_config_that_is_invalid_changes_no_server(serve):
    async def main():
        one, two = serve(), serve()
        async with EnvPool([one.url, two.url], n=2) as pool:
            before = await configurations(one, two)
            with pytest.raises(RewardConfigError, match="nothing was changed"):
                await pool.update_config({"weights": {"a": 3.0, "none": 1.0}})
            with pytest.raises(ConfigConflictError):
                await pool.update_config({"weights": {"a": 3.0}}, version="9-old")
            with pytest.raises(InvalidArgumentError, match="not JSON-serializable"):
                await pool.update_config({"weights": {"a": object()}})
            with pytest.raises(RewardConfigError, match="training_step"):
                await pool.update_config({"training_step": "many"})
            assert await configurations(one, two) == before
            await pool.update_config({"weights": {"a": 3.0}}, version=before[0]["version"])
            assert await rewards(pool) == [4.0] * 2

    run(main())


def test_env_pool_update_config_changes_no_server_if_one_is_not_available(serve):
    async def main():
        one, two = serve(), serve()
        async with EnvPool([one.url, two.url], n=2) as pool:
            await pool.reset_batch()
            before = await configurations(one)
            await asyncio.to_thread(two.stop)
            with pytest.raises(ConnectionLostError, match=two.url):
                await pool.update_config({"weights": {"a": 3.0}})
            assert await configurations(one) == before

    run(main())


def test_env_pool_update_config_is_reverted_if_a_server_fails(serve):
    async def main():
        one, two = serve(), serve()
        async with EnvPool([one.url, two.url], n=2) as pool:
            update = two.app.sessions.update

            async def fails(*arguments, **options):
                raise OSError("the disk is full")

            two.app.sessions.update = fails
            with pytest.raises(RewardConfigError, match=f"nothing was changed: {two.url} failed"):
                await pool.update_config({"weights": {"a": 3.0}})
            two.app.sessions.update = update
            assert list(map(weights, await configurations(one, two))) == [[1.0, 2.0]] * 2
            assert await rewards(pool) == [2.0] * 2
            await pool.update_config({"weights": {"b": 4.0}})
            assert is_same(await configurations(one, two))
            assert await rewards(pool) == [3.0] * 2

    run(main())


CHANGE = {"weights": {"a": 3.0}}
ANSWER_S = 0.75  # seconds that a pool waits for an answer


def opened(*served):
    urls = [each.url for each in served]
    return EnvPool(
        backend=RemoteBackend(urls, 4, observation_type=Echoed, connect_timeout_s=ANSWER_S), n=4
    )


def delay_answers(served, *, before_s=0.0, after_s=0.0, times=1):
    """Delay changes of the configuration, or the answers to them."""
    update, calls = served.app.sessions.update, itertools.count(1)

    async def late(*arguments, **options):
        is_late = next(calls) <= times
        await asyncio.sleep(before_s * is_late)
        answer = await update(*arguments, **options)
        await asyncio.sleep(after_s * is_late)
        return answer

    served.app.sessions.update = late


@pytest.mark.parametrize("late", [{"before_s": 2 * ANSWER_S}, {"after_s": 2 * ANSWER_S}])
@pytest.mark.parametrize(("count", "place"), [(1, 0), (2, 0), (2, 1)])
def test_env_pool_update_config_without_an_answer_is_reverted(serve, count, place, late):
    async def main():
        servers = [serve() for _ in range(count)]
        async with opened(*servers) as pool:
            delay_answers(servers[place], **late)
            with pytest.raises(RewardConfigError, match=r"nothing was changed: .* didn't answer"):
                await pool.update_config(CHANGE)
            assert await rewards(pool) == [2.0] * 4
            await asyncio.sleep(ANSWER_S)  # until a late change is made
            assert await rewards(pool) == [2.0] * 4
            await pool.update_config({"weights": {"b": 4.0}})
            assert await rewards(pool) == [3.0] * 4
            assert is_same(await configurations(*servers))

    run(main())


@pytest.mark.parametrize(("count", "place"), [(1, 0), (2, 0), (2, 1)])
def test_env_pool_update_config_is_reverted_later_if_a_server_cant_be_reached(serve, count, place):
    async def main():
        servers = [serve() for _ in range(count)]
        async with opened(*servers) as pool:
            await pool.reset_batch()
            delay_answers(servers[place], after_s=2 * ANSWER_S, times=2)
            late = servers[place].url
            with pytest.raises(RewardConfigError, match=f"before the next episode of {late} "):
                await pool.update_config(CHANGE)
            assert await rewards(pool) == [2.0] * 4
            await pool.update_config({"weights": {"b": 4.0}})
            assert await rewards(pool) == [3.0] * 4
            assert is_same(await configurations(*servers))

    run(main())


def test_env_pool_update_config_sends_the_progress_again_to_a_server_that_lacks_it(serve):
    async def main():
        one, two = serve(), serve()
        async with opened(one, two) as pool:
            delay_answers(two, before_s=10 * SOON)
            with pytest.raises(ClientTimeoutError, match=two.url):
                await pool.update_config({"training_step": 40})
            await pool.update_config(CHANGE)
        for each in (one, two):
            async with HTTPEnvClient(each.url) as client:
                assert (await client.get_config())["progress"]["training_step"] == 40

    run(main())


def test_env_pool_update_config_that_is_cancelled_is_completed(serve):
    async def main():
        one, two = serve(), serve()
        async with opened(one, two) as pool:
            for change in (CHANGE, {"weights": {"a": 5.0}}):
                delay_answers(two, before_s=ANSWER_S / 2)
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(ANSWER_S / 4):
                        await pool.update_config(change)
            await pool.update_config({"weights": {"b": 0.0}})
            assert await rewards(pool) == [5.0] * 4
            delay_answers(two, before_s=ANSWER_S / 2)
            cancelled = asyncio.ensure_future(pool.update_config({"weights": {"a": 7.0}}))
            await asyncio.sleep(ANSWER_S / 4)
            cancelled.cancel()
        configs = await configurations(one, two)
        assert is_same(configs)
        assert weights(configs[0]) == [7.0, 0.0]

    run(main())


def test_env_pool_update_config_that_one_server_refuses_doesnt_affect_later_ones(serve):
    async def main():
        one, two = serve(), serve()
        update = two.app.sessions.update

        async def refuses(runtime, change, **options):
            if change["weights"].get("a") == 3.0:
                raise RewardConfigError("no", problems=["too heavy for this server"])
            return await update(runtime, change, **options)

        two.app.sessions.update = refuses
        async with opened(one, two) as pool:
            with pytest.raises(RewardConfigError, match=r"nothing was changed: .* too heavy"):
                await pool.update_config(CHANGE)
            assert await rewards(pool) == [2.0] * 4
            await pool.update_config({"weights": {"a": 4.0}})
            assert await rewards(pool) == [5.0] * 4

    run(main())


@pytest.mark.parametrize("count", [1, 2])
def test_env_pool_a_server_that_is_restarted_gets_the_changes_before_its_next_episode(serve, count):
    async def main():
        servers = [serve() for _ in range(count)]
        urls = [each.url for each in servers]
        async with EnvPool(urls if count > 1 else urls[0], n=2) as pool:
            await pool.update_config({"weights": {"a": 3.0}})
            await pool.update_config({"weights": {"a": 5.0, "b": 0.0}})
            await pool.update_config({"training_step": 40})
            assert await rewards(pool) == [5.0] * 2
            await asyncio.to_thread(servers[0].stop)
            again = await asyncio.to_thread(serve, port=servers[0].port)
            await asyncio.sleep(0)
            for _ in range(3):
                await pool.reset_batch()
                assert await rewards(pool) == [5.0] * 2
                await asyncio.sleep(0.6)
            found = await configurations(again, *servers[1:])
            assert is_same(found)
            assert found[0]["progress"]["training_step"] == 40
            for each in found:  # the restarted server has counted other changes
                await pool.update_config({"weights": {"b": 0.0}}, version=each["version"])
        async with EnvPool(urls, n=2) as pool:
            assert await rewards(pool) == [5.0] * 2

    run(main())


def test_env_pool_a_server_that_was_changed_by_others_scores_no_episode(serve):
    async def main():
        one = serve()
        async with EnvPool(one.url, n=1) as pool:
            await pool.update_config({"weights": {"a": 3.0}})
            await asyncio.to_thread(one.stop)
            again = await asyncio.to_thread(serve, port=one.port)
            async with HTTPEnvClient(again.url) as other:
                await other.update_config({"weights": {"a": 9.0}})
            (error,) = errors(await pool.reset_batch())
            assert "ConfigConflictError" in error
            # Its version is accepted if it is named.
            (present,) = await configurations(again)
            await pool.update_config({"weights": {"b": 0.0}}, version=present["version"])
            assert await rewards(pool) == [9.0]

    run(main())


def test_env_pool_on_servers_with_different_rewards_doesnt_open(serve):
    class Other(Composed):
        def __init__(self):
            super().__init__()
            self.rubric = RubricComposer({"a": Fixed(), "b": Fixed(0.5)}, {"a": 1.0, "b": 7.0})

    async def main():
        with pytest.raises(ConfigConflictError, match="the other servers"):
            await EnvPool([serve().url, serve(Other).url], n=2).__aenter__()

    run(main())


def test_env_pool_update_config_needs_servers():
    async def main():
        async with EnvPool(Composed, n=1) as pool:
            with pytest.raises(InvalidArgumentError, match=r"ConfiguredEnv\.update_config"):
                await pool.update_config({"weights": {"a": 3.0}})

    run(main())


def test_env_pool_update_config_sync(serve):
    served = serve()
    with EnvPool([served.url], n=1).sync() as pool:
        assert pool.update_config({"weights": {"a": 0.0}})["status"] == "ok"
        pool.reset_batch()
        assert pool.step_batch([{"message": "hello"}])[0].reward == 1.0
