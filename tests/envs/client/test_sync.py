"""The face of clients for code that awaits nothing."""

import asyncio
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from guerdon import EnvClient, GenericEnvClient, HTTPEnvClient
from guerdon.errors import AsyncRubricError, ConnectionLostError, ServerError
from tests.envs.client.servers import Echoed, EchoState, Say, run


class EchoClient(EnvClient[Say, Echoed, EchoState]):
    pass


def play(server):
    with EchoClient(**server).sync() as client:
        assert client.environment_id == "the echo"
        assert client.base_url == "http://localhost"
        first = client.reset(seed=7, episode_id="ep-1")
        assert first.observation == Echoed(seed=7)
        result = client.step(Say(message="please"))
        assert (result.reward, result.observation.echoed) == (1.0, "please")
        return client.state()


def test_an_episode(echo):
    assert play(echo) == EchoState(episode_id="ep-1", step_count=1)


def test_an_episode_inside_a_running_event_loop(echo):
    async def inside():
        return play(echo)

    assert run(inside()).step_count == 1


def test_a_client_goes_on_from_one_event_loop_to_the_next(echo):
    client = GenericEnvClient(**echo).sync()

    async def one_step():
        return client.step({"message": "hi"}).observation["echoed"]

    client.reset()
    assert run(one_step()) == "hi"
    assert run(one_step()) == "hi"
    assert client.state()["step_count"] == 2
    client.close()


def background_threads():
    return [each for each in threading.enumerate() if each.name == "guerdon-background"]


def test_clients_share_one_thread(echo):
    with GenericEnvClient(**echo).sync() as first, GenericEnvClient(**echo).sync() as second:
        first.reset()
        second.reset()
        with HTTPEnvClient(**echo).sync() as third:
            third.get("/health")
        assert len(background_threads()) == 1


def test_clients_of_many_threads(echo):
    def steps(number):
        with GenericEnvClient(**echo).sync() as client:
            client.reset()
            return [client.step({"message": f"{n}"}).observation["echoed"] for n in range(number)]

    with ThreadPoolExecutor(8) as threads:
        said = list(threads.map(steps, range(8)))
    assert said == [[f"{n}" for n in range(number)] for number in range(8)]


def test_what_goes_wrong_is_raised_here(echo):
    with GenericEnvClient(**echo).sync() as client:
        client.reset()
        with pytest.raises(ServerError, match="told to break"):
            client.step({"message": "break"})
        client.close()
        with pytest.raises(ConnectionLostError):
            client.step({"message": "hi"})
        client.reset()


def test_it_connects_and_closes_when_told_to(echo):
    client = GenericEnvClient(**echo).sync()
    assert client.connect() is client
    assert client.environment_id == "the echo"
    client.close()
    client.close()


def test_a_block_that_raises_closes_the_client(echo):
    client = GenericEnvClient(**echo).sync()
    with contextlib.suppress(ZeroDivisionError), client:
        client.reset()
        raise ZeroDivisionError
    with pytest.raises(ConnectionLostError):
        client.step({"message": "hi"})


def test_async_code_of_its_own_thread_is_told_to_await(echo):
    from guerdon._background import run as in_background

    async def asks():
        return GenericEnvClient(**echo).sync().reset()

    with pytest.raises(AsyncRubricError, match="async"):
        in_background(asks())


def test_a_token_and_an_address_that_is_none(serve):
    url = serve(token="secret").url
    with GenericEnvClient(url, token="secret").sync() as client:
        client.reset()
    with pytest.raises(ServerError, match="no token"), GenericEnvClient(url).sync():
        raise AssertionError("it is not connected")


def test_steps_of_two_threads_on_one_client_do_not_cross(echo):
    with GenericEnvClient(**echo).sync() as client, ThreadPoolExecutor(4) as threads:
        client.reset()
        words = [f"word {number}" for number in range(40)]
        results = threads.map(lambda word: client.step({"message": word}), words)
        assert [each.observation["echoed"] for each in results] == words


def test_the_asynchronous_client_is_there(echo):
    async_client = GenericEnvClient(**echo)
    assert async_client.sync().async_client is async_client
    assert asyncio.iscoroutinefunction(async_client.reset)
