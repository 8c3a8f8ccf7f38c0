"""`WebSockets`, the application of ``/ws``; `BatchConnection` has many sessions on one of them.

``docs/batch-protocol.md`` describes the sub-protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from time import monotonic
from typing import Any

from pydantic import BaseModel
from starlette.datastructures import QueryParams
from starlette.types import Receive, Scope, Send

from guerdon._validation import shown
from guerdon.envs.runner import EnvCall
from guerdon.envs.server.monitoring import log
from guerdon.envs.server.protocol import (
    ErrorCode,
    ProtocolError,
    ResetRequest,
    error_data,
    plain_data,
    unsendable,
)
from guerdon.envs.server.sessions import Connection, EnvSession, SessionEnd, SessionManager
from guerdon.envs.server.shared_sessions import SharedSessions
from guerdon.envs.wire import UNSENDABLE, Codec, codecs, frames

# Seconds for which answers are gathered into one frame while other calls are running.
GATHER_S = 0.001

KINDS = frozenset(("reset", "step", "state", "config", "close"))


class WebSockets:
    """The ASGI application of the sessions' WebSockets: one session on each, or batches of many.

    Args:
        manager: The sessions.
        shared: Those that have an ID, which ``?session_id=`` attaches a WebSocket to.
    """

    def __init__(self, manager: SessionManager, shared: SharedSessions | None = None) -> None:
        self._manager = manager
        self._shared = shared or SharedSessions(manager)
        self._codecs = codecs()

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve a WebSocket, in batches if the client offers a sub-protocol that is known."""
        offered = scope.get("subprotocols", ())
        chosen = next((each for each in offered if each in self._codecs), None)
        key = QueryParams(scope.get("query_string", b"")).get("session_id")
        if chosen is None and not key:
            return self._manager(scope, receive, send)
        connection = Connection(receive, send, self._manager.limits.send_timeout_s)
        if chosen is None:
            return self._shared.serve(connection, str(key))
        return BatchConnection(self._manager, connection, self._codecs[chosen]).run()


class BatchSession(EnvSession):
    """One of the sessions of a `BatchConnection`.

    Attributes:
        number: Its number, which the client has chosen.
        opened: Whether its environment was made.
        is_busy: Whether a call of it is running.
        call: The task of that call; None for a step.
        encode_observation: Returns the answer with an observation.
    """

    def __init__(self, manager: SessionManager, connection: BatchConnection, number: int) -> None:
        super().__init__(manager)
        self.number = number
        self.opened = False
        self.is_busy = False
        self.call: asyncio.Task[None] | None = None
        self.task = connection.task
        self.encode_observation = partial(connection.encode, number, "observation")
        self._connection = connection
        self._stopping: SessionEnd | None = None

    def stop(self, end: SessionEnd, *, now: bool = False) -> None:
        """End the session: at once if it is waiting or `now`, else after its answer."""
        if now or not (self.is_busy and self.opened):
            self._connection.end(self, end)
        else:
            self._stopping = end

    def wait(self) -> None:
        """Wait for the next call, unless the session was stopped meanwhile."""
        self.is_busy, self.call = False, None
        self.is_waiting, self.last_active = True, monotonic()
        if self._stopping is not None:
            self._connection.end(self, self._stopping)


