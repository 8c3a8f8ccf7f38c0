"""`Session`: one client's WebSocket and its environment, from beginning to end."""

from __future__ import annotations

import asyncio
import itertools
import json
from enum import Enum
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from guerdon._validation import field_errors, summarize
from guerdon.envs.runner import EnvRunner
from guerdon.envs.server.configuring import refusal
from guerdon.envs.server.connection import ClientGoneError, Connection
from guerdon.envs.server.logs import log
from guerdon.envs.server.mcp import answer as mcp_answer
from guerdon.envs.server.messages import (
    ErrorCode,
    Problem,
    Request,
    ResetRequest,
    error_text,
    observation_json,
    read,
    state_json,
)
from guerdon.errors import RewardConfigError
from guerdon.rubrics.failure import say_failure

if TYPE_CHECKING:
    from guerdon.config.live.live import LiveReward
    from guerdon.envs.server.hub import Hub

__all__ = ["Session", "SessionState"]


class SessionState(Enum):
    """Where a session stands.

    ::

        OPENING ──▶ READY ◀──▶ RUNNING
           │          │           │
           └──────────┴─────┬─────┘
                            ▼
                         CLOSING ──▶ CLOSED
    """

    OPENING = "opening"  # its environment is being made
    READY = "ready"  # waiting for a message
    RUNNING = "running"  # answering one
    CLOSING = "closing"  # its environment is being closed
    CLOSED = "closed"


_NEXT = {
    SessionState.OPENING: {SessionState.READY, SessionState.CLOSING},
    SessionState.READY: {SessionState.RUNNING, SessionState.CLOSING},
    SessionState.RUNNING: {SessionState.READY, SessionState.CLOSING},
    SessionState.CLOSING: {SessionState.CLOSED},
    SessionState.CLOSED: set(),
}

# Seconds that an answer may take before the client is watched meanwhile: it may leave.
PATIENCE = 0.2

_numbers = itertools.count(1)


class _End(Exception):
    """The session ends.

    Attributes:
        reason: Why, for the log.
        problem: What the client is told first, if anything.
        close_code: That of the WebSocket.
    """

    def __init__(self, reason: str, problem: Problem | None = None, close_code: int = 1000) -> None:
        super().__init__(reason)
        self.reason = reason
        self.problem = problem
        self.close_code = close_code


