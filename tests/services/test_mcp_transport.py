"""A server over HTTP that misbehaves: one call fails, the others succeed."""

import asyncio
import contextlib
import logging
import socket
import threading

import anyio
import pytest
import uvicorn
from mcp.server.mcpserver import MCPServer

from guerdon._http import MAX_ANSWER
from guerdon.errors import ServiceError, ServiceUnavailableError
from guerdon.services.client import MCPClient
from guerdon.services.config import McpService

pytestmark = pytest.mark.edge  # real servers, in separate processes


async def plain(send, status, body, kind=b"text/plain", length=None):
    headers = [(b"content-type", kind), (b"content-length", b"%d" % (length or len(body)))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


MISDEEDS = {
    "unavailable": lambda send: plain(send, 503, b"try later"),
    "busy": lambda send: plain(send, 429, b"{}", b"application/json"),
    "unauthorized": lambda send: plain(send, 401, b'{"error": "no"}', b"application/json"),
    "breaks off": lambda send: plain(send, 200, b'{"jsonrpc"', b"application/json", length=100),
    "no json": lambda send: plain(send, 200, b"<html>", b"application/json"),
    "a model": lambda send: plain(send, 200, b'{"choices": []}', b"application/json"),
    "html": lambda send: plain(send, 200, b"<html>", b"text/html"),
    "too long": lambda send: plain(send, 200, b"[" * (MAX_ANSWER + 1), b"application/json"),
    "stream ends": lambda send: plain(send, 200, b": nothing\n\n", b"text/event-stream"),
}  # fmt: skip


class Misbehaving:
    """An MCP server that answers calls of the tool `misbehave` incorrectly."""

    def __init__(self):
        server = MCPServer("tools", log_level="CRITICAL")
        self.released = threading.Event()
        self.authorization = None
        self.handshakes = None  # a number for the protocol with sessions, before 2026
        self.forgetful = False

        @server.tool()
        async def echo(text: str) -> str:
            while text == "late" and not self.released.is_set():
                await anyio.sleep(0.01)
            return text

        @server.tool()
        async def misbehave(how: str) -> str:
            return how

        self.app = server.streamable_http_app()

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http" or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        self.authorization = dict(scope["headers"]).get(b"authorization")
        message = await receive()
        if self.handshakes is not None:
            if b"server/discover" in message["body"]:
                await plain(send, 404, b"no such method")
                return
            self.handshakes += b'"initialize"' in message["body"]
            if self.forgetful and b"tools/call" in message["body"]:
                self.forgetful = False
                await plain(send, 404, b"no such session")
                return
        for how, misdeed in MISDEEDS.items():
            if f'"{how}"'.encode() in message["body"]:
                await misdeed(send)
                return
        messages = iter([message])

        async def again():
            return next(messages, None) or await receive()

        await self.app(scope, again, send)


@contextlib.contextmanager
def serving(app):
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
    finally:
        server.should_exit = True
        thread.join(10)
        listening.close()


@pytest.fixture(scope="module")
def app():
    return Misbehaving()


@pytest.fixture(scope="module")
def url(app):
    logging.getLogger("uvicorn.error").setLevel("CRITICAL")
    with serving(app) as url:
        yield url


@pytest.mark.parametrize(
    ("how", "kind", "message"),
    [
        ("unavailable", ServiceUnavailableError, "HTTP 503"),
        ("busy", ServiceUnavailableError, "HTTP 429"),
        ("unauthorized", ServiceUnavailableError, "HTTP 401"),
        ("breaks off", ServiceUnavailableError, "no answer: "),
        ("no json", ServiceError, "doesn't speak MCP: <html>"),
        ("a model", ServiceError, "doesn't speak MCP: {\"choices"),
        ("html", ServiceError, "Unexpected content type: text/html"),
        ("too long", ServiceError, f"more than {MAX_ANSWER} bytes"),
        ("stream ends", ServiceUnavailableError, "ended without a response"),
    ],
)
def test_mcp_http_client_fails_one_call_and_not_the_others(app, url, how, kind, message, caplog):
    caplog.set_level("CRITICAL")
    app.released.clear()
    with MCPClient(McpService(endpoint=url, connections=1)) as client:

        async def both():
            beside = asyncio.ensure_future(client.call_tool_async("echo", text="late"))
            await client.call_tool_async("echo", text="early")
            with pytest.raises(ServiceError, match=message) as caught:
                await client.call_tool_async("misbehave", how=how)
            app.released.set()
            return caught.value, await beside, await client.call_tool_async("echo", text="after")

        error, beside, after = asyncio.run(both())
    assert type(error) is kind
    assert (beside, after) == ("late", "after")


def test_mcp_client_reports_an_address_without_a_path(url):
    address = url.removesuffix("/mcp")
    for endpoint in (address, address + "/"):
        with (
            MCPClient(endpoint) as client,
            pytest.raises(ServiceError, match=f"has no path, most MCP servers are at {url}$"),
        ):
            client.call_tool("echo", text="hello")


def test_mcp_client_retries_an_unavailable_server(url, app, monkeypatch):
    attempts = []

    async def once(send):
        attempts.append(send)
        await plain(send, 503, b"") if len(attempts) == 1 else await plain(
            send, 200, b'{"jsonrpc": "2.0", "id": null}', b"application/json"
        )

    monkeypatch.setitem(MISDEEDS, "unavailable", once)
    with (
        MCPClient(McpService(endpoint=url, retries=3)) as client,
        pytest.raises(ServiceError),
    ):
        client.call_tool("misbehave", how="unavailable")
    assert len(attempts) == 2


def test_mcp_client_sends_secrets_from_the_environment(url, app, monkeypatch):
    monkeypatch.setenv("GUERDON_JUDGE_TOKEN", "s3cret")
    with MCPClient(McpService(endpoint=url, token_env="GUERDON_JUDGE_TOKEN")) as client:
        assert client.call_tool("echo", text="hello") == "hello"
    assert app.authorization == b"Bearer s3cret"


def test_mcp_client_reopens_a_lost_session_of_an_older_protocol(url, app, monkeypatch):
    monkeypatch.setattr(app, "handshakes", 0)
    with MCPClient(McpService(endpoint=url)) as client:
        assert client.call_tool("echo", text="hello") == "hello"
        app.forgetful = True
        with pytest.raises(ServiceUnavailableError, match="HTTP 404"):
            client.call_tool("echo", text="hello")
        assert client.call_tool("echo", text="hello") == "hello"
    assert app.handshakes == 2
