"""A pool whose environments are on a server, in another process."""

import asyncio
import os
import socket

import pytest

from guerdon import EnvPool, Observation
from guerdon.envs.pool.remote import RemoteBackend
from guerdon.envs.wire import JSON, MSGPACK, codecs
from guerdon.errors import ConnectionLostError, InvalidArgumentError, ServerError
from guerdon.types import GenericObservation
from tests.envs.worlds import SOON, Board, Deed, Server, unsigned

pytestmark = pytest.mark.edge  # real servers and processes

SHORT = 0.3


@pytest.fixture(autouse=True, params=["msgpack", "json", "separate"])
def wire(request, monkeypatch):
    """What the client offers: batches in either codec, or none, as to a server without them."""
    offered = {MSGPACK: request.param == "msgpack", JSON: request.param != "separate"}
    known = {name: codec for name, codec in codecs().items() if offered[name]}
    monkeypatch.setattr("guerdon.envs.pool.remote.codecs", lambda: known)
    return request.param


@pytest.fixture(scope="module")
def strict_server():
    with Server(sessions=3, token="sesame") as server:
        yield server


@pytest.fixture
def strict(strict_server):
    """A server with room for three and a token, which has closed the sessions of the last test."""
    strict_server.wait_until_empty()
    return strict_server


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


def nested(depth):
    """An empty list in so many lists."""
    data = []
    for _ in range(depth):
        data = [data]
    return data


def test_remote_backend_an_episode_is_played_on_a_server(world_server):
    async def main():
        async with EnvPool(world_server.url, n=3) as pool:
            first = await pool.reset_batch(seeds=5, options=[{"task": n} for n in range(3)])
            assert [each.metadata["seed"] for each in first] == [5, 6, 7]
            assert [each.metadata["task"] for each in first] == [0, 1, 2]
            assert first[0].metadata["process"] != os.getpid()
            stepped = await pool.step_batch([Deed(value=2), None, {"do": "end", "value": 3}])
            assert rewards(stepped) == [0.5, None, 0.5]
            assert [each and each.done for each in stepped] == [False, None, True]
            assert unsigned(stepped[0].metadata) == {
                "reward_components": {"rubric_0": 2.0, "rubric_1": 0.5}
            }
            again = await pool.step_batch([Deed()] * 3)
            assert [each.value for each in again] == [2, 1, 2]  # each has its own environment

    play(main)


@pytest.mark.parametrize("form", ["{}", "{}/", "ws://{h}", "{h}"])
def test_remote_backend_an_address_may_be_written_in_several_ways(world_server, form):
    address = form.format(world_server.url, h=world_server.url.removeprefix("http://"))

    async def main():
        async with EnvPool(address, n=1) as pool:
            await pool.reset_batch()
            return rewards(await pool.step_batch([{}]))

    assert play(main) == [0.5]


@pytest.mark.parametrize("address", ["http://", "ftp://host", "http://host:port", "host:0"])
def test_remote_backend_rejects_an_invalid_address(address):
    with pytest.raises(InvalidArgumentError, match="is not the address of a server"):
        EnvPool(address)


def test_remote_backend_observations_are_made_into_their_type(world_server):
    async def main(kind):
        async with EnvPool(world_server.url, n=1, observation_type=kind) as pool:
            return await pool.reset_batch() + await pool.step_batch([{}])

    for each in play(lambda: main(Board)):
        assert type(each) is Board
    for each in play(lambda: main(GenericObservation)):
        assert type(each) is GenericObservation
        assert each.value >= 0
    first, stepped = play(lambda: main(Observation))  # which has no field `value`
    assert failed(first, "InvalidObservationError", "is not a Observation: value")
    assert failed(stepped, "EpisodeError", "the last call failed; reset it")


def test_remote_backend_a_failed_rubric_is_reported_over_the_wire(world_server):
    async def main():
        async with EnvPool(world_server.url, n=1) as pool:
            await pool.reset_batch()
            (board,) = await pool.step_batch([{"do": "fail"}])
            assert (board.reward, board.done) == (None, False)
            assert board.metadata["reward_error"] == (
                "rubric 'rubric_1': OSError: the judge is down"
            )

    play(main)


