"""Opening sessions with MCP servers: over HTTP, with a program, or in memory.

It imports mcp and httpx2, which the extra ``judge`` installs.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Self, TextIO, TypeAlias

import httpx2
import mcp
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR

from guerdon._http import ACCEPTED, MAX_ANSWER, hide_query, read_answer
from guerdon.services.config import McpService, SdkService, read_secret

# How much of an invalid answer an error repeats, in bytes.
SHOWN = 200
# Seconds that an idle connection is kept: fewer than servers do, so that none closes during a call.
KEPT_S = 2.0
# Seconds beyond a call's timeout after which the HTTP client gives up.
GRACE_S = 5.0
# The key in an error's data with the HTTP status of the answer.
HTTP_STATUS = "http_status"
# Bytes of a program's stderr that are kept.
STDERR_KEPT = 4096
# The most tools of a server, and the most bytes of their definitions as JSON.
MAX_TOOLS, MAX_TOOLS_BYTES = 2000, 4 * 2**20

Session: TypeAlias = AbstractAsyncContextManager[mcp.Client]


class StderrTail:
    """The end of what a program writes to its stderr; open it on an event loop.

    Attributes:
        file: The stderr of the program.
    """

    file: TextIO

    def __init__(self) -> None:
        self._kept = b""
        self._descriptor = -1

    def text(self) -> str:
        """Return the end of what was written."""
        self._read()
        return self._kept.decode(errors="replace").strip()

    def __enter__(self) -> Self:
        self._descriptor, write = os.pipe()
        os.set_blocking(self._descriptor, False)
        self.file = os.fdopen(write, "w")
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._descriptor, self._read)
        return self

    def __exit__(self, *exception: object) -> None:
        self.file.close()
        self._read()
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = -1

    def _read(self) -> None:
        with suppress(BlockingIOError):  # no more yet; it can't end before `file` is closed
            while self._descriptor >= 0 and (part := os.read(self._descriptor, 65536)):
                self._kept = (self._kept + part)[-STDERR_KEPT:]


def open_session(service: str, config: McpService | SdkService, stderr: StderrTail) -> Session:
    """Open a session with a service.

    Args:
        service: Its name, for errors.
        config: Its configuration.
        stderr: Keeps the end of its program's stderr, if it is a program.
    """
    if isinstance(config, SdkService):
        server = config.server
        is_program = isinstance(server, mcp.StdioServerParameters)
        return _started(server, stderr) if is_program else _client(server)
    if config.command is None:
        return _over_http(service, config)
    program, *arguments = config.command
    environment = {name: _secret(service, name, in_header=False) for name in config.env}
    return _started(
        mcp.StdioServerParameters(command=program, args=arguments, env=environment), stderr
    )


@asynccontextmanager
async def _started(
    parameters: mcp.StdioServerParameters, stderr: StderrTail
) -> AsyncIterator[mcp.Client]:
    with stderr:
        async with _client(stdio_client(parameters, errlog=stderr.file)) as client:
            yield client


@asynccontextmanager
async def _over_http(service: str, config: McpService) -> AsyncIterator[mcp.Client]:
    assert config.endpoint is not None
    headers = {header: _secret(service, name) for header, name in config.headers_env.items()}
    if config.token_env is not None:
        headers["Authorization"] = f"Bearer {_secret(service, config.token_env)}"
    async with McpHttpClient(headers, config.timeout_s + GRACE_S) as http:
        transport = streamable_http_client(
            config.endpoint, http_client=http, max_sse_event_size=MAX_ANSWER
        )
        async with _client(transport) as client:
            yield client


@asynccontextmanager
async def _client(server: Any) -> AsyncIterator[mcp.Client]:
    """A client that doesn't validate what tools return.

    The SDK validates it in the event loop by the schema that the server declares. No time limit
    ends that, and a pattern such as ``^(a+)+$`` stops every thread.
    """

    async def accept(name: str, result: Any) -> None:
        pass

    async with mcp.Client(server) as client:
        client.session.validate_tool_result = accept  # type: ignore[method-assign]
        yield client


def tools_problem(count: int, size: int) -> str | None:
    """Return why a list of tools isn't accepted; None if it is."""
    if count > MAX_TOOLS:
        return f"it has {count} tools or more; at most {MAX_TOOLS} are accepted"
    if size > MAX_TOOLS_BYTES:
        return f"its tools take {size} bytes or more; at most {MAX_TOOLS_BYTES} are accepted"
    return None


def _secret(service: str, name: str, *, in_header: bool = True) -> str:
    return read_secret(name, f"service {service!r}", service=service, in_header=in_header)


class McpHttpClient(httpx2.AsyncClient):
    """The HTTP client of MCP's streamable HTTP transport.

    The SDK's transport gives up the whole connection, with every other call on it, if one request
    can't be sent or its answer breaks off. So each failure of a request becomes an answer here: a
    JSON-RPC error.

    Args:
        headers: Sent with each request.
        timeout_s: The timeout in seconds of sending, and of each pause of an answer.
    """

    def __init__(self, headers: dict[str, str], timeout_s: float) -> None:
        limits = httpx2.Limits(keepalive_expiry=KEPT_S)
        super().__init__(headers=ACCEPTED | headers, timeout=timeout_s, limits=limits)

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request; a failure of a POST becomes an answer."""
        hide_query(request)
        if request.method != "POST":  # the SDK handles failures of those
            return await super().send(request, **options)
        try:
            response = await super().send(request, **options)
            kind = response.headers.get("content-type", "").lower()
            if response.status_code < 400 and not kind.startswith("application/json"):
                return response
            return _checked(request, await read_answer(response))
        except httpx2.DecodingError as error:
            return _error(request, 502, INTERNAL_ERROR, f"the server {error}")
        except httpx2.RequestError as error:
            reason = str(error) or type(error).__name__
            return _error(request, 502, CONNECTION_CLOSED, f"no answer: {reason}")


def _checked(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    status, body = response.status_code, response.content
    if status >= 400 and not _is_error(body):
        message = f"HTTP {status} {response.reason_phrase}".rstrip()
        if status == 404 and request.url.path == "/":
            message += (
                f"; the address has no path, most MCP servers are at {request.url.join('/mcp')}"
            )
        return _error(request, status, INTERNAL_ERROR, message, data={HTTP_STATUS: status})
    if status < 400 and b'"jsonrpc"' not in body:
        message = f"the server doesn't speak MCP: {body[:SHOWN].decode(errors='replace')}"
        return _error(request, 502, INTERNAL_ERROR, message)
    return response


def _is_error(body: bytes) -> bool:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return (
        isinstance(answer, dict) and "jsonrpc" in answer and isinstance(answer.get("error"), dict)
    )


def _error(
    request: httpx2.Request, status: int, code: int, message: str, *, data: Any = None
) -> httpx2.Response:
    error = {"code": code, "message": message} | ({} if data is None else {"data": data})
    content = {"jsonrpc": "2.0", "id": None, "error": error}
    return httpx2.Response(status, json=content, request=request)
