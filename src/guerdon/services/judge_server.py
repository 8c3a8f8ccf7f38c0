"""A judge as an MCP server, and serving MCP servers over HTTP or on stdin and stdout."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from guerdon._http import bound_socket, serve_asgi, url_of
from guerdon._validation import check_token, has_token
from guerdon.errors import InvalidArgumentError, MissingInputError, ServiceError
from guerdon.rubrics.judge.question import ChatClient
from guerdon.rubrics.judge.template import Template
from guerdon.rubrics.judge.verdict import verdict_schema
from guerdon.services.client import require_mcp
from guerdon.services.model_service import Prompting

if TYPE_CHECKING:
    from mcp.server import Server
    from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["make_judge_server", "serve_mcp", "serve_mcp_stdio"]

DESCRIPTION = "Scores an answer: a number from 0 to 1, and the reasoning that led to it."
# Seconds that running calls have when the server is stopped.
GRACE_S = 10


def make_judge_server(
    chat: ChatClient,
    template: Template | str,
    *,
    name: str = "judge",
    description: str = DESCRIPTION,
) -> Server[Any]:
    """Make an MCP server with one tool, ``judge``, that returns ``{"score", "reasoning"}``.

    Its arguments are the fields of the template. ``action`` and ``observation``, which an
    `LLMJudge` passes to any service, are also accepted. Values in the prompt are fenced, so that
    they can't pass for a verdict. If the model fails or its answer is not a verdict, the tool
    fails with the reason.

    Example:
        >>> from guerdon import MCPClient
        >>> from guerdon.services import ChatModel, make_judge_server
        >>> with ChatModel("http://localhost:8000", "qwen3-8b") as chat:
        ...     server = make_judge_server(chat, "Rate from 0 to 1: {action}")
        ...     with MCPClient(server) as client:
        ...         [tool.name for tool in client.list_tools()]
        ['judge']

    Args:
        chat: The model, which the caller closes.
        template: The prompt.
        name: The name of the server.
        description: The description of the tool.

    Returns:
        A server of the SDK, for `serve_mcp` or an `MCPClient`.

    Raises:
        InvalidArgumentError: The template is invalid.
        MissingExtraError: A package of the extra is not installed.
    """
    require_mcp()
    # Not MCPServer, which installs a handler at the root of logging, and derives a tool's
    # arguments from a function's signature, not from a template.
    from mcp.server import Server
    from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool

    text = template if isinstance(template, Template) else Template(template)
    prompting = Prompting(text, "verdict")
    tool = Tool(
        name="judge",
        description=description,
        input_schema=prompting.input_schema(),
        output_schema=verdict_schema(),
    )

    async def list_tools(context: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[tool])

    async def call_tool(context: Any, params: Any) -> CallToolResult:
        try:
            if params.name != tool.name:
                raise InvalidArgumentError(f"there is no tool {params.name!r:.200}, only judge")
            verdict = await prompting.ask(chat, params.arguments or {})
        except (InvalidArgumentError, MissingInputError, ServiceError) as error:
            return CallToolResult(content=[TextContent(text=str(error))], is_error=True)
        content = TextContent(text=json.dumps(verdict, ensure_ascii=False))
        return CallToolResult(content=[content], structured_content=verdict)

    return Server(
        name, version=version("guerdon"), on_list_tools=list_tools, on_call_tool=call_tool
    )


def serve_mcp(
    server: Server[Any],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve over streamable HTTP until SIGTERM or ctrl-C, at ``/mcp``, with a ``/health``.

    Example:
        >>> from guerdon.services import ChatModel, make_judge_server, serve_mcp
        >>> def main():
        ...     with ChatModel("http://localhost:8000", "qwen3-8b") as chat:
        ...         server = make_judge_server(chat, "Rate from 0 to 1: {action}")
        ...         serve_mcp(server, port=0, ready=print)

    Args:
        server: Such as one of `make_judge_server`.
        host: The address to listen on; the default is the loopback, where it answers to names of
            the loopback only.
        port: The port; 0 lets the system choose one.
        token: The required value of ``Authorization: Bearer …``; None requires none.
        ready: Called with the address, ``/mcp`` included, once the server listens.

    Raises:
        InvalidArgumentError: The token is empty, or can't be sent in a header.
        LaunchError: The server can't listen on the address.
    """
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    async def health(request: Request) -> PlainTextResponse:
        return PlainTextResponse("ok")

    routes = [Route("/health", health, methods=["GET"])]
    app: Any = server.streamable_http_app(host=host, custom_starlette_routes=routes)
    token = check_token(token)
    if token is not None:
        app = _requiring(token, app)
    with bound_socket(host, port) as bound:
        address = f"{url_of(bound)}/mcp"
        announce = None if ready is None else functools.partial(ready, address)
        serve_asgi(app, bound, grace_s=GRACE_S, lifespan="on", ready=announce)


def serve_mcp_stdio(server: Server[Any]) -> None:
    """Serve on stdin and stdout until stdin ends, as a program that a client starts.

    Example:
        >>> from guerdon.services import ChatModel, make_judge_server, serve_mcp_stdio
        >>> def main():
        ...     with ChatModel("http://localhost:8000", "qwen3-8b") as chat:
        ...         serve_mcp_stdio(make_judge_server(chat, "Rate from 0 to 1: {action}"))

    Args:
        server: Such as one of `make_judge_server`.
    """
    import anyio
    from mcp.server.stdio import stdio_server

    async def serve() -> None:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    anyio.run(serve)


def _requiring(token: str, app: ASGIApp) -> ASGIApp:
    """An application that rejects requests without the token, except for ``/health``."""
    from starlette.datastructures import Headers
    from starlette.responses import JSONResponse

    detail = {"detail": "send the header Authorization: Bearer <token>"}
    refusal = JSONResponse(detail, 401, headers={"www-authenticate": "Bearer"})

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        is_open = scope["type"] != "http" or scope["path"] == "/health"
        if is_open or has_token(Headers(scope=scope).get("authorization", ""), token):
            await app(scope, receive, send)
        else:
            await refusal(scope, receive, send)

    return guarded
