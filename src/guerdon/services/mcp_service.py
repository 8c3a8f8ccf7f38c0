"""A service that is an MCP server: its connections, and what a call on one of them returns.

The SDK requires that a connection is closed by the task that opened it, so each has a task of its
own on the background loop. It imports mcp, which the extra ``judge`` installs.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import mcp
from mcp_types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    REQUEST_TIMEOUT,
    CallToolResult,
    TextContent,
)
from pydantic_core import from_json, to_json

from guerdon._background import close_at_exit
from guerdon._work_clock import Turn
from guerdon.errors import (
    InvalidArgumentError,
    ServiceError,
    ServiceTimeoutError,
    ServiceUnavailableError,
)
from guerdon.services.config import McpService, SdkService, ServiceTool
from guerdon.services.mcp_transport import HTTP_STATUS, StderrTail, open_session, tools_problem
from guerdon.services.retries import retry

T = TypeVar("T")

# The most pages of a list of tools.
MAX_PAGES = 100
# How much of a program's last line, and of a tool's message, an error repeats, in characters.
LAST_LINE, SHOWN = 300, 2000
# Seconds that closing may take before it is cut short.
CLOSING_S = 8.0
# The statuses of a server that is unavailable, or has too much to do.
UNAVAILABLE = (401, 403, 404, 408, 429, 500, 502, 503, 504)

# A forked process keeps its parent's connections here, so that they are not collected, which would
# close the sockets of the parent.
_inherited: list[object] = []


class TextObject(dict[str, Any]):
    """A JSON object that a tool returned as text.

    Args:
        text: The text.

    Raises:
        ValueError: The text is not a JSON object.
    """

    def __init__(self, text: str) -> None:
        value = from_json(text, allow_inf_nan=False)
        if not isinstance(value, dict):
            raise ValueError("it is not an object")
        super().__init__(value)
        self.text = text  # an `LLMJudge` parses it as strictly as every text


def answer_of(service: str, tool: str, result: CallToolResult) -> dict[str, Any] | str:
    """Return the result of a call.

    Structured content is returned as a dictionary, under the key ``result`` if it isn't an object.
    Without it, as of a tool annotated ``-> dict``, a text that is a JSON object is returned as a
    dictionary, any other as text. The SDK also sends the text of a tool annotated ``-> str`` as
    structured content, for which the text is returned.

    Raises:
        ServiceError: The tool failed, or returned neither text nor structured content.
    """
    texts = [block.text for block in result.content if isinstance(block, TextContent)]
    text = "\n".join(texts)
    if result.is_error:
        reason = text[:SHOWN] or "without a message"
        raise ServiceError(f"service {service!r}: {tool} failed: {reason}", service=service)
    structured = result.structured_content
    if isinstance(structured, dict):
        return text if structured == {"result": text} else structured
    if structured is not None:
        return {"result": structured}
    if len(texts) < len(result.content):
        kinds = sorted({block.type for block in result.content} - {"text"})
        raise ServiceError(
            f"service {service!r}: {tool} returned unsupported content, {', '.join(kinds)}; "
            "structured content and text are supported",
            service=service,
        )
    try:
        return TextObject(text)
    except ValueError:
        return text


def failure(service: str, error: mcp.MCPError) -> ServiceError:
    """Return the error of an error of the protocol."""
    status = error.data.get(HTTP_STATUS) if isinstance(error.data, dict) else None
    message = f"service {service!r}: {error.message[:SHOWN]}"
    if error.code == CONNECTION_CLOSED or status in UNAVAILABLE:
        return ServiceUnavailableError(message, service=service)
    if error.code == REQUEST_TIMEOUT:
        return ServiceTimeoutError(message, service=service)
    return ServiceError(message, service=service)


def _pause(error: ServiceError) -> float | None:
    return 0.0 if isinstance(error, ServiceUnavailableError | ServiceTimeoutError) else None


class Connection:
    """A connection to a server, which several calls share.

    Args:
        service: The service's name, for errors.
        config: Its configuration.
        timeout_s: The timeout of opening in seconds.

    Attributes:
        tools: The server's tools by name, once it is open.
        calls: How many calls are running.
        answers: How many calls were answered.
        usable: Whether new calls may use it.
    """

    def __init__(self, service: str, config: McpService | SdkService, timeout_s: float) -> None:
        self.service = service
        self.tools: dict[str, Any] = {}
        self.calls = self.answers = 0
        self.usable = True
        self._stderr = StderrTail()
        self._client: mcp.Client | None = None
        self._is_stopped = False
        self._error: BaseException | None = None  # the reason why it closed
        self._settled, self._closing = asyncio.Event(), asyncio.Event()
        # In an empty context, since callers with other contexts share the connection.
        self._task = asyncio.create_task(
            self._live(config, timeout_s), context=contextvars.Context()
        )

    async def _live(self, config: McpService | SdkService, timeout_s: float) -> None:
        # Not asyncio.timeout: it may not end before the client's own scopes, which stay open.
        limit = asyncio.get_running_loop().call_later(timeout_s, self._give_up, timeout_s)
        try:
            async with open_session(self.service, config, self._stderr) as client:
                self.tools = await _tools(client)
                limit.cancel()
                self._client = client
                self._settled.set()
                await self._closing.wait()
        except asyncio.CancelledError:
            pass  # by `_give_up`, by `close`, or by the SDK, whose group raises what happened
        except Exception as error:  # of the server, or of its transport
            self._error = error
        finally:
            limit.cancel()
            self.usable, self._client = False, None
            self._settled.set()

    def _give_up(self, timeout_s: float) -> None:
        self._error = TimeoutError(f"it wasn't ready after {timeout_s:g} s")
        self._stop_opening()

    def _stop_opening(self) -> None:
        # Once: a second cancellation would end the SDK's cleaning up, and a program that doesn't
        # answer would live on.
        if not self._is_stopped:
            self._is_stopped = True
            self._task.cancel()

    async def open(self) -> None:
        """Wait until it is open.

        Raises:
            ServiceError: It can't be opened.
        """
        await self._settled.wait()
        if self._client is None:
            raise self._lost("can't be reached")

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """Call a tool, and return the SDK's result.

        Raises:
            ServiceError: It failed.
        """
        return await self._request(tool, lambda client: client.call_tool(tool, dict(arguments)))

    async def list(self) -> None:
        """List the server's tools again.

        Raises:
            ServiceError: It failed.
        """
        self.tools = await self._request("tools/list", _tools)

    async def _request(self, what: str, send: Callable[[mcp.Client], Awaitable[T]]) -> T:
        client = self._client
        if client is None:
            raise self._lost("was lost")
        try:
            result = await send(client)
        except mcp.MCPError as error:
            raised = failure(self.service, error)
            if isinstance(raised, ServiceUnavailableError):
                self.retire()
                raised = self.with_stderr(raised)
            else:
                self.answers += 1
            raise raised from error
        except Exception as error:  # the SDK rejects the answer
            raise ServiceError(
                f"service {self.service!r}: {what} returned an invalid answer: {error}",
                service=self.service,
            ) from error
        self.answers += 1
        return result

    def retire(self) -> None:
        """Accept no new calls, and close when the running ones have ended."""
        self.usable = False
        if not self.calls:
            self._closing.set()

    def stop(self) -> None:
        """Close it with its running calls, without waiting."""
        self.usable = False
        self._closing.set()
        if not self._settled.is_set():
            self._stop_opening()

    async def close(self) -> None:
        """Close it with its running calls; after a timeout, cancel it."""
        self.stop()
        done, _ = await asyncio.wait({self._task}, timeout=CLOSING_S)
        if not done:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=CLOSING_S)

    @property
    def done(self) -> bool:
        """Whether it is closed."""
        return self._task.done()

    def __enter__(self) -> Connection:
        self.calls += 1
        return self

    def __exit__(self, *error: object) -> None:
        self.calls -= 1
        if not self.usable and not self.calls:
            self._closing.set()

    def _lost(self, what: str) -> ServiceError:
        error = self._error
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        why = "it is closed" if error is None else str(error) or type(error).__name__
        if isinstance(error, mcp.MCPError):
            error = failure(self.service, error)
        if isinstance(error, ServiceError) and not isinstance(error, ServiceUnavailableError):
            return self.with_stderr(type(error)(str(error), service=self.service))
        message = f"service {self.service!r} {what}: {why}"
        return self.with_stderr(ServiceUnavailableError(message, service=self.service))

    @property
    def last_line(self) -> str:
        """The last line of its program's stderr, or ""."""
        return self._stderr.text().rpartition("\n")[2][-LAST_LINE:]

    def with_stderr(self, error: ServiceError) -> ServiceError:
        """Add the end of its program's stderr to an error, as a note."""
        if text := self._stderr.text():
            error.add_note(f"the end of its program's stderr:\n{text}")
        return error


