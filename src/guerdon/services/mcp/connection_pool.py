"""The connections to one MCP service, and how many calls run at once."""

from __future__ import annotations

import asyncio
import atexit
import os
from collections.abc import Mapping
from typing import Any

from guerdon._background import run
from guerdon.errors import ServiceError, ServiceTimeoutError, ServiceUnavailableError
from guerdon.services.config import CallSettings
from guerdon.services.mcp.connections import Connection, Opener
from guerdon.services.mcp.tool_answers import answer_of
from guerdon.services.models.retrying import Backoff, retrying

__all__ = ["ConnectionPool"]

# What a forked process has of its parent's connections. It may not even be collected here: its
# end would be an end for the parent, with which it shares the sockets and the loop's own.
_inherited: list[object] = []


class ConnectionPool:
    """Spreads calls over connections, which are opened as they are needed.

    Everything but its making happens on the background loop. In a forked process it begins anew.

    Args:
        service: The service's name, for messages.
        open_session: Makes the SDK's client.
        settings: How it is called.
        tool: The tool that is called where a call names none.
        connections: How many connections there may be, at least 1. With 64 calls at a time one
            is as fast as several; with more, several are faster.
    """

    def __init__(
        self,
        service: str,
        open_session: Opener,
        settings: CallSettings,
        *,
        tool: str | None = None,
        connections: int = 1,
    ) -> None:
        self._service, self._open_session, self._tool = service, open_session, tool
        self._most = connections
        self._each = -(-settings.concurrency // connections)
        self._concurrency, self._timeout_s = settings.concurrency, settings.timeout_s
        self._backoff = Backoff(settings.retries)
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._turns = asyncio.Semaphore(self._concurrency)
        self._open: list[Connection] = []
        self._retired: set[Connection] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def call(self, tool: str | None, arguments: Mapping[str, Any]) -> dict[str, Any] | str:
        """Call a tool, when it is this call's turn; give what `answer_of` gives.

        Args:
            tool: Its name; None for the service's own.
            arguments: What it takes.

        Raises:
            ServiceError: It failed.
        """
        self._check_process()
        return await retrying(
            lambda: self._attempt(tool, arguments), self._backoff, passing=_may_pass
        )

    async def _attempt(
        self, tool: str | None, arguments: Mapping[str, Any]
    ) -> dict[str, Any] | str:
        async with self._turns:
            with self._connection() as connection:
                answers = connection.answers
                try:
                    async with asyncio.timeout(self._timeout_s) as limit:
                        await connection.open()
                        name = await self._name(tool, connection)
                        result = await connection.call(name, arguments)
                except TimeoutError as error:
                    if not limit.expired():
                        raise
                    if connection.answers == answers:  # nor to anybody else: it may hang for good
                        connection.retire()
                    raise self._too_slow(connection, self._timeout_s) from error
        return answer_of(self._service, name, result)

    async def tools(self) -> dict[str, Any]:
        """What the server offers, the SDK's descriptions by name.

        Raises:
            ServiceError: It can't be reached.
        """
        self._check_process()
        with self._connection() as connection:
            try:
                async with asyncio.timeout(self._timeout_s) as limit:
                    await connection.open()
                    await connection.list()
            except TimeoutError as error:
                if not limit.expired():
                    raise
                raise self._too_slow(connection, self._timeout_s) from error
            return connection.tools

    async def check(self, timeout_s: float, *, for_tool: bool) -> None:
        """See whether the service is there, on a connection that is closed again.

        Args:
            timeout_s: Seconds that opening it may take, over 0.
            for_tool: Whether its own tool has to be there, too.

        Raises:
            ServiceError: They aren't.
        """
        connection = Connection(self._service, self._open_session, timeout_s)
        try:
            await connection.open()
            if for_tool:
                async with asyncio.timeout(timeout_s) as limit:  # it may be asked again
                    await self._name(None, connection)
        except ServiceError as error:
            if said := connection.last_line:  # whoever starts it reads this, and no traceback
                error.args = (f"{error}; its program said at last: {said}",)
            raise
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise self._too_slow(connection, timeout_s) from error
        finally:
            await asyncio.shield(connection.close())

    async def close(self) -> None:
        """Close every connection, whatever runs on it."""
        self._check_process()
        closing = [*self._open, *self._retired]
        self._open, self._retired = [], set()
        atexit.unregister(self._at_exit)
        tasks = [asyncio.create_task(connection.close()) for connection in closing]
        if tasks:
            await asyncio.shield(asyncio.wait(tasks))

    def abandon(self) -> None:
        """Let the connections close by themselves; from any thread, and without waiting."""
        if self._process == os.getpid() and self._loop is not None and not self._loop.is_closed():
            atexit.unregister(self._at_exit)
            for connection in self._open:
                self._loop.call_soon_threadsafe(connection.stop)

    def _check_process(self) -> None:
        if self._process != os.getpid():
            _inherited.append((self._open, self._retired))
            self._begin()

    def _connection(self) -> Connection:
        """The one with the fewest calls; a new one where all have many."""
        usable = [connection for connection in self._open if connection.usable]
        gone = [connection for connection in self._open if not connection.usable]
        self._retired = {each for each in [*self._retired, *gone] if not each.done}
        best = min(usable, key=lambda connection: connection.calls, default=None)
        if best is None or (best.calls >= self._each and len(usable) < self._most):
            if self._loop is None:
                self._loop = asyncio.get_running_loop()
            if not self._open:
                atexit.unregister(self._at_exit)
                atexit.register(self._at_exit)
            best = Connection(self._service, self._open_session, self._timeout_s)
            usable.append(best)
        self._open = usable
        return best

    def _at_exit(self) -> None:
        if self._process == os.getpid():
            run(self.close())

    def _too_slow(self, connection: Connection, timeout_s: float) -> ServiceError:
        message = f"service {self._service!r} didn't answer within {timeout_s:g} s"
        return connection.with_stderr(ServiceTimeoutError(message, service=self._service))

    async def _name(self, tool: str | None, connection: Connection) -> str:
        """The tool that is meant."""
        wanted = tool if tool is not None else self._tool
        found = _meant(wanted, self._service, connection.tools)
        if found is None:  # it may have come since
            await connection.list()
            found = _meant(wanted, self._service, connection.tools)
        if found is not None:
            return found
        there = ", ".join(sorted(connection.tools)) or "none"
        if wanted is not None:
            said = f"has no tool {wanted!r}; there are {there}"
        elif connection.tools:
            said = f"has several tools; name one with `tool:`. There are {there}"
        else:
            said = "has no tools"
        raise ServiceError(f"service {self._service!r} {said}", service=self._service)


def _meant(wanted: str | None, service: str, tools: Mapping[str, Any]) -> str | None:
    """The tool that is called; where none is named, that of the service's name, or the only one."""
    if wanted is not None:
        return wanted if wanted in tools else None
    if service in tools:
        return service
    return next(iter(tools)) if len(tools) == 1 else None


def _may_pass(error: Exception) -> float | None:
    return 0.0 if isinstance(error, (ServiceUnavailableError, ServiceTimeoutError)) else None