@pytest.mark.parametrize(
    ("action", "problem"),
    [
        ({"do": "raise"}, "OSError: the game is down"),
        ({"do": "exit"}, "sys.exit(3)"),
    ],
    ids=repr,
)
def test_remote_backend_one_that_fails_is_reported_in_its_own_slot_and_heals(
    world_server, action, problem
):
    async def main():
        async with EnvPool(world_server.url, n=3) as pool:
            await pool.reset_batch()
            stepped = await pool.step_batch([{}, action, {}])
            assert rewards(stepped) == [0.5, None, 0.5]
            assert failed(stepped[1], problem)
            await pool.reset_batch(slots=[1])
            stepped = await pool.step_batch([{}] * 3)
            assert [each.value for each in stepped] == [2, 1, 2]

    play(main)


@pytest.mark.parametrize("action", [{"value": "much"}, {"dow": "x"}])
def test_remote_backend_an_action_that_is_refused_costs_its_slot_a_step_and_no_episode(
    world_server, action
):
    async def main():
        async with EnvPool(world_server.url, n=2) as pool:
            await pool.reset_batch()
            bad, good = await pool.step_batch([action, {}])
            assert refused(bad, next(iter(action)))
            assert good.reward == 0.5
            assert [each.value for each in await pool.step_batch([{}] * 2)] == [1, 2]

    play(main)


@pytest.mark.parametrize(
    "action",
    [{"value": print}, {"do": "\ud800"}, {"value": nested(300)}],
    ids=["function", "surrogate", "nested"],
)
def test_remote_backend_an_action_that_cannot_be_sent_costs_its_slot_a_step_and_no_episode(
    world_server, action
):
    async def main():
        async with EnvPool(world_server.url, n=3) as pool:
            await pool.reset_batch()
            stepped = await pool.step_batch([{}, action, {}])
            assert rewards(stepped) == [0.5, None, 0.5]
            assert refused(stepped[1], "step is not JSON-serializable")
            assert [each.value for each in await pool.step_batch([{}] * 3)] == [2, 1, 2]

    play(main)


@pytest.mark.parametrize("wire", ["msgpack", "json"], indirect=True)
@pytest.mark.parametrize("value", [float("nan"), nested(240)], ids=["nan", "nested"])
def test_remote_backend_an_action_with_nan_or_deep_nesting_is_refused_in_its_own_slot(
    world_server, value
):
    async def main():
        async with EnvPool(world_server.url, n=3) as pool:
            await pool.reset_batch()
            stepped = await pool.step_batch([{}, {"value": value}, {}])
            assert rewards(stepped) == [0.5, None, 0.5]
            assert refused(stepped[1])
            assert [each.value for each in await pool.step_batch([{}] * 3)] == [2, 1, 2]

    play(main)


def test_remote_backend_a_reset_that_fails_is_reported_in_its_own_slot(world_server):
    async def main():
        async with EnvPool(world_server.url, n=2) as pool:
            first = await pool.reset_batch(options=[{}, {"task": "fail"}])
            assert not first[0].done
            assert failed(first[1], "OSError: no such task")
            await pool.reset_batch()
            assert rewards(await pool.step_batch([{}] * 2)) == [0.5, 0.5]

    play(main)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"task": print}, "reset is not JSON-serializable"),
        ({"task": nested(300)}, "reset is not JSON-serializable"),
        ({"episode_id": "x" * 300}, "String should have at most 255 characters"),
    ],
    ids=["function", "nested", "episode_id"],
)
def test_remote_backend_a_reset_that_the_environment_does_not_receive_ends_the_episode(
    world_server, options, problem
):
    async def main():
        async with EnvPool(world_server.url, n=2) as pool:
            await pool.reset_batch()
            await pool.step_batch([{}] * 2)
            (bad,) = await pool.reset_batch(slots=[0], options=[options])
            assert failed(bad, problem)
            stepped, good = await pool.step_batch([{}] * 2)
            assert failed(stepped, "EpisodeError", "the last call failed; reset it")
            assert good.value == 2
            await pool.reset_batch(slots=[0])
            assert [each.value for each in await pool.step_batch([{}] * 2)] == [1, 3]

    play(main)