class Session:
    """One client's WebSocket and its environment.

    Attributes:
        id: Its number, for the log.
        state: Where it stands.
        live: What its reward is configured with, where it has changed that for itself alone.
        last_active: When it last had something to do, on the monotonic clock.
    """

    __slots__ = (
        "_connection", "_hub", "_stopped", "_task", "id", "last_active", "live", "runner", "state",
    )  # fmt: skip

    def __init__(self, hub: Hub, connection: Connection) -> None:
        self.id = next(_numbers)
        self.state = SessionState.OPENING
        self.last_active = monotonic()
        self.live: LiveReward | None = None
        self.runner = EnvRunner(
            hub.factory,
            hub.workers,
            timeout_s=hub.limits.step_timeout_s,
            configuration=lambda: self.live or hub.live,
        )
        self._hub = hub
        self._connection = connection
        self._task: asyncio.Task[Any] | None = None
        self._stopped: _End | None = None

    def stop(
        self, reason: str, problem: Problem | None, close_code: int, *, now: bool = False
    ) -> None:
        """End the session from outside: where it waits at once, else after its answer, or `now`."""
        end = _End(reason, problem, close_code)
        waiting = self.state in (SessionState.OPENING, SessionState.READY)
        if now or (waiting and self._stopped is None):
            self._interrupt(end)
        elif self._stopped is None:
            self._stopped = end

    async def run(self) -> None:
        """Live, from the handshake to the end. What goes wrong in it ends with it."""
        self._task = asyncio.current_task()
        end = _End("server error", Problem(ErrorCode.SESSION_ERROR, "the server failed"))
        try:
            await self._live()
        except _End as reached:
            end = reached
        except ClientGoneError as gone:
            end = _End(gone.reason, close_code=0)
        except asyncio.CancelledError:
            if self._stopped is None or self._task is None or self._task.uncancel() > 0:
                end = _End("server stopped", close_code=0)
                raise
            end = self._stopped
        except Exception as error:
            log("session failed", level="error", session=self.id, error=repr(error), trace=error)
        finally:
            await self._close(end)

    async def _live(self) -> None:
        hub, connection = self._hub, self._connection
        with _Watch(self):
            try:
                await self.runner.open()
            except Exception as error:
                said = say_failure(error, "the environment can't be made")
                hub.failed("factory", said, session=self.id)
                raise _End("factory failed", Problem(ErrorCode.FACTORY_ERROR, said)) from error
        self._to(SessionState.READY)
        while True:
            text = await connection.receive()
            self.last_active = monotonic()
            self._to(SessionState.RUNNING)
            answer = await self._answer(text)
            if answer is not None:
                await connection.send(answer)
            self._to(SessionState.READY)
            self.last_active = monotonic()
            if self._stopped is not None:
                raise self._stopped

    async def _answer(self, text: str | None) -> str | None:
        try:
            if text is None:
                raise Problem(ErrorCode.INVALID_JSON, "a message is a text frame, not a binary one")
            request = read(text, self._hub.limits.max_config_bytes)
            if request.type == "step":
                return await self._step(request.data)
            return await self._other(request)
        except Problem as problem:
            if problem.code is not ErrorCode.EXECUTION_ERROR:  # which has been counted
                self._hub.metrics.count(self._hub.metrics.failures, problem.code.value.lower())
            return error_text(problem.code, problem.message, problem.more)

    async def _step(self, data: Any) -> str:
        hub = self._hub
        try:
            action = hub.action_type.model_validate(data)
        except ValidationError as invalid:
            raise _invalid("the action", invalid) from None
        except Exception as error:  # of a validator that the author wrote
            raise self._failed("the action", error) from error
        start = perf_counter()
        with _Watch(self):
            try:
                observation = await self.runner.step(action)
                seconds = perf_counter() - start
                text = observation_json(observation)
            except Exception as error:
                hub.metrics.step(perf_counter() - start, None, {})
                raise self._failed("step", error) from error
        hub.count_step(observation, seconds, self.id)
        return f'{{"type":"observation","data":{text.decode()}}}'

    async def _other(self, request: Request) -> str | None:
        kind, data = request
        if kind == "close":
            raise _End("client closed")
        if kind == "mcp":
            return json.dumps({"type": "mcp", "data": mcp_answer(data)})
        if kind == "config":
            return await self._config(data)
        with _Watch(self):
            try:
                if kind == "state":
                    state = state_json(await self.runner.state())
                    return f'{{"type":"state","data":{state.decode()}}}'
                asked = ResetRequest.model_validate({} if data is None else data)
                self._hub.metrics.count(self._hub.metrics.calls, "reset")
                first = await self.runner.reset(asked.seed, asked.episode_id, asked.model_extra)
                text = observation_json(first)
            except ValidationError as invalid:
                if invalid.title == ResetRequest.__name__:
                    raise _invalid("reset's data", invalid) from None
                raise self._failed(kind, invalid) from invalid
            except Exception as error:
                raise self._failed(kind, error) from error
        return f'{{"type":"observation","data":{text.decode()}}}'

    async def _config(self, data: Any) -> str:
        """Tell what the reward is configured with, or change it for this session alone."""
        common = await self._hub.look()
        if data is None:
            told: Any = await asyncio.to_thread((self.live or common).told)
        else:
            live = self.live or common.fork()
            try:
                by = f"session {self.id}"
                told = await asyncio.to_thread(live.update, data, by=by)
            except RewardConfigError as error:
                raise refusal(error) from error
            self.live = live
            if told["change"] is not None:
                common.audit.append({**told["change"], "session": self.id})
        return json.dumps({"type": "config", "data": told}, allow_nan=False, default=str)

    def _failed(self, what: str, error: Exception) -> Problem:
        said = say_failure(error, what)
        self._hub.failed(what, said, session=self.id, trace=error)
        return Problem(ErrorCode.EXECUTION_ERROR, said)

    async def _close(self, end: _End) -> None:
        self._to(SessionState.CLOSING)
        hub = self._hub
        try:
            if end.close_code:
                problem = end.problem
                if problem is not None:
                    await self._tell(problem)
                await self._connection.close(end.close_code, end.reason)
        finally:
            try:
                await asyncio.shield(self.runner.close(hub.limits.close_timeout_s))
            finally:
                self._to(SessionState.CLOSED)
                hub.leave(self, end.reason)

    async def _tell(self, problem: Problem) -> None:
        try:
            await self._connection.send(error_text(problem.code, problem.message, problem.more))
        except ClientGoneError:
            return  # there is nobody to tell

    def _to(self, state: SessionState) -> None:
        if state not in _NEXT[self.state]:
            raise RuntimeError(f"a session can't go from {self.state.value} to {state.value}")
        self.state = state

    def _interrupt(self, end: _End) -> None:
        self._stopped = end
        if self._task is not None:
            self._task.cancel()


def _invalid(what: str, error: ValidationError) -> Problem:
    said = f"{what} is not valid: {summarize(error)}"
    return Problem(ErrorCode.VALIDATION_ERROR, said, errors=field_errors(error))


class _Watch:
    """Ends a session whose client leaves while its environment works."""

    __slots__ = ("_session", "_since", "_watching")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._watching: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        self._since = monotonic()
        self._session._hub.workers.watch(self)

    def __exit__(self, *raised: object) -> None:
        self._session._hub.workers.alarms.discard(self)
        if self._watching is not None:
            self._watching.cancel()

    def ring(self, now: float) -> None:
        """Begin to watch the client, where its answer takes that long."""
        if self._watching is None and now - self._since > PATIENCE:
            self._watching = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        try:
            await self._session._connection.until_gone()
        except ClientGoneError as gone:
            self._session._interrupt(_End(gone.reason, close_code=0))
