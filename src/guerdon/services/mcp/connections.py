"""Connections to MCP servers: opened when needed, shared, and let go when they are no good.

The SDK wants a connection closed by the task that opened it, so each has a task of its own on
the background loop. It imports mcp, which the extra ``judge`` brings.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

import mcp
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from guerdon.errors import ServiceError, ServiceUnavailableError
from guerdon.services.config import McpService
from guerdon.services.describing import SdkService
from guerdon.services.mcp.stderr_tail import StderrTail
from guerdon.services.mcp.streamable_http import MAX_ANSWER, McpHttpClient
from guerdon.services.mcp.tool_answers import failure
from guerdon.services.models.secret import secret_of

__all__ = ["Connection", "Opener", "opener"]

T = TypeVar("T")

# How many pages a list of tools may have.
MAX_PAGES = 100
# Seconds beyond a call's limit after which the HTTP client gives up what nobody waits for.
GRACE_S = 5.0
# How much of a program's last line a message repeats, in characters.
SHOWN = 300
# Seconds that closing may take before it is cut short.
CLOSING_S = 8.0

Session = AbstractAsyncContextManager[mcp.Client]
# Makes the SDK's client; it is given where a program's last words are kept.
Opener = Callable[[StderrTail], Session]


class Connection:
    """A connection to a server, which several calls share. It lives on the background loop.

    Args:
        service: The service's name, for messages.
        open_session: Makes the SDK's client.
        timeout_s: Seconds that opening may take, over 0.

    Attributes:
        tools: What the server offers, by name, once it is open.
        calls: How many calls are running.
        answers: How many calls were answered.
        usable: Whether new calls may use it.
    """

    def __init__(self, service: str, open_session: Opener, timeout_s: float) -> None:
        self.service = service
        self.tools: dict[str, Any] = {}
        self.calls = self.answers = 0
        self.usable = True
        self._stderr = StderrTail()
        self._client: mcp.Client | None = None
        self._why = "it is closed"
        self._is_stopped = False
        self._failure: mcp.MCPError | ServiceError | None = None
        self._settled, self._closing = asyncio.Event(), asyncio.Event()
        # The context of whoever comes first is nothing to the others.
        self._task = asyncio.create_task(
            self._live(open_session, timeout_s), context=contextvars.Context()
        )

    async def _live(self, open_session: Opener, timeout_s: float) -> None:
        # No asyncio.timeout: it may not end before the client's own scopes, which stay open.
        limit = asyncio.get_running_loop().call_later(timeout_s, self._give_up, timeout_s)
        try:
            async with open_session(self._stderr) as client:
                self.tools = await _tools(client)
                limit.cancel()
                self._client = client
                self._settled.set()
                await self._closing.wait()
        except asyncio.CancelledError:
            pass  # by `_give_up`, by `close`, or by the SDK, whose group raises what happened
        except Exception as error:  # of the server, or of what carries its messages
            self._note(error)
        finally:
            limit.cancel()
            self.usable, self._client = False, None
            self._settled.set()

    def _give_up(self, timeout_s: float) -> None:
        self._why = f"it wasn't ready after {timeout_s:g} s"
        self._stop_opening()

    def _stop_opening(self) -> None:
        # Once: a second cancellation would end the SDK's cleaning up, and a program that doesn't
        # answer would live on.
        if not self._is_stopped:
            self._is_stopped = True
            self._task.cancel()

    def _note(self, error: BaseException) -> None:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, (mcp.MCPError, ServiceError)):
            self._failure = error
        self._why = str(error) or type(error).__name__

    async def open(self) -> None:
        """Wait until it is open.

        Raises:
            ServiceError: It can't be opened.
        """
        await self._settled.wait()
        if self._client is None:
            raise self._lost("can't be reached")

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """Call a tool; give what the SDK gives.

        Raises:
            ServiceError: It failed.
        """
        return await self._asked(tool, lambda client: client.call_tool(tool, dict(arguments)))

    async def list(self) -> None:
        """Ask anew what the server offers.

        Raises:
            ServiceError: It failed.
        """
        self.tools = await self._asked("tools/list", _tools)

    async def _asked(self, what: str, ask: Callable[[mcp.Client], Awaitable[T]]) -> T:
        client = self._client
        if client is None:
            raise self._lost("was lost")
        try:
            result = await ask(client)
        except mcp.MCPError as error:
            raised = failure(self.service, error)
            if isinstance(raised, ServiceUnavailableError):
                self.retire()
                raised = self.with_stderr(raised)
            else:
                self.answers += 1
            raise raised from error
        except Exception as error:  # what the SDK refuses of an answer, in whatever way
            raise ServiceError(
                f"service {self.service!r}: {what} gave what can't be taken: {error}",
                service=self.service,
            ) from error
        self.answers += 1
        return result

    def retire(self) -> None:
        """Take no new calls; it closes when those that run have ended."""
        self.usable = False
        if not self.calls:
            self._closing.set()

    def stop(self) -> None:
        """Have it close, whatever runs on it; it isn't waited for."""
        self.usable = False
        self._closing.set()
        if not self._settled.is_set():
            self._stop_opening()

    async def close(self) -> None:
        """Close it, whatever runs on it; what takes too long is cut short."""
        self.stop()
        done, _ = await asyncio.wait({self._task}, timeout=CLOSING_S)
        if not done:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=CLOSING_S)

    @property
    def done(self) -> bool:
        """Whether nothing of it is left."""
        return self._task.done()

    def __enter__(self) -> Connection:
        self.calls += 1
        return self

    def __exit__(self, *error: object) -> None:
        self.calls -= 1
        if not self.usable and not self.calls:
            self._closing.set()

    def _lost(self, what: str) -> ServiceError:
        error = self._failure
        if isinstance(error, mcp.MCPError):
            error = failure(self.service, error)
        if isinstance(error, ServiceError) and not isinstance(error, ServiceUnavailableError):
            return self.with_stderr(type(error)(str(error), service=self.service))
        message = f"service {self.service!r} {what}: {self._why}"
        return self.with_stderr(ServiceUnavailableError(message, service=self.service))

    @property
    def last_line(self) -> str:
        """The last line that its program wrote on standard error, or ""."""
        return self._stderr.text().rpartition("\n")[2][-SHOWN:]

    def with_stderr(self, error: ServiceError) -> ServiceError:
        """Note on an error what its program wrote last on standard error."""
        if text := self._stderr.text():
            error.add_note(f"its program said at last:\n{text}")
        return error


