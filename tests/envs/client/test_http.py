"""The stateless HTTP face, from the client's side."""

import asyncio
import json
from contextlib import suppress

import pytest

from guerdon import HTTPEnvClient
from guerdon.errors import (
    ClientTimeoutError,
    ConnectionLostError,
    EpisodeError,
    InvalidArgumentError,
    InvalidObservationError,
    ServerError,
)
from tests.envs.client.servers import COMPONENTS, Say, run


def asking(ask, server, **options):
    arguments = {"base_url": server} if isinstance(server, str) else server

    async def asking():
        async with HTTPEnvClient(**arguments, **options) as client:
            return await ask(client)

    return run(asking())


class Spoken:
    """An HTTP server with one answer."""

    def __init__(self, reply, *, status="200 OK", kind="application/json"):
        self._said = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n".encode()
        body = reply if isinstance(reply, bytes) else reply.encode()
        self._said += b"content-length: %d\r\nconnection: close\r\n\r\n%s" % (len(body), body)
        self.heard = []

    async def _speak(self, reader, writer):
        self.heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(self._said)
        await writer.drain()
        writer.close()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._speak, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *error):
        self._server.close()
        await self._server.wait_closed()


def spoken(ask, reply, **options):
    """Ask a server with one answer."""

    async def asking():
        async with Spoken(reply, **options) as server:
            client = HTTPEnvClient(server.url)
            try:
                return await ask(client)
            finally:
                await client.close()

    return run(asking())


def test_http_client_get_and_post(echo):
    async def ask(client):
        assert await client.get("/health") == {"status": "healthy"}
        assert "message" in (await client.get("/schema"))["action"]["properties"]
        assert (await client.get("/config"))["fingerprint"]
        assert "guerdon_sessions" in await client.get("/metrics")
        answer = await client.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "no/such"})
        assert answer["error"]["code"] == -32601

    asking(ask, echo)


def test_http_client_calls_have_fresh_environments(echo):
    async def ask(client):
        first = await client.reset(seed=7, episode_id="ep-1", level=2)
        assert (first.observation["seed"], first.observation["level"]) == (7, 2)
        assert (first.reward, first.done) == (None, False)
        state = await client.state()
        assert (state["episode_id"], state["step_count"]) == (None, 0)

    asking(ask, echo)


def test_http_client_steps_without_a_reset(echo):
    async def ask(client):
        result = await client.step({"message": "please"})
        assert (result.reward, result.done, result.observation["echoed"]) == (1.0, False, "please")
        assert result.metadata["reward_components"] == COMPONENTS
        assert (await client.step(Say(message="bye"), timeout_s=5)).done

    asking(ask, echo)


def test_http_client_refuses_a_step_of_an_episode_that_it_cannot_continue(echo):
    async def ask(client):
        await client.reset(seed=7)
        with pytest.raises(EpisodeError, match=r"fresh environment.* use EnvClient\('http"):
            await client.step({"message": "please"})

    asking(ask, echo)


def test_sync_http_client(echo):
    with HTTPEnvClient(**echo).sync() as client:
        assert client.environment_id == "the echo"
        assert client.get("/health") == {"status": "healthy"}
        assert client.post("/reset", json={"seed": 3})["observation"]["seed"] == 3
        assert client.step({"message": "please"}).reward == 1.0
        assert client.reset(seed=3).observation["seed"] == 3
        assert client.state()["step_count"] == 0
    client.close()


def test_http_client_environment_id(echo):
    async def name(client):
        return client.environment_id

    assert asking(name, echo) == "the echo"
    assert asking(name, echo, environment_id="mine") == "mine"
    assert HTTPEnvClient(**echo).environment_id == "http://localhost"


def test_http_client_raises_server_error_if_the_environment_raises(echo):
    async def ask(client):
        with pytest.raises(ServerError, match=r"/step: .*asked to break") as raised:
            await client.step({"message": "break"})
        assert raised.value.code == "500"
        with pytest.raises(ServerError, match="asked to break"):
            await client.reset(level=-1)
        assert (await client.step({"message": "please"})).reward == 1.0

    asking(ask, echo)


def test_http_client_raises_server_error_for_an_invalid_action(echo):
    async def ask(client):
        with pytest.raises(ServerError, match="message") as raised:
            await client.step({"colour": 1})
        assert raised.value.code == "422"
        assert ["body", "action", "message"] in [each["loc"] for each in raised.value.errors]

    asking(ask, echo)


def test_http_client_raises_for_an_unknown_path(echo):
    async def ask(client):
        with pytest.raises(ServerError) as raised:
            await client.get("/nowhere")
        assert raised.value.code == "404"

    asking(ask, echo)


def test_http_client_raises_at_capacity(serve):
    from websockets.sync.client import connect

    server = serve(max_sessions=1)

    async def ask(client):
        with pytest.raises(ServerError, match="1 sessions are taken") as raised:
            await client.reset()
        assert raised.value.code == "503"

    with connect(f"ws://127.0.0.1:{server.port}/ws") as taken:
        taken.send('{"type":"reset"}')
        taken.recv()
        asking(ask, server.url)


