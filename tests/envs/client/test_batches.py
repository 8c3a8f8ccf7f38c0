"""The client's side of `guerdon.batch.v1`, against servers that the tests speak for."""

import asyncio

import pytest

from guerdon import EnvPool
from guerdon.envs.wire import JSON, JsonCodec
from tests.envs.client.servers import Scripted, run

codec = JsonCodec()
LIMITS = {"free_sessions": 9, "max_calls": 99, "max_message_bytes": 400}
OBSERVED = {"reward": 0.5, "done": False, "metadata": {}}

pytestmark = pytest.mark.edge  # real sockets


def frame(*answers):
    return codec.frame([codec.encode(*answer) for answer in answers])


def batches(speak, **limits):
    """A server that announces its limits; ``async def speak(socket, calls)`` answers a frame."""

    async def serve(socket, number):
        await socket.send(frame((None, "ready", {**LIMITS, **limits})))
        async for message in socket:
            await speak(socket, codec.decode(message))

    return Scripted(serve, subprotocols=[JSON])


async def observes(socket, calls):
    answers = [
        (number, "observation", {**OBSERVED, "number": number, "kind": kind})
        for number, kind, _ in calls
        if kind != "close"
    ]
    if answers:
        await socket.send(frame(*answers))


def errors(observations):
    return [each.metadata.get("error", "") for each in observations]


def test_batch_connection_sends_the_calls_of_a_batch_in_one_frame():
    frames = []

    async def speak(socket, calls):
        frames.append([(number, kind) for number, kind, _ in calls])
        await observes(socket, calls)

    async def main():
        async with batches(speak) as server, EnvPool(server.url, n=3) as pool:
            await pool.reset_batch()
            await pool.step_batch([{"a": 1}, None, {"a": 2}])
            async for slot, seen in pool.as_completed([{"a": 1}] * 3):
                if seen.kind == "step" and len(frames) < 4:
                    pool.send(slot, {"a": 2})

    run(main())
    assert frames[0] == [(0, "reset"), (1, "reset"), (2, "reset")]
    assert frames[1] == [(0, "step"), (2, "step")]
    assert frames[2] == frames[3] == [(0, "step"), (1, "step"), (2, "step")]


def test_batch_connection_an_answer_for_an_abandoned_call_reaches_no_slot():
    late = []

    async def speak(socket, calls):
        for number, kind, data in calls:
            if kind == "close":
                late.append(number)
                continue
            answer = (number, "observation", {**OBSERVED, "number": number})
            if kind == "step" and data["a"] == "late":
                late.append(answer)
                continue
            # The late answer arrives just before that of the next call of its slot.
            before = [each for each in late if isinstance(each, tuple)]
            await socket.send(frame(*before, answer))

    async def main():
        async with batches(speak) as server, EnvPool(server.url, n=1, timeout_s=0.2) as pool:
            await pool.reset_batch()
            [seen] = await pool.step_batch([{"a": "late"}])
            assert "EnvTimeoutError" in seen.metadata["error"]
            [seen] = await pool.reset_batch()
            assert seen.number == 1
            [seen] = await pool.step_batch([{"a": "now"}])
            assert seen.number == 1

    run(main())
    assert late[1] == 0


@pytest.mark.parametrize(
    "answer",
    [
        "hello",
        "{}",
        "[[0]]",
        '[["x"]]',
        "[5]",
        '[[[],"observation",{}]]',
        '[[0,"error",5]]',
        '[[0,"error",null]]',
        '[[0,"error",{}]]',
        '[[0,"state",{}]]',
        '[[0,"nonsense",{}]]',
        '[[0,"observation",5]]',
        '[[0,"observation",{"reward":"high"}]]',
        '[[0,"observation",{"metadata":5}]]',
        '[[null,"error",{"code":"VALIDATION_ERROR","message":"no"}]]',
    ],
)
def test_batch_connection_turns_any_answer_into_an_error_of_the_slots(answer):
    async def speak(socket, calls):
        await (socket.send(answer) if calls[0][1] == "step" else observes(socket, calls))

    async def main():
        async with batches(speak) as server, EnvPool(server.url, n=2, timeout_s=0.5) as pool:
            await pool.reset_batch()
            seen = await pool.step_batch([{"a": 1}, {"a": 2}])
            assert all(errors(seen)), seen
            assert "EnvTimeoutError" not in errors(seen)[0]
            again = await pool.reset_batch()
            assert errors(again) == ["", ""]

    run(main())


def test_batch_connection_an_action_that_is_too_large_fails_in_its_slot():
    async def main():
        async with batches(observes) as server, EnvPool(server.url, n=3) as pool:
            await pool.reset_batch()
            seen = await pool.step_batch([{"a": "x" * 200}, {"a": "x" * 400}, {"a": "x" * 200}])
            first, second, third = errors(seen)
            assert (first, third) == ("", "")
            assert "InvalidActionError: step has 4" in second
            assert "accepts 400" in second
            assert not seen[1].done

    run(main())


@pytest.mark.parametrize(
    "first", ["hello", "[]", frame((0, "observation", {})), frame((None, "ready", {}))]
)
def test_batch_connection_a_server_without_a_first_frame_is_refused(first):
    async def speak(socket, number):
        await socket.send(first)
        await socket.wait_closed()

    async def main():
        async with Scripted(speak, subprotocols=[JSON]) as server:
            with pytest.raises(ConnectionError, match=r"no first frame of guerdon\.batch\.v1"):
                await EnvPool(server.url, n=1).__aenter__()

    run(main())


def test_batch_connection_a_reset_is_made_again_over_a_new_connection_once():
    connections = []

    async def serve(socket, number):
        connections.append(socket)
        await socket.send(frame((None, "ready", LIMITS)))
        async for message in socket:
            if number < 3:
                socket.transport.abort()
                return
            await observes(socket, codec.decode(message))

    async def main():
        async with Scripted(serve, subprotocols=[JSON]) as server, EnvPool(server.url, 2) as pool:
            failed = errors(await pool.reset_batch())
            assert all("ConnectionLostError" in each for each in failed)
            assert errors(await pool.reset_batch()) == ["", ""]

    run(main())
    assert len(connections) == 3


def test_batch_connection_steps_that_wait_for_a_lost_connection_fail_and_are_not_made_twice():
    steps = []

    async def speak(socket, calls):
        if calls[0][1] == "step":
            steps.append(calls)
            socket.transport.abort()
        else:
            await observes(socket, calls)

    async def main():
        async with batches(speak) as server, EnvPool(server.url, n=2) as pool:
            await pool.reset_batch()
            seen = await pool.step_batch([{"a": 1}] * 2)
            assert all("its environments are gone" in each for each in errors(seen))
            seen = await pool.step_batch([{"a": 1}] * 2)
            assert all("there is no connection" in each for each in errors(seen))
            assert errors(await pool.reset_batch()) == ["", ""]

    run(main())
    assert len(steps) == 1


def test_batch_connections_are_closed_if_the_opening_of_their_pool_is_cancelled():
    closed = []

    async def speak(socket, number):
        await socket.wait_closed()
        closed.append(socket)

    async def main():
        silent = [Scripted(speak, subprotocols=[JSON]) for _ in range(2)]
        async with silent[0] as one, silent[1] as two:
            opening = asyncio.ensure_future(EnvPool([one.url, two.url], n=2).__aenter__())
            while not (one.sockets and two.sockets):
                await asyncio.sleep(0.01)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            await asyncio.gather(*(each.sockets[0].wait_closed() for each in silent))

    run(main())
    assert len(closed) == 2