async def _tools(client: mcp.Client) -> dict[str, Any]:
    """The tools.

    Raises:
        mcp.MCPError: They are too many, or too large.
    """
    tools, size, cursor = [], 0, None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor, cache_mode="refresh")
        tools += page.tools
        size += len(to_json(page.tools))
        cursor = page.next_cursor
        problem = tools_problem(len(tools), size)
        if problem is not None:
            raise mcp.MCPError(INTERNAL_ERROR, problem)
        if cursor is None:
            return {tool.name: tool for tool in tools}
    message = f"its list of tools has more than {MAX_PAGES} pages"
    raise mcp.MCPError(INTERNAL_ERROR, message)


class ToolService:
    """Calls the tools of a server, over connections that are opened on demand.

    Its async methods run on the background loop. In a forked process it opens its own connections.

    Args:
        name: The service's name.
        config: Its configuration.
    """

    def __init__(self, name: str, config: McpService | SdkService) -> None:
        self.name, self.config = name, config
        self._most = 1  # connections; a program is one server
        if isinstance(config, McpService) and config.endpoint is not None:
            self._most = config.connections
        self._timeout_s = config.timeout_s
        self._calls_each = -(-config.own_concurrency // self._most)
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._turns = asyncio.Semaphore(self.config.own_concurrency)
        self._open: list[Connection] = []
        self._retired: set[Connection] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def chat_model(self) -> None:
        """Return None: it is not a model."""

    async def call(self, tool: str | None, arguments: Mapping[str, Any]) -> dict[str, Any] | str:
        """Call a tool; None is the service's own.

        Raises:
            InvalidArgumentError: The arguments don't fit into JSON.
            ServiceError: The call failed.
        """
        try:
            sent = from_json(to_json(arguments), allow_inf_nan=False)
        except (ValueError, RecursionError) as error:  # which would break the connection
            raise InvalidArgumentError(
                f"the arguments of service {self.name!r} must fit into JSON: {error}"
            ) from error
        self._check_process()
        return await retry(lambda _: self._attempt(tool, sent), self.config.retries, _pause)

    async def _attempt(
        self, tool: str | None, arguments: Mapping[str, Any]
    ) -> dict[str, Any] | str:
        with Turn() as turn:
            async with self._turns:
                turn.begin()
                with self._connection() as connection:
                    async with self._limited(connection, self._timeout_s):
                        await connection.open()
                        name = await self._tool_name(tool, connection)
                        result = await connection.call(name, arguments)
        return answer_of(self.name, name, result)

    @asynccontextmanager
    async def _limited(self, connection: Connection, timeout_s: float) -> AsyncIterator[None]:
        answers = connection.answers
        try:
            async with asyncio.timeout(timeout_s) as limit:
                yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            if connection.answers == answers:  # no call was answered: it may hang for good
                connection.retire()
            message = f"service {self.name!r} gave no answer in {timeout_s:g} s"
            raised = ServiceTimeoutError(message, service=self.name)
            raise connection.with_stderr(raised) from error

    async def tools(self) -> list[ServiceTool]:
        """Return the server's tools.

        Raises:
            ServiceError: It can't be reached.
        """
        self._check_process()
        with self._connection() as connection:
            async with self._limited(connection, self._timeout_s):
                await connection.open()
                await connection.list()
            return [
                ServiceTool(
                    name=tool.name,
                    service=self.name,
                    description=tool.description or "",
                    input_schema=tool.input_schema,
                    output_schema=tool.output_schema,
                )
                for tool in connection.tools.values()
            ]

    async def check(self, timeout_s: float, *, for_tool: bool) -> None:
        """Check that the server can be reached, on a connection of its own.

        Args:
            timeout_s: The timeout of opening in seconds.
            for_tool: Whether to check that the service's own tool exists.

        Raises:
            ServiceError: The server can't be reached, or the tool doesn't exist.
        """
        connection = Connection(self.name, self.config, timeout_s)
        try:
            await connection.open()
            if for_tool:
                async with self._limited(connection, timeout_s):  # it may list its tools again
                    await self._tool_name(None, connection)
        except ServiceError as error:
            if line := connection.last_line:  # for the user at the console, who sees no notes
                error.args = (f"{error}; the last line of its program's stderr: {line}",)
            raise
        finally:
            await asyncio.shield(connection.close())

    async def close(self) -> None:
        """Close every connection with its running calls."""
        self._check_process()
        closing = [*self._open, *self._retired]
        self._open, self._retired = [], set()
        tasks = [asyncio.create_task(connection.close()) for connection in closing]
        if tasks:
            await asyncio.shield(asyncio.wait(tasks))

    def abandon(self) -> None:
        """Close the connections from any thread, without waiting."""
        if self._process == os.getpid() and self._loop is not None and not self._loop.is_closed():
            for connection in self._open:
                self._loop.call_soon_threadsafe(connection.stop)

    def _check_process(self) -> None:
        if self._process != os.getpid():
            _inherited.append((self._open, self._retired))
            self._begin()

    def _connection(self) -> Connection:
        """The connection with the fewest calls; a new one if all are busy."""
        usable = [connection for connection in self._open if connection.usable]
        gone = [connection for connection in self._open if not connection.usable]
        self._retired = {each for each in [*self._retired, *gone] if not each.done}
        best = min(usable, key=lambda connection: connection.calls, default=None)
        if best is None or (best.calls >= self._calls_each and len(usable) < self._most):
            if self._loop is None:
                self._loop = asyncio.get_running_loop()
            close_at_exit(self)
            best = Connection(self.name, self.config, self._timeout_s)
            usable.append(best)
        self._open = usable
        return best

    async def _tool_name(self, tool: str | None, connection: Connection) -> str:
        """The tool to call: the given one, the configured one, the service's name, or the only."""
        wanted = tool if tool is not None else self.config.tool
        name = self._known(wanted, connection)
        if name is None:  # it may have been added since
            await connection.list()
            name = self._known(wanted, connection)
        if name is not None:
            return name
        known = ", ".join(sorted(connection.tools))[:SHOWN] or "none"
        if wanted is not None:
            problem = f"has no tool {wanted!r}; its tools are {known}"
        elif connection.tools:
            problem = f"has several tools; set `tool` to one of them: {known}"
        else:
            problem = "has no tools"
        raise ServiceError(f"service {self.name!r} {problem}", service=self.name)

    def _known(self, wanted: str | None, connection: Connection) -> str | None:
        tools = connection.tools
        if wanted is None:
            wanted = next(iter(tools)) if len(tools) == 1 else self.name
        return wanted if wanted in tools else None

    def __reduce__(self) -> tuple[type[ToolService], tuple[str, McpService | SdkService]]:
        if isinstance(self.config, SdkService) and not hasattr(self.config.server, "command"):
            raise InvalidArgumentError(
                f"service {self.name!r} is a server in memory, which can't be pickled; pass the "
                "address or the command of a server"
            )
        return type(self), (self.name, self.config)
