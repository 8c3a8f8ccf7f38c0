"""`SessionManager`: the sessions of a server, each a WebSocket with an environment of its own."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools
import json
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import quote
from uuid import uuid4

from pydantic import BaseModel, ValidationError
from starlette.datastructures import QueryParams
from starlette.types import Receive, Scope, Send

from guerdon._validation import check_integer
from guerdon.config.pipeline import RewardPipeline
from guerdon.config.runtime import RewardRuntime
from guerdon.envs.configured import PipelineFactory, refused_by_environment, with_pipeline
from guerdon.envs.environment import ERROR, HANDLED
from guerdon.envs.runner import EnvAdapter, EnvRunner, EnvThreads, ResetArgumentError
from guerdon.envs.server.limits import ServerLimits
from guerdon.envs.server.mcp import ToolMethods, answer_content, socket_methods
from guerdon.envs.server.monitoring import Metrics, log
from guerdon.envs.server.protocol import (
    ErrorCode,
    ProtocolError,
    ResetRequest,
    config_error,
    error_frame,
    observation_json,
    parse_message,
    state_json,
    validation_error,
)
from guerdon.envs.server.workers import Runner, SessionWorkers
from guerdon.envs.wire import NAME_HEADER
from guerdon.errors import (
    EnvTimeoutError,
    EpisodeError,
    InvalidArgumentError,
    RewardConfigError,
)
from guerdon.rubrics.failure import describe_failure
from guerdon.types.action import Action
from guerdon.types.tool_calls import CallToolAction, Tool, ToolOutcome

ModelT = TypeVar("ModelT", bound=BaseModel)

# The WebSocket code of a connection that is closed because of a message's size.
MESSAGE_TOO_BIG = 1009

# The most characters of an environment's name in a header, whose size clients limit.
MAX_NAME = 200

# Messages that are kept while an answer is computed; clients of the protocol send none.
MAX_EARLY = 16

# Seconds after which the connection is watched during an answer: the client may leave.
WATCH_AFTER_S = 0.2

_numbers = itertools.count(1)


class SessionEnd(Exception):
    """A session, or the connection to its client, ends.

    Attributes:
        reason: The reason, for logs and metrics.
        error: The error that the client is sent first, if any.
        close_code: The WebSocket's close code; 0 if the client is gone.
    """

    def __init__(
        self, reason: str, error: ProtocolError | None = None, *, close_code: int = 1000
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.error = error
        self.close_code = close_code


class Connection:
    """One WebSocket.

    Args:
        receive: Returns the next ASGI event.
        send: Takes an ASGI event.
        close_timeout_s: Seconds that a client may take to read the last messages.
        error_text: Returns the message for an error that closes the connection.
    """

    def __init__(
        self,
        receive: Receive,
        send: Send,
        close_timeout_s: float,
        *,
        error_text: Callable[[ProtocolError], str] = error_frame,
    ) -> None:
        self._receive = receive
        self._send = send
        self._close_timeout_s = close_timeout_s
        self._error_text = error_text
        self._early: deque[MutableMapping[str, Any]] = deque()

    async def accept(self, *, subprotocol: str | None = None, name: str | None = None) -> None:
        """Accept the handshake.

        Args:
            subprotocol: The sub-protocol that was chosen.
            name: The environment's name, which the client gets with the answer.

        Raises:
            SessionEnd: The client has left.
        """
        await self._receive()
        event: dict[str, Any] = {"type": "websocket.accept"}
        if subprotocol is not None:
            event["subprotocol"] = subprotocol
        if name is not None and len(name) <= MAX_NAME:
            event["headers"] = [(NAME_HEADER.encode(), quote(name).encode())]
        await self._emit(event)

    async def receive(self) -> str | bytes:
        """Return the next message: a string, or bytes for a binary one.

        Raises:
            SessionEnd: The client has left.
        """
        event = self._early.popleft() if self._early else await self._receive()
        if event["type"] == "websocket.disconnect":
            raise _gone(event)
        text = event.get("text")
        message: str | bytes = event["bytes"] if text is None else text
        return message

    async def wait_until_gone(self) -> None:
        """Keep up to `MAX_EARLY` messages for later until the client leaves.

        Raises:
            SessionEnd: The client has left.
        """
        while len(self._early) < MAX_EARLY:
            event = await self._receive()
            if event["type"] == "websocket.disconnect":
                raise _gone(event)
            self._early.append(event)

    async def send(self, message: str | bytes) -> None:
        """Send a message; bytes in a binary frame.

        Raises:
            SessionEnd: The client has left.
        """
        kind = "text" if isinstance(message, str) else "bytes"
        await self._emit({"type": "websocket.send", kind: message})

    async def close(self, code: int, reason: str, error: ProtocolError | None = None) -> None:
        """Close the connection, after an error if there is one, unless the client has left."""
        with contextlib.suppress(SessionEnd, TimeoutError):
            async with asyncio.timeout(self._close_timeout_s):
                if error is not None:
                    await self.send(self._error_text(error))
                await self._emit({"type": "websocket.close", "code": code, "reason": reason})

    async def _emit(self, event: MutableMapping[str, Any]) -> None:
        try:
            await self._send(event)
        # ASGI servers raise OSError if the client has left; uvicorn raises RuntimeError if it has
        # closed the connection itself, and uvloop if the transport is closed.
        except (OSError, RuntimeError):
            raise _gone({}) from None


def _gone(event: Mapping[str, Any]) -> SessionEnd:
    """Return the end of a session whose client has left, or whose frames were refused."""
    reason = "message too large" if event.get("code") == MESSAGE_TOO_BIG else "client left"
    return SessionEnd(reason, close_code=0)


class SessionManager:
    """The sessions of a server and its calls without one: their limits, counts and end.

    It is the ASGI application of the sessions' WebSockets. Its methods are called in one event
    loop.

    Args:
        factory: Makes an environment.
        action_type: The class of actions.
        limits: The server's limits.
        pipeline: Makes the rubrics of the environments, in place of their own.
        fail_on_reward_error: Whether a step whose reward failed is an error.
        processes: How many processes the environments run in; with 1, in this one.
        name: The environment's name, in place of that of its metadata.

    Attributes:
        name: The same, as far as it was given.
        runtime: The reward configuration of all sessions; None before `configuration` was called.
        metadata: The environment's metadata; empty before that.
        tasks: The environment's public tasks by split; likewise.
        metrics: What the server counts.
        sessions: The open sessions.
        calls: How many calls over HTTP and WebSockets of JSON-RPC are running.
        draining: Whether the server is shutting down.
    """

    def __init__(
        self,
        factory: Callable[[], Any],
        action_type: type[Action],
        limits: ServerLimits,
        *,
        pipeline: RewardPipeline | None = None,
        fail_on_reward_error: bool = False,
        processes: int = 1,
        name: str | None = None,
    ) -> None:
        self.name = name
        self.fail_on_reward_error = fail_on_reward_error
        self._workers: SessionWorkers | None = None
        if check_integer("processes", processes, low=1) > 1:
            made = factory if pipeline is None else PipelineFactory(factory, pipeline)
            self._workers = SessionWorkers(made, processes, limits, self._observe)
        self.factory = factory if pipeline is None else with_pipeline(factory, pipeline)
        self.action_type = action_type
        self.limits = limits
        self.runtime: RewardRuntime | None = None
        self.metadata: dict[str, Any] = {}
        self.tasks: Mapping[str, Sequence[Any]] = {}
        self.metrics = Metrics()
        self.sessions: set[EnvSession] = set()
        self.metrics.sessions.set_function(lambda: len(self.sessions))
        self.metrics.hanging.set_function(
            lambda: sum(each.stuck for each in (self._threads, self._workers) if each is not None)
        )
        self.calls = 0
        self.draining = False
        self._pipeline = pipeline
        self._threads: EnvThreads | None = None
        self._timer: asyncio.TimerHandle | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> Any:
        """Check the environment, and end the sessions and the threads on exit."""
        self.close()
        self.draining = False
        await self.configuration()
        try:
            if self._workers is not None:
                await self._workers.start()
            yield
        finally:
            await self.drain(grace_s=1.0)
            if self._workers is not None:
                await self._workers.close()
            self.close()
            if self._pipeline is not None:
                await self._pipeline.close_async()

    # Environments -------------------------------------------------------------------------------

    @property
    def threads(self) -> EnvThreads:
        """The threads of the running event loop, in which environments run."""
        threads = self._threads
        # Without a lifespan an app may be called in one event loop after another.
        if threads is None or threads.loop is not asyncio.get_running_loop():
            threads = self._threads = EnvThreads(self.limits.max_threads)
        return threads

    def runner(
        self,
        configuration: Callable[[], RewardRuntime | None] | None = None,
        *,
        name: str = "a call over HTTP",
    ) -> Runner:
        """Return a runner of a new environment; the name is for error messages."""
        configuration = configuration or (lambda: self.runtime)
        if self._workers is not None:
            return self._workers.runner(configuration)
        return self._runner_here(configuration, name)

    def _runner_here(
        self, configuration: Callable[[], RewardRuntime | None], name: str
    ) -> EnvRunner:
        return EnvRunner(
            self.factory,
            self.threads,
            timeout_s=self.limits.step_timeout_s,
            configuration=configuration,
            name=name,
        )

    def _observe(self, means: dict[str, float]) -> None:
        if self.runtime is not None:
            self.runtime.observe(means)

    @contextlib.asynccontextmanager
    async def environment(self, *, is_here: bool = False) -> Any:
        """Make an environment for one call, and close it.

        Args:
            is_here: Whether it is made in this process, to be inspected.
        """
        runner: Runner = self.runner()
        if is_here:
            runner = self._runner_here(lambda: self.runtime, "the server")
        try:
            await runner.open()
            yield runner
        finally:
            await runner.close(self.limits.close_timeout_s)

    async def configuration(self) -> RewardRuntime:
        """Return the reward configuration of all sessions; first make an environment to see it.

        Raises:
            ServiceUnavailableError: A service of the reward can't be reached.
            Exception: The environment can't be made, or has no rubric.
        """
        if self.runtime is None:
            if self._pipeline is not None:
                await asyncio.to_thread(self._pipeline.make)  # reports errors of the file first
                await self._pipeline.check_services_async()
            async with self.environment(is_here=True) as runner:
                seen = await runner.call(self._inspect, "inspecting the environment")
            if self.runtime is None:  # a concurrent call may have been faster
                metadata, self.tasks, self.runtime = seen
                self.metadata = {**metadata, "name": self.name or metadata["name"]}
        return self.runtime

    def _inspect(self, adapter: EnvAdapter) -> tuple[Any, Any, RewardRuntime]:
        environment = adapter.environment
        config = self._pipeline.config if self._pipeline is not None else None
        runtime = environment._runtime
        own = environment._own_config()
        if runtime is None:
            rubric = environment.rubric
            with contextlib.suppress(Exception):  # if it can't be copied, it is its own prototype
                rubric = copy.deepcopy(rubric)
            runtime = RewardRuntime(rubric, config=config, own=own)
        runtime.to_dict()  # raises now what it would raise later
        return environment.get_metadata().model_dump(), environment._splits(), runtime

    async def update(self, runtime: RewardRuntime, change: Any, **kwargs: Any) -> dict[str, Any]:
        """Change a configuration, once an environment has accepted what is its own.

        Raises:
            RewardConfigError: A part of the change is invalid; then nothing was changed.
        """
        own = runtime.own(change)
        if own != runtime.own():
            async with self.environment(is_here=True) as runner:
                try:
                    await runner.call(
                        lambda adapter: adapter.environment._apply_own(own),
                        "trying its configuration",
                    )
                except Exception as error:
                    raise refused_by_environment(error) from error
        return await asyncio.to_thread(runtime.update, change, **kwargs)

    # Capacity -----------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether all sessions are taken."""
        return len(self.sessions) + self.calls >= self.limits.max_sessions

    def check_capacity(self) -> None:
        """Check that one more session may begin.

        Raises:
            ProtocolError: All sessions are taken, or the server is shutting down.
        """
        active, limit = len(self.sessions) + self.calls, self.limits.max_sessions
        if self.draining:
            message, reason = "the server is shutting down", "draining"
        elif self.is_full:
            message, reason = f"all {limit} sessions are taken; try again later", "capacity"
        else:
            return
        self.metrics.refused.labels(reason).inc()
        log("session refused", level="warning", reason=message)
        raise ProtocolError(
            ErrorCode.CAPACITY_REACHED,
            message,
            status=503,
            active_sessions=active,
            max_sessions=limit,
        )

    @contextlib.contextmanager
    def slot(self) -> Iterator[None]:
        """Take the place of a session for a call.

        Raises:
            ProtocolError: All sessions are taken.
        """
        self.check_capacity()
        self.calls += 1
        try:
            yield
        finally:
            self.calls -= 1

    # WebSockets ---------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one session over a WebSocket; with ``?trees=1``, observations have trees."""
        connection = Connection(receive, send, self.limits.send_timeout_s)
        trees = QueryParams(scope.get("query_string", b"")).get("trees") == "1"

        def begin() -> Session:
            session = self.begin(Session, connection)
            session.keeps_trees = trees
            return session

        await self.serve(connection, begin)

    def begin(self, kind: type[Session], connection: Connection) -> Session:
        """Return a new session of a WebSocket.

        Raises:
            ProtocolError: All sessions are taken.
        """
        self.check_capacity()
        session = kind(self, connection)
        self.add(session)
        return session

    async def serve(self, connection: Connection, begin: Callable[[], Session]) -> None:
        """Accept a WebSocket and serve its session, which `begin` returns, or refuse it."""
        try:
            await connection.accept(name=self.metadata.get("name"))
            session = begin()
        except SessionEnd:
            return  # the client has left
        except ProtocolError as error:
            await connection.close(1000, error.code, error)
            return
        await session.run()

    def add(self, session: EnvSession) -> None:
        """Add a session that begins."""
        self.sessions.add(session)
        self.metrics.opened.inc()
        if self._timer is None:
            self._end_idle()
        log("session opened", level="debug", session=session.id, sessions=len(self.sessions))

    def remove(self, session: EnvSession, reason: str) -> None:
        """Remove a session that has ended."""
        self.sessions.discard(session)
        self.metrics.closed.labels(reason).inc()
        log("session closed", level="debug", session=session.id, reason=reason)

    # Failures -----------------------------------------------------------------------------------

    def failure(
        self,
        kind: str,
        error: Exception,
        *,
        what: str | None = None,
        code: ErrorCode = ErrorCode.EXECUTION_ERROR,
        session: int | None = None,
    ) -> ProtocolError:
        """Count and log what an environment raised, and return the error for the client."""
        message = describe_failure(error, what or kind)
        expected = isinstance(error, (EpisodeError, EnvTimeoutError, InvalidArgumentError))
        self.report(kind, message, session=session, trace=None if expected else error)
        timeout = isinstance(error, EnvTimeoutError)
        status = 409 if isinstance(error, EpisodeError) else 504 if timeout else 500
        return ProtocolError(code, message, status=status)

    def report(
        self,
        kind: str,
        message: object,
        *,
        session: int | None = None,
        trace: Exception | None = None,
    ) -> None:
        """Count and log a failure."""
        self.metrics.failures.labels(kind).inc()
        log(f"{kind} failed", level="warning", trace=trace, session=session, error=message)

    async def reset(
        self,
        runner: Runner,
        request: ResetRequest,
        *,
        session: int | None = None,
        encode: Callable[[Any], bytes] = observation_json,
        is_lenient: bool = True,
    ) -> bytes:
        """Begin an episode, count it, and return its first observation, encoded.

        Arguments that the environment doesn't accept are left out, as OpenEnv's server does it,
        unless the client is a pool.
        """
        self.metrics.calls.labels("reset").inc()
        arguments = request.seed, request.episode_id, request.model_extra, is_lenient
        try:
            return encode(await runner.reset(*arguments))
        except ResetArgumentError as error:
            text = str(error)
            raise ProtocolError(ErrorCode.VALIDATION_ERROR, text, unknown_argument=True) from error
        except Exception as error:
            raise self.failure("reset", error, session=session) from error

    async def step(
        self,
        runner: Runner,
        action: Action,
        *,
        timeout_s: float | None = None,
        extra: Mapping[str, Any] | None = None,
        session: int | None = None,
        encode: Callable[[Any], bytes] = observation_json,
    ) -> bytes:
        """Take a step, count it and what failed in it, and return its observation, encoded."""
        start = monotonic()
        observation = failure = None
        try:
            observation = await runner.step(action, timeout_s, extra)
        except Exception as error:
            failure = error
        return self.stepped(observation, failure, start, session=session, encode=encode)

    def stepped(
        self,
        observation: Any,
        failure: BaseException | None,
        start: float,
        *,
        session: int | None = None,
        encode: Callable[[Any], bytes] = observation_json,
    ) -> bytes:
        """Count a step and what failed in it, and return its observation, encoded.

        Args:
            observation: What the environment returned.
            failure: What it raised instead.
            start: When the step began, on the monotonic clock.
            session: The session's number, for the log.
            encode: Encodes the observation.

        Raises:
            ProtocolError: The step failed, its observation can't be encoded, or its reward failed
                and that counts as an error.
        """
        seconds = monotonic() - start
        try:
            if failure is not None:
                raise failure
            text = encode(observation)
        except Exception as error:
            self.metrics.observe_step(seconds, None)
            raise self.failure("step", error, session=session) from error
        self.metrics.observe_step(seconds, observation)
        metadata = observation.metadata
        if ERROR in metadata:
            self.report("reward", metadata[ERROR], session=session)
            if self.fail_on_reward_error:
                message = f"step: the reward failed: {metadata[ERROR]}"
                raise ProtocolError(ErrorCode.EXECUTION_ERROR, message)
        elif HANDLED in metadata:
            self.report("reward_dealt_with", metadata[HANDLED], session=session)
        return text

    async def state(
        self,
        runner: Runner,
        *,
        session: int | None = None,
        encode: Callable[[Any], bytes] = state_json,
    ) -> bytes:
        """Return the state of the episode, encoded."""
        try:
            return encode(await runner.state())
        except Exception as error:
            raise self.failure("state", error, session=session) from error

    def tools(
        self, runner: Runner, *, session: int | None = None, is_standard: bool = False
    ) -> ToolMethods:
        """Return the methods of an environment's tools, whose calls and failures are counted."""

        async def list_tools() -> list[Tool]:
            try:
                return await runner.list_tools()
            except Exception as error:
                raise self.failure("list_tools", error, session=session) from error

        async def call_tool(call: CallToolAction) -> ToolOutcome:
            self.metrics.calls.labels("call_tool").inc()
            try:
                return await runner.call_tool(call)
            except Exception as error:
                raise self.failure("call_tool", error, session=session) from error

        return ToolMethods(list_tools, call_tool, is_standard=is_standard)

    def count_refusal(self, error: ProtocolError) -> None:
        """Count a request that was refused, unless `failure` has counted it."""
        if error.code is not ErrorCode.EXECUTION_ERROR:
            self.metrics.failures.labels(error.code.lower()).inc()

    def validated(
        self, model: type[ModelT], data: Any, what: str, *, loc: tuple[str, ...] = ()
    ) -> ModelT:
        """Return what a client sent as a model.

        Args:
            model: The model.
            data: What the client sent.
            what: What that is, for the error.
            loc: Where it is in the request.

        Raises:
            ProtocolError: It is not valid, or a validator that the author wrote failed.
        """
        try:  # as `model_validate`, in two thirds of its time
            made: ModelT = model.__pydantic_validator__.validate_python(data)
            return made
        except ValidationError as error:
            raise validation_error(what, error, loc=loc) from None
        except Exception as error:
            raise self.failure(what, error) from error

    # Time ---------------------------------------------------------------------------------------

    def _end_idle(self) -> None:
        """End idle sessions, regularly as long as there are sessions."""
        self._timer = None
        limit = self.limits.idle_timeout_s
        oldest = monotonic() - limit
        for session in list(self.sessions):
            if session.is_waiting and session.last_active < oldest:
                message = f"the session sent nothing for {limit:g} s"
                error = ProtocolError(ErrorCode.SESSION_ERROR, message)
                session.stop(SessionEnd("idle", error))
        if self.sessions:
            delay = max(min(limit / 4, 5.0), 0.01)
            self._timer = asyncio.get_running_loop().call_later(delay, self._end_idle)

    async def drain(self, grace_s: float) -> None:
        """Refuse new sessions, and end the open ones, each after its present answer.

        Args:
            grace_s: Seconds that running steps have before they are abandoned.
        """
        self.draining = True
        error = ProtocolError(ErrorCode.SESSION_ERROR, "the server is shutting down")
        for now in (False, True):
            for session in list(self.sessions):
                session.stop(SessionEnd("server stopping", error, close_code=1001), now=now)
            if self.sessions:
                await asyncio.wait({session.task for session in self.sessions}, timeout=grace_s)
            if not self.sessions:
                break
            log("sessions are still running", level="warning", sessions=len(self.sessions))

    def close(self) -> None:
        """End the threads and the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._threads is not None:
            self._threads.close()
            self._threads = None


class EnvSession:
    """One environment of a client, and its configuration; `Session` and `BatchSession` are these.

    Attributes:
        id: Its number, for the log.
        key: Its ID for clients, which can't be guessed.
        runtime: The reward configuration of this session, if it has changed that for itself.
        runner: Runs the environment.
        is_waiting: Whether it waits for the client, or for its environment to be made.
        last_active: When it last answered, on the monotonic clock; infinity before it is open.
        task: The task that serves it.
        keeps_trees: Whether observations have the score of every rubric in their metadata.
    """

    task: Any
    keeps_trees = False

    def __init__(self, manager: SessionManager) -> None:
        self.id = next(_numbers)
        self.key = str(uuid4())
        self.runtime: RewardRuntime | None = None
        self.is_waiting = True
        self.last_active = math.inf
        self.runner = manager.runner(
            lambda: self.runtime or manager.runtime, name=f"session {self.id}"
        )
        self._manager = manager

    def stop(self, end: SessionEnd, *, now: bool = False) -> None:
        """End the session: at once if it is waiting or `now`, else after its answer."""
        raise NotImplementedError

    async def open(self) -> None:
        """Make the environment.

        Raises:
            SessionEnd: It can't be made.
        """
        try:
            await self.runner.open(self.keeps_trees)
        except Exception as error:
            what = "the environment can't be made"
            code = ErrorCode.FACTORY_ERROR
            failure = self._manager.failure("factory", error, what=what, code=code, session=self.id)
            raise SessionEnd("factory failed", failure) from error

    async def configure(self, change: Any) -> dict[str, Any]:
        """Return the reward configuration, after a change for this session alone.

        Raises:
            ProtocolError: The change is invalid.
        """
        common = await self._manager.configuration()
        if change is None:
            return await asyncio.to_thread((self.runtime or common).to_dict)
        runtime = self.runtime or common.fork()
        try:
            answer = await self._manager.update(runtime, change, by=f"session {self.id}")
        except RewardConfigError as error:
            raise config_error(error) from error
        self.runtime = runtime
        if answer["change"] is not None:
            common.audit.append({**answer["change"], "session": self.id})
        return answer

    async def close_environment(self, reason: str) -> None:
        """Close the environment, and remove the session."""
        try:
            await self.runner.close(self._manager.limits.close_timeout_s)
        finally:
            self._manager.remove(self, reason)


class Session(EnvSession):
    """One client's WebSocket and its environment.

    Attributes:
        is_sending: Whether it sends an answer.
    """

    def __init__(self, manager: SessionManager, connection: Connection) -> None:
        super().__init__(manager)
        self.is_sending = False
        self._threads = manager.threads
        self._connection = connection
        self.task = asyncio.current_task()
        self._end: SessionEnd | None = None
        self._busy_since = monotonic()
        self._watching: asyncio.Task[None] | None = None

    def stop(self, end: SessionEnd, *, now: bool = False) -> None:
        """End the session: at once if it is waiting or `now`, else after its answer."""
        if now or (self.is_waiting and self._end is None):
            self._interrupt(end)
        elif self._end is None:
            self._end = end

    def _interrupt(self, end: SessionEnd) -> None:
        self._end = end
        self.task.cancel()

    async def run(self) -> None:
        """Serve the session until it ends."""
        error = ProtocolError(ErrorCode.SESSION_ERROR, "the server failed")
        end = SessionEnd("server error", error)
        try:
            await self._serve()
        except SessionEnd as reached:
            end = reached
        except asyncio.CancelledError:
            if self._end is None or self.task.uncancel() > 0:
                end = SessionEnd("server stopped", close_code=0)
                raise
            end = self._end
        except Exception as failure:
            log(
                "session failed", level="error", session=self.id, error=repr(failure), trace=failure
            )
        finally:
            self.is_waiting = False
            await self._close(end)

    async def _serve(self) -> None:
        threads = self._threads
        threads.watch(self.watch)
        try:
            await self.open()
        finally:
            threads.alarms.discard(self.watch)
            self._unwatch()
        while self._end is None:
            self.is_waiting = True
            self.last_active = monotonic()
            text = await self._connection.receive()
            self.is_waiting = False
            self._busy_since = monotonic()
            threads.watch(self.watch)
            try:
                await self._respond(text)
            finally:
                self.is_sending = False
                threads.alarms.discard(self.watch)
                if self._watching is not None:
                    self._unwatch()
        raise self._end

    async def _respond(self, text: str | bytes) -> None:
        try:
            answer = await self._answer(text)
        except ProtocolError as error:
            self._manager.count_refusal(error)
            answer = error_frame(error)
        self.is_sending, self._busy_since = True, monotonic()
        await self._connection.send(answer)

    async def _answer(self, text: str | bytes) -> str:
        manager = self._manager
        message = parse_message(text, manager.limits.max_config_bytes)
        kind, data = message.type, message.data
        if kind == "step":
            action = manager.validated(manager.action_type, data, "the action")
            content = await manager.step(self.runner, action, session=self.id)
        elif kind == "reset":
            request = manager.validated(ResetRequest, {} if data is None else data, "reset's data")
            content = await manager.reset(self.runner, request, session=self.id)
        elif kind == "state":
            content = await manager.state(self.runner, session=self.id)
            return f'{{"type":"state","data":{content.decode()}}}'
        elif kind == "config":
            answer = {"type": "config", "data": await self.configure(data)}
            return json.dumps(answer, allow_nan=False, default=str)
        elif kind == "mcp":
            answer = await answer_content(data, self.rpc_methods())
            return json.dumps({"type": "mcp", "data": answer})
        else:
            raise SessionEnd("client closed")
        return f'{{"type":"observation","data":{content.decode()}}}'

    def rpc_methods(self) -> dict[str, Any]:
        """Return the methods of JSON-RPC."""
        return socket_methods(self._manager.tools(self.runner, session=self.id), self.key)

    # Watching the client while its environment works --------------------------------------------

    def watch(self, now: float, blocked_s: float) -> None:
        """Watch a client whose answer takes long, and leave one that doesn't read its answer."""
        self._busy_since += blocked_s
        seconds = now - self._busy_since
        if self.is_sending:
            if seconds > self._manager.limits.send_timeout_s:
                self._interrupt(SessionEnd("client does not read", close_code=0))
        elif self._watching is None and seconds > WATCH_AFTER_S:
            self._watching = asyncio.ensure_future(self._stop_when_gone())

    def _unwatch(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None

    async def _stop_when_gone(self) -> None:
        try:
            await self._connection.wait_until_gone()
        except SessionEnd as gone:
            self._interrupt(gone)

    async def _close(self, end: SessionEnd) -> None:
        try:
            if end.close_code:
                await self._connection.close(end.close_code, end.reason, end.error)
        finally:
            await self.close_environment(end.reason)