def test_remote_backend_a_hanging_environment_does_not_delay_the_others_and_heals(world_server):
    async def main():
        async with EnvPool(world_server.url, n=3, timeout_s=SHORT) as pool:
            await pool.reset_batch()
            stepped = await pool.step_batch([{}, {"do": "hang"}, {}])
            assert rewards(stepped) == [0.5, None, 0.5]
            assert failed(stepped[1], "EnvTimeoutError: the step took longer than 0.3 s")
            again = await pool.step_batch([{}] * 3)
            assert [each.reward for each in again] == [0.5, None, 0.5]
            assert failed(again[1], "ConnectionLostError", "reset")
            await pool.reset_batch(slots=[1])
            stepped = await pool.step_batch([{}] * 3)
            assert [each.value for each in stepped] == [3, 1, 3]

    play(main)


def test_remote_backend_yields_the_first_to_complete_first(world_server):
    async def main():
        seen = []
        async with EnvPool(world_server.url, n=2, timeout_s=0.3) as pool:
            await pool.reset_batch()
            async for slot, board in pool.as_completed([{"do": "hang"}, {}]):
                seen.append(slot)
                if slot == 1 and board.value < 3:
                    pool.send(1, {})
        assert seen == [1, 1, 1, 0]

    play(main)


def test_remote_backend_a_batch_that_is_cancelled_leaves_no_answer_for_the_next(world_server):
    async def main():
        async with EnvPool(world_server.url, n=2) as pool:
            await pool.reset_batch()
            task = asyncio.ensure_future(pool.step_batch([{}, {}]))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            first = await pool.reset_batch(seeds=3)  # waits for the steps under way
            assert [each.metadata["seed"] for each in first] == [3, 4]
            assert [each.value for each in await pool.step_batch([{}, {}])] == [1, 1]

    play(main)


def test_remote_backend_closing_a_pool_ends_a_batch_that_another_task_waits_for(world_server):
    async def main():
        async with EnvPool(world_server.url, n=2) as pool:
            await pool.reset_batch()
            task = asyncio.ensure_future(pool.step_batch([{"do": "hang"}, None]))
            await asyncio.sleep(0)
        assert failed((await task)[0], "closed")

    play(main)


# The server -----------------------------------------------------------------------------------


def test_remote_backend_slots_heal_when_a_server_that_died_is_back():
    async def main():
        with Server() as server:
            async with EnvPool(server.url, n=3) as pool:
                first = await pool.reset_batch()
                stepped = await pool.step_batch([{"do": "die"}, {"do": "hang"}, None])
                assert all(failed(each, "ConnectionLostError") for each in stepped[:2])
                resetting = asyncio.ensure_future(pool.reset_batch(seeds=1))  # there is no server
                # The third slot doesn't know yet that its server has gone.
                with await asyncio.to_thread(Server, port=server.port):
                    again = await resetting
                    assert not any(each.done for each in again), again
                    assert [each.metadata["seed"] for each in again] == [1, 2, 3]
                    assert again[0].metadata["process"] != first[0].metadata["process"]
                    assert rewards(await pool.step_batch([{}] * 3)) == [0.5] * 3

    play(main)


@pytest.mark.parametrize("n", [4, 9])  # a connection has at most 6 sessions
def test_remote_backend_more_slots_than_the_server_has_room_for_are_reported_in_theirs(strict, n):
    async def main():
        async with EnvPool(strict.url, n=n, token="sesame") as pool:
            for _ in range(2):
                first = await pool.reset_batch()
                full = [slot for slot, each in enumerate(first) if each.done]
                assert len(full) == n - 3
                assert all(failed(first[slot], "CAPACITY_REACHED") for slot in full)
                stepped = await pool.step_batch([{}] * n)
                assert sorted(map(str, rewards(stepped))) == ["0.5"] * 3 + ["None"] * (n - 3)
                assert all(failed(stepped[slot]) for slot in full)

    play(main)


@pytest.mark.parametrize("wire", ["msgpack", "json"], indirect=True)
def test_remote_backend_resets_after_failures_use_every_session_that_a_server_has_room_for(strict):
    async def main():
        async with EnvPool(strict.url, n=6, token="sesame") as pool:
            for _ in range(3):  # each but the first closes 3 sessions, and opens 6
                first = await pool.reset_batch()
                assert sorted(each.done for each in first) == [False] * 3 + [True] * 3
                stepped = await pool.step_batch([{"do": "raise"}] * 6)
                assert all(failed(each) for each in stepped)

    play(main)


