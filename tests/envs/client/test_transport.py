"""`ASGITransport`: clients of an application in the same process."""

import asyncio
import contextlib

import httpx
import pytest

from guerdon import EnvClient, GenericEnvClient, HTTPEnvClient, create_app
from guerdon.envs import ASGITransport, ServerLimits
from guerdon.errors import (
    ClientTimeoutError,
    ConnectionLostError,
    InvalidArgumentError,
    ServerError,
)
from tests.envs.client.servers import Echo, run


def client_of(app, **options):
    return GenericEnvClient(transport=ASGITransport(app), **options)


def test_env_client_environment_id_is_that_of_the_environment():
    async def play():
        async with client_of(create_app(Echo)) as client:
            return client.environment_id

    environment = Echo()
    assert run(play()) == environment.environment_id == "Echo"
    environment.environment_id = "mine"
    assert environment.environment_id == "mine"


def test_asgi_transport_needs_no_address():
    async def play():
        async with client_of(create_app(Echo, env_name="echo")) as client:
            assert (client.base_url, client.environment_id) == ("http://localhost", "echo")
            assert (await client.reset(seed=7)).observation["seed"] == 7
            assert (await client.step({"message": "please"})).reward == 1.0
            assert await client.get("/health") == {"status": "healthy"}

    run(play())


def test_asgi_transport_serves_httpx_clients_too():
    async def play():
        transport = ASGITransport(create_app(Echo))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            assert (await http.get("/health")).json() == {"status": "healthy"}
        async with HTTPEnvClient("http://localhost", transport=transport) as server:
            assert (await server.step({"message": "please"})).reward == 1.0

    run(play())


def test_asgi_transport_raises_server_error_if_the_application_refuses():
    async def play():
        app = create_app(Echo, token="secret")
        async with client_of(app, token="secret") as client:
            await client.reset()
        with pytest.raises(ServerError, match="no token") as raised:
            await client_of(app).connect()
        assert raised.value.code == "401"

    run(play())


def test_asgi_transport_closes_the_session_with_the_client():
    async def play():
        app = create_app(Echo, limits=ServerLimits(max_sessions=1))
        for _ in range(3):
            async with client_of(app) as client:
                await client.reset()
        async with client_of(app) as client:
            await client.reset()
            with pytest.raises(ServerError, match="CAPACITY_REACHED"):
                await client_of(app).reset()

    run(play())


def test_asgi_transport_discards_late_answers():
    go_on = asyncio.Event()

    class Slow(Echo):
        async def step_async(self, action, **kwargs):
            if action.message == "slow":
                await go_on.wait()
            return self.step(action)

    async def play():
        async with client_of(create_app(Slow)) as client:
            await client.reset()
            with pytest.raises(ClientTimeoutError):
                await client.step({"message": "slow"}, timeout_s=0.02)
            go_on.set()
            assert (await client.step({"message": "quick"})).observation["echoed"] == "quick"

    run(play())


@pytest.mark.parametrize("how", ["returns", "raises", "closes"])
def test_asgi_transport_raises_connection_lost_error_if_the_application_ends(how):
    async def app(scope, receive, send):
        if scope["type"] == "http":
            raise AssertionError("the name was given")
        await receive()
        await send({"type": "websocket.accept"})
        await receive()
        if how == "raises":
            raise ZeroDivisionError
        if how == "closes":
            await send({"type": "websocket.close", "code": 4000, "reason": "enough"})

    async def play():
        async with client_of(app, environment_id="mine") as client:
            with pytest.raises(ConnectionLostError) as raised:
                await client.step({})
            problem = {"returns": "1006", "raises": "ZeroDivisionError", "closes": "enough"}[how]
            assert problem in str(raised.value)
            with contextlib.suppress(ConnectionLostError):
                await client.reset()

    run(play())


def test_env_client_takes_either_an_address_or_a_launcher():
    for arguments in ({}, {"base_url": "http://localhost", "launcher": object()}):
        with pytest.raises(InvalidArgumentError, match="either `base_url` or `launcher`"):
            EnvClient(**arguments)
