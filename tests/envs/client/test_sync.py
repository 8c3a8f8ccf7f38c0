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


def test_sync_env_client_plays_an_episode(echo):
    assert play(echo) == EchoState(episode_id="ep-1", step_count=1)


def test_sync_env_client_inside_a_running_event_loop(echo):
    async def inside():
        return play(echo)

    assert run(inside()).step_count == 1


def test_sync_env_client_works_across_event_loops(echo):
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


def test_sync_clients_share_one_thread(echo):
    with GenericEnvClient(**echo).sync() as first, GenericEnvClient(**echo).sync() as second:
        first.reset()
        second.reset()
        with HTTPEnvClient(**echo).sync() as third:
            third.get("/health")
        assert len(background_threads()) == 1


def test_sync_env_clients_in_many_threads(echo):
    def steps(number):
        with GenericEnvClient(**echo).sync() as client:
            client.reset()
            return [client.step({"message": f"{n}"}).observation["echoed"] for n in range(number)]

    with ThreadPoolExecutor(8) as threads:
        replies = list(threads.map(steps, range(8)))
    assert replies == [[f"{n}" for n in range(number)] for number in range(8)]


def test_sync_env_client_raises_errors_to_its_caller(echo):
    with GenericEnvClient(**echo).sync() as client:
        client.reset()
        with pytest.raises(ServerError, match="asked to break"):
            client.step({"message": "break"})
        client.close()
        with pytest.raises(ConnectionLostError):
            client.step({"message": "hi"})
        client.reset()


def test_sync_env_client_connect_and_close(echo):
    client = GenericEnvClient(**echo).sync()
    assert client.connect() is client
    assert client.environment_id == "the echo"
    client.close()
    client.close()


def test_sync_env_client_closes_if_its_block_raises(echo):
    client = GenericEnvClient(**echo).sync()
    with contextlib.suppress(ZeroDivisionError), client:
        client.reset()
        raise ZeroDivisionError
    with pytest.raises(ConnectionLostError):
        client.step({"message": "hi"})


def test_sync_env_client_raises_inside_its_own_event_loop(echo):
    from guerdon._background import run as in_background

    async def asks():
        return GenericEnvClient(**echo).sync().reset()

    with pytest.raises(AsyncRubricError, match="async"):
        in_background(asks())


def test_sync_env_client_token(serve):
    url = serve(token="secret").url
    with GenericEnvClient(url, token="secret").sync() as client:
        client.reset()
    with pytest.raises(ServerError, match="no token"), GenericEnvClient(url).sync():
        raise AssertionError("it is not connected")


def test_sync_env_client_keeps_the_steps_of_two_threads_apart(echo):
    with GenericEnvClient(**echo).sync() as client, ThreadPoolExecutor(4) as threads:
        client.reset()
        words = [f"word {number}" for number in range(40)]
        results = threads.map(lambda word: client.step({"message": word}), words)
        assert [each.observation["echoed"] for each in results] == words


def test_sync_env_client_async_client(echo):
    async_client = GenericEnvClient(**echo)
    assert async_client.sync().async_client is async_client
    assert asyncio.iscoroutinefunction(async_client.reset)