def test_http_client_token(serve):
    url = serve(token="secret", name="guarded").url

    async def ask(client):
        await client.reset()
        return client.environment_id

    assert asking(ask, url, token="secret") == "guarded"
    for token, reply in ((None, "no token"), ("wrong", "wrong token")):
        with pytest.raises(ServerError, match=reply) as raised:
            asking(ask, url, token=token)
        assert raised.value.code == "401"


def test_http_client_raises_if_nothing_listens(serve):
    server = serve()
    server.stop()

    async def ask(client):
        assert client.environment_id == server.url
        with pytest.raises(ConnectionLostError, match="can't reach"):
            await client.get("/health")

    asking(ask, server.url)


async def silent(reader, writer):
    await reader.read()
    writer.close()


async def dribbling(reader, writer):
    """Answer byte by byte, without end."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
    try:
        with suppress(ConnectionError):
            while True:
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.005)
    finally:
        writer.close()


@pytest.mark.parametrize("server", [silent, dribbling])
def test_http_client_raises_timeout(server):
    async def ask():
        async with await asyncio.start_server(server, "127.0.0.1", 0) as listening:
            port = listening.sockets[0].getsockname()[1]
            client = HTTPEnvClient(f"http://127.0.0.1:{port}", timeout_s=0.02)
            with pytest.raises(ClientTimeoutError, match=r"within 0\.02 s") as raised:
                await client.get("/health")
            assert raised.value.seconds == 0.02
            await client.close()

    run(ask())


@pytest.mark.parametrize("reply", ["{", "", "nonsense", b"\xff\xfe"])
def test_http_client_rejects_invalid_json(reply):
    async def ask(client):
        with pytest.raises(ConnectionLostError, match="invalid JSON"):
            await client.get("/health")

    spoken(ask, reply)


@pytest.mark.parametrize(
    "reply",
    ["{}", "[1]", "null", '{"observation":[1]}', '{"observation":{},"reward":"high"}',
     '{"observation":{},"metadata":[1]}'],
)  # fmt: skip
def test_http_client_rejects_what_the_protocol_does_not_allow(reply):
    async def ask(client):
        for call in (client.reset, lambda: client.step({})):
            with pytest.raises((ConnectionLostError, InvalidObservationError)):
                await call()

    spoken(ask, reply)


def test_http_client_rejects_an_answer_that_is_too_large(monkeypatch):
    monkeypatch.setattr("guerdon.envs.client.http.MAX_MESSAGE", 1000)

    async def ask(client):
        with pytest.raises(ConnectionLostError, match="/state answered with more than 1000 bytes"):
            await client.state()

    spoken(ask, "x" * 1001)


def test_http_client_returns_text():
    async def ask(client):
        assert await client.get("/metrics") == "one 1\n"

    spoken(ask, "one 1\n", kind="text/plain")


@pytest.mark.parametrize(
    ("reply", "kind", "problem"),
    [
        ('{"detail":"it broke"}', "application/json", "it broke"),
        ('{"detail":{"message":"it broke","code":"X"}}', "application/json", "it broke"),
        ('{"detail":[{"msg":"it broke"}]}', "application/json", "it broke"),
        ('"it broke"', "application/json", "it broke"),
        ("<h1>it broke</h1>", "text/html", "it broke"),
    ],
)
def test_http_client_reports_the_servers_error(reply, kind, problem):
    async def ask(client):
        with pytest.raises(ServerError, match=problem) as raised:
            await client.get("/x")
        assert raised.value.code == "500"

    spoken(ask, reply, status="500 Oh No", kind=kind)


def test_http_client_accepts_older_servers_without_metadata():
    async def ask(client):
        result = await client.reset()
        assert (result.reward, result.metadata) == (2.0, {})

    spoken(ask, json.dumps({"observation": {"a": 1}, "reward": 2, "done": False}))


def test_http_client_rejects_unserializable_values(echo):
    async def ask(client):
        with pytest.raises(InvalidArgumentError, match="JSON"):
            await client.step({"message": object()})
        with pytest.raises(InvalidArgumentError, match="JSON"):
            await client.post("/reset", json=float("nan"))

    asking(ask, echo)


def test_http_client_does_not_show_a_password():
    client = HTTPEnvClient("http://me:s3cret@127.0.0.1:9")
    assert client.environment_id == "http://127.0.0.1:9"
    with pytest.raises(ConnectionLostError, match=r"can't reach http://127\.0\.0\.1:9/state"):
        run(client.state())


def test_http_client_rejects_a_query_and_does_not_show_it():
    with pytest.raises(InvalidArgumentError, match=r"'http://host' is not .* or has a query"):
        HTTPEnvClient("http://host?token=s3cret")


def test_http_client_rejects_an_invalid_address():
    with pytest.raises(InvalidArgumentError, match="http://localhost:8000"):
        HTTPEnvClient("ftp://host")


def test_http_client_uses_no_proxy_for_the_loopback(echo_url, monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)

    async def ask(client):
        assert client.environment_id == "the echo"
        return await client.get("/health")

    assert asking(ask, echo_url) == {"status": "healthy"}


def test_http_client_can_be_used_again_after_close(echo):
    async def ask(client):
        await client.get("/health")
        await client.close()
        await client.close()
        return await client.get("/health")

    assert asking(ask, echo) == {"status": "healthy"}