class BatchConnection:
    """A WebSocket with many sessions: a frame has calls or answers of several of them.

    Args:
        manager: The sessions of the server.
        connection: The WebSocket.
        codec: The codec of the sub-protocol that was chosen.

    Attributes:
        task: The task that serves it.
    """

    def __init__(self, manager: SessionManager, connection: Connection, codec: Codec) -> None:
        self.task: Any = asyncio.current_task()
        self._manager = manager
        self._threads = manager.threads
        self._connection = connection
        self._codec = codec
        self._max_calls = 2 * manager.limits.max_sessions  # each may be closed and replaced
        self._sessions: dict[int, BatchSession] = {}
        self._busy = 0  # how many calls are running
        self._closing: set[asyncio.Task[Any]] = set()
        self._answers: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._has_answers = asyncio.Event()
        self._is_read = asyncio.Event()  # cleared while a frame waits for the client to read
        self._is_read.set()

    async def run(self) -> None:
        """Serve the connection until it ends."""
        end = SessionEnd("server stopped", close_code=0)
        serving: list[asyncio.Task[None]] = []
        try:
            await self._connection.accept(subprotocol=self._codec.name)
            self._announce()
            serving = [asyncio.ensure_future(each) for each in (self._receive(), self._send())]
            done, _ = await asyncio.wait(serving, return_when=asyncio.FIRST_COMPLETED)
            done.pop().result()
        except SessionEnd as reached:
            end = reached
        except Exception as failure:
            end = SessionEnd("server error", close_code=1011)
            log("connection failed", level="error", error=repr(failure), trace=failure)
        finally:
            for task in serving:
                task.cancel()
            for session in list(self._sessions.values()):
                self.end(session, end)
            await asyncio.gather(*serving, *self._closing, return_exceptions=True)
            if end.close_code:
                await self._connection.close(end.close_code, end.reason)

    def _announce(self) -> None:
        manager, limits = self._manager, self._manager.limits
        taken = len(manager.sessions) + manager.calls
        ready = {
            "free_sessions": max(limits.max_sessions - taken, 0),
            "max_calls": self._max_calls,
            "max_message_bytes": limits.max_message_bytes,
        }
        self._add_answer(self._codec.encode(None, "ready", ready))

    # Calls --------------------------------------------------------------------------------------

    async def _receive(self) -> None:
        """Start the calls of one frame after another, as long as the client reads the answers."""
        limit = self._manager.limits.idle_timeout_s
        while True:
            await self._is_read.wait()
            try:
                async with asyncio.timeout(limit):
                    frame = await self._connection.receive()
            except TimeoutError:
                if not self._sessions:  # else each session has its own limit
                    raise SessionEnd("idle") from None
                continue
            try:
                calls = self._parse(frame)
            except ProtocolError as error:
                self._manager.count_refusal(error)
                self._add_answer(self._error(None, error))
                continue
            for number, kind, *data in calls:
                self._start(number, kind, data[0] if data else None)

    def _parse(self, frame: str | bytes) -> list[Any]:
        """Return the calls of a frame.

        Raises:
            ProtocolError: One is invalid; then none is made.
        """
        try:
            calls = self._codec.decode(frame)
        except ValueError as error:
            what = f"not a frame of {self._codec.name}: {error}"
            raise ProtocolError(ErrorCode.INVALID_JSON, what) from None
        if not isinstance(calls, list) or len(calls) > self._max_calls:
            raise _invalid(f"a frame must be a list of at most {self._max_calls} calls")
        called, sessions = set(), len(self._sessions)
        for call in calls:
            number = _check_call(call)
            if call[1] == "close":
                continue
            session = self._sessions.get(number)
            if number in called or (session is not None and session.is_busy):
                raise _invalid(f"session {number} is in a call; it has one at a time")
            called.add(number)
            sessions += session is None
        if sessions > self._max_calls:
            raise _invalid(f"a connection must have at most {self._max_calls} sessions")
        size, limit = len(frame), self._manager.limits.max_config_bytes
        if size > limit and any(call[1] == "config" for call in calls):
            raise _invalid(f"a frame with a change of the configuration has at most {limit} bytes")
        return calls

    def _start(self, number: int, kind: str, data: Any) -> None:
        session = self._sessions.get(number)
        if kind == "close":
            if session is not None:
                self.end(session, SessionEnd("client closed"))
            return
        if session is None:
            session = self._sessions[number] = BatchSession(self._manager, self, number)
        session.is_busy, session.is_waiting = True, False
        self._busy += 1
        if kind == "step" and session.opened:
            self._start_step(session, data)
        else:
            session.call = asyncio.ensure_future(self._play(session, kind, data))

    def _start_step(self, session: BatchSession, data: Any) -> None:
        manager = self._manager
        try:
            action = manager.validated(manager.action_type, data, "the action")
        except ProtocolError as error:
            manager.count_refusal(error)
            self._finish(session, self._error(session.number, error))
        else:
            session.runner.start_step(action, partial(self._stepped, session))

    def _stepped(self, session: BatchSession, call: EnvCall) -> None:
        try:
            content = self._manager.stepped(
                call.result,
                call.error,
                call.submitted_at,
                session=session.id,
                encode=session.encode_observation,
            )
        except ProtocolError as error:
            content = self._error(session.number, error)
        self._finish(session, content)

    async def _play(self, session: BatchSession, kind: str, data: Any) -> None:
        """Make a call that is not a step of an environment that was made."""
        try:
            if not session.opened:
                await self._open(session)
            content = await self._content(session, kind, data)
        except ProtocolError as error:
            self._manager.count_refusal(error)
            content = self._error(session.number, error)
        except SessionEnd as end:
            self.end(session, end)
            return
        except Exception as failure:
            text = repr(failure)
            log("session failed", level="error", session=session.id, error=text, trace=failure)
            refusal = ProtocolError(ErrorCode.SESSION_ERROR, "the server failed")
            self.end(session, SessionEnd("server error", refusal))
            return
        self._finish(session, content)

    async def _open(self, session: BatchSession) -> None:
        """Make the environment of a new session.

        Raises:
            SessionEnd: All sessions are taken, or the environment can't be made.
        """
        manager = self._manager
        while self._closing and manager.is_full:  # sessions that were closed have their places yet
            await asyncio.wait(self._closing, return_when=asyncio.FIRST_COMPLETED)
        try:
            manager.check_capacity()
        except ProtocolError as error:
            raise SessionEnd("capacity", error) from error
        manager.add(session)
        await session.open()
        session.opened = True

    async def _content(self, session: BatchSession, kind: str, data: Any) -> bytes:
        manager, number = self._manager, session.number
        if kind == "config":
            return self._codec.encode(number, kind, plain_data(await session.configure(data)))
        answer = "state" if kind == "state" else "observation"
        known: Any = {"session": session.id, "encode": partial(self.encode, number, answer)}
        if kind == "step":
            action = manager.validated(manager.action_type, data, "the action")
            return await manager.step(session.runner, action, **known)
        if kind == "reset":
            request = manager.validated(ResetRequest, {} if data is None else data, "reset's data")
            return await manager.reset(session.runner, request, **known, is_lenient=False)
        return await manager.state(session.runner, **known)

    def end(self, session: BatchSession, end: SessionEnd) -> None:
        """End a session: abandon its call, send its error, and close its environment."""
        if self._sessions.get(session.number) is not session:
            return
        del self._sessions[session.number]
        if session.is_busy:
            self._busy -= 1
        if session.call is not None:
            session.call.cancel()
        if session in self._manager.sessions:
            closing = asyncio.ensure_future(self._close(session, end.reason))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        if end.error is not None:
            self._add_answer(self._error(session.number, end.error))
        else:
            self._gather()

    async def _close(self, session: BatchSession, reason: str) -> None:
        if session.call is not None:
            await asyncio.wait({session.call})
        await session.close_environment(reason)

    # Answers ------------------------------------------------------------------------------------

    def encode(self, number: int, kind: str, model: BaseModel) -> bytes:
        """Return an answer; raises `InvalidObservationError` if it can't be encoded."""
        try:
            return self._codec.encode(number, kind, model)
        except UNSENDABLE as error:
            raise unsendable(model, error) from error

    def _error(self, number: int | None, error: ProtocolError) -> bytes:
        return self._codec.encode(number, "error", plain_data(error_data(error)))

    def _finish(self, session: BatchSession, answer: bytes) -> None:
        """Send the answer of a call, unless its session has ended."""
        if self._sessions.get(session.number) is session:
            self._busy -= 1
            self._answers.append(answer)
            session.wait()
            self._gather()

    def _add_answer(self, answer: bytes) -> None:
        self._answers.append(answer)
        self._gather()

    def _gather(self) -> None:
        """Send the answers now if no call is running, else soon."""
        if not self._busy:
            self._flush()
        elif self._timer is None:
            self._timer = self._threads.loop.call_later(GATHER_S, self._flush)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._has_answers.set()

    async def _send(self) -> None:
        """Send frames of answers, each once the client has read the one before."""
        manager, limit = self._manager, self._manager.limits.send_timeout_s
        while True:
            await self._has_answers.wait()
            self._has_answers.clear()
            answers, self._answers = self._answers, []
            self._is_read.clear()
            for frame in frames(self._codec, answers):
                try:
                    async with asyncio.timeout(limit):
                        await self._connection.send(frame)
                except TimeoutError:
                    raise SessionEnd("client does not read", close_code=0) from None
            self._is_read.set()
            if manager.draining and not self._sessions:
                raise SessionEnd("server stopping", close_code=1001)


def _invalid(message: str) -> ProtocolError:
    return ProtocolError(ErrorCode.VALIDATION_ERROR, message)


def _check_call(call: Any) -> int:
    """Return the session's number of a call.

    Raises:
        ProtocolError: It is not a call.
    """
    if not isinstance(call, list) or len(call) not in (2, 3):
        raise _invalid(f"a call must be [session, kind, data], got {shown(call)}")
    number, kind = call[:2]
    if type(number) is not int or not 0 <= number < 2**53:
        raise _invalid(f"a session must be an integer in [0, 2^53), got {shown(number)}")
    if not isinstance(kind, str) or kind not in KINDS:
        known = ", ".join(sorted(KINDS))
        reason = f"the kind of a call must be one of {known}, got {shown(kind)}"
        raise ProtocolError(ErrorCode.UNKNOWN_TYPE, reason)
    return number
