"""`SharedSession`: a session with an ID, which several requests and a WebSocket share.

A client creates it over ``POST /mcp``, calls its tools there, and may attach a WebSocket to it to
reset and step its environment. It ends when it is closed, or after `idle_timeout_s` without a call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from time import monotonic
from typing import Any, TypeVar

from guerdon._validation import shown
from guerdon.envs.pool.backend import start_task
from guerdon.envs.server.protocol import ErrorCode, ProtocolError
from guerdon.envs.server.sessions import (
    Connection,
    EnvSession,
    Session,
    SessionEnd,
    SessionManager,
)

T = TypeVar("T")

# The most calls of a session that wait for their turn.
MAX_WAITING = 64


class SharedSession(EnvSession):
    """A session with an ID. Its calls are made one at a time, in the order in which they arrive.

    Attributes:
        socket: The WebSocket that is attached to it, if any.
        is_closing: Whether it ends when that WebSocket does.
        calls: The call that runs, and those that wait for their turn.
    """

    def __init__(self, manager: SessionManager, forget: Callable[[SharedSession], None]) -> None:
        super().__init__(manager)
        self.socket: AttachedSession | None = None
        self.is_closing = False
        self._forget = forget
        self._end: SessionEnd | None = None
        self._stopping = asyncio.Event()
        self._turn = asyncio.Lock()
        self.calls: set[asyncio.Task[Any]] = set()

    async def run(self) -> None:
        """Keep the environment until the session is stopped and its calls have ended."""
        end = SessionEnd("server stopped")
        try:
            await self._stopping.wait()
            end = self._end or end
            working = {*self.calls, *([self.socket.task] if self.socket is not None else [])}
            if working:
                await asyncio.wait(working)
        finally:
            self._forget(self)
            await self.close_environment(end.reason)

    def stop(self, end: SessionEnd, *, now: bool = False) -> None:
        """End the session and its WebSocket: at once if `now`, else after its present call."""
        self._forget(self)
        self._end = self._end or end
        self._stopping.set()
        if now:
            for call in self.calls:
                call.cancel()
        if self.socket is not None:
            self.socket.stop(self._end, now=now)

    async def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Call a function after all earlier calls, and return its result.

        A call that has begun is completed even if its caller leaves: others use its environment.

        Raises:
            ProtocolError: The session has ended, or too many calls wait.
        """
        if self._end is not None:
            raise self._ended()
        if len(self.calls) > MAX_WAITING:
            message = f"{MAX_WAITING} calls of the session are waiting; try again later"
            raise ProtocolError(ErrorCode.EXECUTION_ERROR, message, status=503)
        call = start_task(self._call(function), self.calls)
        call.add_done_callback(_retrieve)
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            if call.cancelled():
                raise self._ended() from None
            raise

    async def _call(self, function: Callable[[], Awaitable[T]]) -> T:
        async with self._turn:
            if self._end is not None:
                raise self._ended()
            self.is_waiting = False
            try:
                return await function()
            finally:
                self.is_waiting, self.last_active = True, monotonic()

    def _ended(self) -> ProtocolError:
        reason = "" if self._end is None else f": {self._end.reason}"
        return ProtocolError(ErrorCode.SESSION_ERROR, f"the session has ended{reason}", status=410)

    def detach(self) -> None:
        """Go on without the WebSocket, unless the session was to end with it."""
        self.socket, self.last_active = None, monotonic()
        if self.is_closing:
            self.stop(SessionEnd("client closed"))


def _retrieve(call: asyncio.Task[Any]) -> None:
    if not call.cancelled():
        call.exception()  # of a call whose caller has left


class AttachedSession(Session):
    """A WebSocket that is attached to a `SharedSession`, whose environment it leaves when it ends.

    Args:
        manager: The sessions of the server.
        connection: The WebSocket.
        shared: The session.
    """

    def __init__(
        self, manager: SessionManager, connection: Connection, shared: SharedSession
    ) -> None:
        super().__init__(manager, connection)
        self.id, self.key, self.runner = shared.id, shared.key, shared.runner
        self._shared = shared
        shared.socket, shared.last_active = self, monotonic()

    async def open(self) -> None:
        """Do nothing: the environment is made."""

    async def configure(self, change: Any) -> dict[str, Any]:
        """Return the session's reward configuration, after a change of it."""
        return await self._shared.configure(change)

    async def close_environment(self, reason: str) -> None:
        """Leave the environment to the session."""
        self._shared.detach()

    async def _answer(self, text: str | bytes) -> str:
        return await self._shared.call(partial(super()._answer, text))


class SharedSessions:
    """The sessions of a server that have an ID.

    Args:
        manager: All sessions of the server, whose number it limits.
    """

    def __init__(self, manager: SessionManager) -> None:
        self._manager = manager
        self._sessions: dict[str, SharedSession] = {}
        self._running: set[asyncio.Task[Any]] = set()

    async def create(
        self, begin: Callable[[SharedSession], Awaitable[Any]] | None = None
    ) -> SharedSession:
        """Make a session with an environment.

        Args:
            begin: Called with it before it has its ID; by default the client resets it.

        Raises:
            ProtocolError: All sessions are taken, the environment can't be made, or `begin` failed.
        """
        self._manager.check_capacity()
        session = SharedSession(self._manager, self._forget)
        self._manager.add(session)
        session.task = start_task(session.run(), self._running)

        async def opened() -> None:
            await session.open()
            if begin is not None:
                await begin(session)

        try:
            await session.call(opened)
        except BaseException as error:
            session.stop(SessionEnd("factory failed"))
            if isinstance(error, SessionEnd) and error.error is not None:
                raise error.error from error
            raise
        self._sessions[session.key] = session
        return session

    def find(self, key: object) -> SharedSession | None:
        """Return the session with an ID, if there is one."""
        return self._sessions.get(key) if isinstance(key, str) else None

    async def close(self, session: SharedSession) -> bool:
        """End a session, and return whether it has ended: not while a WebSocket is attached."""
        if session.socket is not None:
            session.is_closing = True
            return False
        session.stop(SessionEnd("client closed"))
        await asyncio.wait({session.task})
        return True

    async def serve(self, connection: Connection, key: str) -> None:
        """Attach a WebSocket to the session with an ID, until the WebSocket ends."""

        def begin() -> Session:
            session = self.find(key)
            if session is None:
                raise ProtocolError(ErrorCode.SESSION_ERROR, f"Unknown session_id: {shown(key)}")
            if session.socket is not None:
                message = f"Session {key} already has an attached WebSocket"
                raise ProtocolError(ErrorCode.SESSION_ERROR, message)
            return AttachedSession(self._manager, connection, session)

        await self._manager.serve(connection, begin)

    def _forget(self, session: SharedSession) -> None:
        self._sessions.pop(session.key, None)
