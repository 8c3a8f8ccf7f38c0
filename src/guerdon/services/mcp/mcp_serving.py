"""Serving an MCP server of the SDK's: over streamable HTTP, or on stdin and stdout."""

from __future__ import annotations

import hmac
import json
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from guerdon.errors import InvalidArgumentError, LaunchError

if TYPE_CHECKING:
    from mcp.server import Server

__all__ = ["serve_mcp", "serve_mcp_stdio"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

# Seconds that running calls have when the server is told to stop.
GRACE_S = 10


def serve_mcp(
    server: Server[Any],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve over streamable HTTP until SIGTERM or ctrl-C, at ``/mcp``; ``/health`` says ok.

    Example:
        >>> from guerdon.services import ChatModel, make_judge_server, serve_mcp
        >>> def main():
        ...     with ChatModel("http://localhost:8000", "qwen3-8b") as chat:
        ...         server = make_judge_server(chat, "Rate from 0 to 1: {action}")
        ...         serve_mcp(server, port=0, ready=print)

    Args:
        server: What is served, such as what `make_judge_server` makes.
        host: The address to listen on; by default the loopback alone, where it answers to names
            of the loopback only.
        port: The port; 0 lets the system choose one.
        token: What ``Authorization: Bearer …`` must hold; None lets everybody in.
        ready: Called with the address, ``/mcp`` included, once it takes connections.

    Raises:
        InvalidArgumentError: The token is empty, or can't be sent in a header.
        LaunchError: The address can't be listened on.
    """
    import uvicorn
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    async def health(request: Request) -> PlainTextResponse:
        return PlainTextResponse("ok")

    routes = [Route("/health", health, methods=["GET"])]
    app: Any = server.streamable_http_app(host=host, custom_starlette_routes=routes)
    if token is not None:
        app = _TokenGuard(app, token)
    config = uvicorn.Config(
        app,
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_S,
    )

    class Announcing(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets=sockets)
            if self.started and ready is not None:
                ready(f"{_url(listener)}/mcp")

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await super().shutdown(sockets=sockets)
            self._captured_signals.clear()  # it has ended as it was told to: not by the signal

    with _listener(host, port) as listener:
        Announcing(config).run(sockets=[listener])


def serve_mcp_stdio(server: Server[Any]) -> None:
    """Serve on stdin and stdout until stdin ends, as a program that a client starts.

    Example:
        >>> from guerdon.services import ChatModel, make_judge_server, serve_mcp_stdio
        >>> def main():
        ...     with ChatModel("http://localhost:8000", "qwen3-8b") as chat:
        ...         serve_mcp_stdio(make_judge_server(chat, "Rate from 0 to 1: {action}"))

    Args:
        server: What is served, such as what `make_judge_server` makes.
    """
    import anyio
    from mcp.server.stdio import stdio_server

    async def serve() -> None:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    anyio.run(serve)


class _TokenGuard:
    """Lets through what holds the token, and whoever asks for ``/health``."""

    def __init__(self, app: Any, token: str) -> None:
        if not isinstance(token, str) or not token or not all("!" <= each <= "~" for each in token):
            raise InvalidArgumentError("the token takes printable ASCII without spaces")
        self._app, self._token = app, token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] != "/health" and not self._is_known(scope):
            body = json.dumps({"detail": "send the header Authorization: Bearer <token>"}).encode()
            headers = [
                (b"content-type", b"application/json"),
                (b"content-length", b"%d" % len(body)),
                (b"www-authenticate", b"Bearer"),
            ]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": body})
            return
        await self._app(scope, receive, send)

    def _is_known(self, scope: Scope) -> bool:
        kind, _, given = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
        return kind.lower() == b"bearer" and hmac.compare_digest(given.strip(), self._token)


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        said = getattr(error, "strerror", None) or error
        raise LaunchError(f"can't listen on {host}:{port}: {said}") from error
    return listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