@pytest.mark.parametrize("closed", ["after", "meanwhile"])
def test_remote_backend_sessions_are_ended_with_the_pool_also_those_that_hang(strict, closed):
    async def main():
        async def opened(timeout_s):
            """A pool that has all places there are: once the server has seen the last ones go."""
            while True:
                pool = EnvPool(strict.url, n=3, token="sesame", timeout_s=timeout_s)
                await pool.__aenter__()
                if not any(each.done for each in await pool.reset_batch()):
                    return pool
                await pool.close()

        pool = await opened(SHORT if closed == "after" else SOON)
        stepping = asyncio.ensure_future(pool.step_batch([{}, {"do": "hang"}, {}]))
        await (stepping if closed == "after" else asyncio.sleep(0))
        await pool.close()
        await stepping
        await (await opened(SOON)).close()

    play(main)


def test_remote_backend_a_token_opens_the_door_and_a_wrong_one_doesnt(strict):
    async def main(token):
        async with EnvPool(strict.url, n=1, token=token) as pool:
            await pool.reset_batch()

    play(lambda: main("sesame"))
    for wrong in ("open", None):
        with pytest.raises(ServerError, match="token") as caught:
            play(lambda wrong=wrong: main(wrong))
        assert caught.value.code == "401"


def test_remote_backend_without_a_server_the_pool_doesnt_open():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nothing listens, and no other program gets the port
        pool = EnvPool(f"127.0.0.1:{taken.getsockname()[1]}", n=2)

        async def main():
            with pytest.raises(ConnectionLostError, match="can't connect"):
                async with pool:
                    pass
            with pytest.raises(InvalidArgumentError, match="is not open"):
                await pool.reset_batch()

        play(main)


# Answers that no server of ours gives ---------------------------------------------------------


@pytest.fixture
def foreign():
    """A server that answers every request as the test sets it."""
    from websockets.asyncio.server import serve

    def play_against(answer, test, *, observation_type=GenericObservation):
        async def talk(socket):
            async for _ in socket:
                await socket.send(answer)

        async def main():
            async with serve(talk, "127.0.0.1", 0) as server:
                port = server.sockets[0].getsockname()[1]
                pool = EnvPool(f"127.0.0.1:{port}", n=1, observation_type=observation_type)
                async with pool:
                    return await test(pool)

        return play(main)

    return play_against


@pytest.mark.parametrize(
    "answer",
    [
        "hello",
        "[]",
        "{}",
        '{"type":"observation"}',
        '{"type":"observation","data":null}',
        '{"type":"observation","data":[1]}',
        '{"type":"observation","data":{}}',
        '{"type":"observation","data":{"observation":1}}',
        '{"type":"observation","data":{"observation":{},"reward":"high"}}',
        '{"type":"observation","data":{"observation":{},"reward":NaN}}',
        '{"type":"observation","data":{"observation":{},"metadata":5}}',
        '{"type":"error","data":5}',
        '{"type":"error"}',
        '{"type":"error","data":{"message":"no","code":"EXECUTION_ERROR"}}',
    ],
)
def test_remote_backend_turns_any_answer_into_an_observation_or_an_error(foreign, answer):
    async def test(pool):
        return await pool.reset_batch()

    (first,) = foreign(answer, test)
    assert failed(first)


def test_remote_backend_an_older_servers_answer_without_metadata_will_do(foreign):
    answer = (
        '{"type":"observation","data":{"observation":{"x":1,"metadata":{"a":1}},"reward":true}}'
    )

    async def test(pool):
        return await pool.reset_batch()

    (first,) = foreign(answer, test)
    assert (first.x, first.reward, first.done, first.metadata) == (1, 1.0, False, {"a": 1})


def test_remote_backend_reports_a_server_that_is_not_available_in_time():
    from websockets.asyncio.server import serve

    async def ignores(socket):
        await socket.wait_closed()

    async def main():
        async with serve(ignores, "127.0.0.1", 0) as server:
            url = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            backend = RemoteBackend(url, 2, observation_type=Board, connect_timeout_s=SHORT)
            async with EnvPool(n=2, backend=backend) as pool:
                server.close()
                await server.wait_closed()
                for _ in range(2):
                    first = await pool.reset_batch()
                    problem = [each.metadata["error"] for each in first]
                    assert all(failed(each, "can't connect to", "for 0.3 s") for each in first), (
                        problem
                    )

    play(main)