async def _tools(client: mcp.Client) -> dict[str, Any]:
    """The tools, page by page; the SDK keeps their schemas, and so asks no more at each call."""
    found, cursor = {}, None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor, cache_mode="refresh")
        found.update({tool.name: tool for tool in page.tools})
        cursor = page.next_cursor
        if cursor is None:
            break
    return found


def opener(service: str, config: McpService | SdkService) -> Opener:
    """What opens connections to a service.

    Args:
        service: Its name, for messages.
        config: Where it is.
    """
    if isinstance(config, McpService):
        over = _over_http if config.endpoint is not None else _over_program
        return lambda stderr: over(service, config, stderr)
    if isinstance(config.server, mcp.StdioServerParameters):
        return lambda stderr: _started(config.server, stderr)
    return lambda stderr: mcp.Client(config.server)


def _over_program(service: str, config: McpService, stderr: StderrTail) -> Session:
    assert config.command is not None
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
        async with mcp.Client(stdio_client(parameters, errlog=stderr.file)) as client:
            yield client


@asynccontextmanager
async def _over_http(
    service: str, config: McpService, stderr: StderrTail
) -> AsyncIterator[mcp.Client]:
    assert config.endpoint is not None
    headers = {header: _secret(service, name) for header, name in config.headers_env.items()}
    if config.token_env is not None:
        headers["Authorization"] = f"Bearer {_secret(service, config.token_env)}"
    async with McpHttpClient(headers, config.timeout_s + GRACE_S) as http:
        transport = streamable_http_client(
            config.endpoint, http_client=http, max_sse_event_size=MAX_ANSWER
        )
        async with mcp.Client(transport) as client:
            yield client


def _secret(service: str, name: str, *, in_header: bool = True) -> str:
    return secret_of(name, f"service {service!r}", service=service, in_header=in_header)
