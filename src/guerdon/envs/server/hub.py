"""`Hub`: what a server's sessions share: threads, limits, counts, and their end."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from time import monotonic
from typing import Any

from guerdon.config.live.live import LiveReward
from guerdon.config.pipeline import RewardPipeline
from guerdon.envs.configured import with_pipeline
from guerdon.envs.environment import COMPONENTS, ERROR, HANDLED
from guerdon.envs.runner import EnvAdapter, EnvRunner, EnvThreads
from guerdon.envs.server.connection import ClientGoneError, Connection, Receive, Scope, Send
from guerdon.envs.server.limits import ServerLimits
from guerdon.envs.server.logs import log
from guerdon.envs.server.mcp import converse
from guerdon.envs.server.messages import ErrorCode, Problem, error_text
from guerdon.envs.server.metrics import Metrics
from guerdon.envs.server.session import Session, SessionState
from guerdon.errors import EnvTimeoutError, EpisodeError, InvalidArgumentError
from guerdon.types.action import Action
from guerdon.types.observation import Observation

__all__ = ["Hub"]


class Hub:
    """What a server's sessions share.

    Args:
        factory: Makes an environment for each session.
        action_type: The class of actions.
        limits: How much the server takes on.
        pipeline: Makes the rubrics of the environments, in place of their own.

    Attributes:
        live: What the reward of every session is configured with, where it isn't the session's
            own; None before an environment has been looked at.
        metadata: What the environment says of itself; empty before that.
        metrics: What the server has done.
        sessions: Those that are open.
        passing: Calls of the HTTP face and WebSockets of JSON-RPC that are under way.
    """

    def __init__(
        self,
        factory: Callable[[], Any],
        action_type: type[Action],
        limits: ServerLimits,
        *,
        pipeline: RewardPipeline | None = None,
    ) -> None:
        self.factory = factory if pipeline is None else with_pipeline(factory, pipeline)
        self._pipeline = pipeline
        self.action_type = action_type
        self.limits = limits
        self.live: LiveReward | None = None
        self.metadata: dict[str, Any] = {}
        self.metrics = Metrics()
        self.sessions: set[Session] = set()
        self.passing = 0
        self.draining = False
        self._workers: EnvThreads | None = None
        self._reaper: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()

    @property
    def workers(self) -> EnvThreads:
        """The threads in which environments run."""
        workers = self._workers
        # Without a lifespan, as in tests, an app may be asked in one loop after the other.
        if workers is None or workers.loop is not asyncio.get_running_loop():
            workers = self._workers = EnvThreads(self.limits.max_threads)
        return workers

    def start(self) -> None:
        """Begin, or begin again after an end."""
        self.close()
        self.draining = False
        self._workers = None

    # Sessions ----------------------------------------------------------------------------------

    async def websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one WebSocket, as an ASGI application does."""
        connection = Connection(scope, receive, send, self.limits.send_timeout_s)
        await connection.accept()
        problem = self.refusal()
        if problem is not None:
            try:
                await connection.send(error_text(problem.code, problem.message, problem.more))
                await connection.close(1000, problem.code)
            except ClientGoneError:
                return  # it has not waited for the refusal
            return
        session = Session(self, connection)
        self.sessions.add(session)
        self._count()
        self.metrics.opened += 1
        self._arm()
        log("session opened", level="debug", session=session.id, sessions=len(self.sessions))
        await session.run()

    async def mcp(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one WebSocket of JSON-RPC, which takes a session's place."""
        connection = Connection(scope, receive, send, self.limits.send_timeout_s)
        await connection.accept()
        problem = self.refusal()
        if problem is not None:
            await connection.close(1013, problem.code)
            return
        self.passing += 1
        try:
            await converse(connection, self.limits.idle_timeout_s)
        finally:
            self.passing -= 1

    def leave(self, session: Session, reason: str) -> None:
        """Let go of a session that has ended."""
        self.sessions.discard(session)
        self._count()
        self.metrics.count(self.metrics.closed, reason)
        log("session closed", level="debug", session=session.id, reason=reason)

    def refusal(self) -> Problem | None:
        """Why there is no place for one more session; None where there is."""
        active = len(self.sessions) + self.passing
        most = self.limits.max_sessions
        if self.draining:
            said = "the server is shutting down"
        elif active >= most:
            said = f"all {most} sessions are taken; try again when one has ended"
        else:
            return None
        self.metrics.count(self.metrics.refused, "draining" if self.draining else "capacity")
        log("session refused", level="warning", reason=said)
        return Problem(ErrorCode.CAPACITY_REACHED, said, active_sessions=active, max_sessions=most)

    def runner(self) -> EnvRunner:
        """A place for an environment that lives for one call of the stateless face."""
        seconds = self.limits.step_timeout_s
        return EnvRunner(
            self.factory, self.workers, timeout_s=seconds, configuration=lambda: self.live
        )

    async def probe(self, look: Callable[[EnvAdapter], Any]) -> Any:
        """Make an environment, look at it, and close it.

        Raises:
            EnvDefinitionError: It has no rubric, or is no environment.
            Exception: What making it or looking at it raised.
        """
        runner = self.runner()
        await runner.open()
        try:
            return await runner.call(look, "looking at the environment")
        finally:
            await runner.close(self.limits.close_timeout_s)

    async def look(self) -> LiveReward:
        """Make an environment once, to see what it is and what its reward is configured with.

        Raises:
            ServiceUnavailableError: A service that its reward is configured with isn't there.
            Exception: It can't be made, has no rubric, or can't be looked at.
        """
        if self.live is None:
            if self._pipeline is not None:
                await asyncio.to_thread(self._pipeline.make)  # first what is wrong in its file
                await self._pipeline.check_services_async()
            metadata, live = await self.probe(self._looked_at)
            if self.live is None:  # else somebody else looked meanwhile, and may have changed it
                self.metadata, self.live = metadata, live
        return self.live

    def _looked_at(self, adapter: EnvAdapter) -> tuple[dict[str, Any], LiveReward]:
        environment = adapter.environment
        config = self._pipeline.config if self._pipeline is not None else None
        live = environment._live or LiveReward(_own_copy(environment.rubric), config=config)
        live.told()  # what can't be told is said now
        return environment.get_metadata().model_dump(), live

    # What is counted ---------------------------------------------------------------------------

    def count_step(self, observation: Observation, seconds: float, session: int | None) -> None:
        """Count a step, and tell what failed in it."""
        metadata = observation.metadata
        components = metadata.get(COMPONENTS)
        known = components if isinstance(components, dict) else {}
        scores = {
            name: float(value)
            for name, value in known.items()
            if isinstance(name, str) and name.isprintable() and isinstance(value, (int, float))
        }
        self.metrics.step(seconds, observation.reward, scores)
        if ERROR in metadata:
            self.failed("reward", metadata[ERROR], session=session)
        elif HANDLED in metadata:
            self.failed("reward_dealt_with", metadata[HANDLED], session=session)

    def failed(
        self,
        kind: str,
        said: str,
        *,
        session: int | None = None,
        trace: BaseException | None = None,
    ) -> None:
        """Count and log what went wrong, with a traceback where that tells anybody anything."""
        self.metrics.count(self.metrics.failures, kind)
        if isinstance(trace, (EpisodeError, EnvTimeoutError, InvalidArgumentError)):
            trace = None
        log(f"{kind} failed", level="warning", trace=trace, session=session, error=said)

    def _count(self) -> None:
        self.metrics.active = len(self.sessions)
        if self.sessions:
            self._empty.clear()
        else:
            self._empty.set()

    # The end -----------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Look after idle sessions, as long as there are any."""
        if self._reaper is None and self.sessions:
            often = max(min(self.limits.idle_timeout_s / 4, 5.0), 0.01)
            self._reaper = asyncio.get_running_loop().call_later(often, self._reap)

    def _reap(self) -> None:
        self._reaper = None
        most = self.limits.idle_timeout_s
        oldest = monotonic() - most
        for session in list(self.sessions):
            if session.state is SessionState.READY and session.last_active < oldest:
                said = f"the session sent nothing for {most:g} s"
                session.stop("idle", Problem(ErrorCode.SESSION_ERROR, said), 1000)
        self._arm()

    async def drain(self, grace_s: float) -> None:
        """Take no more sessions, and end those there are, each after the answer it is at.

        Args:
            grace_s: Seconds that running steps have; then they are given up.
        """
        self.draining = True
        said = Problem(ErrorCode.SESSION_ERROR, "the server is shutting down")
        for now in (False, True):
            for session in list(self.sessions):
                session.stop("server stopping", said, 1001, now=now)
            self._count()
            try:
                async with asyncio.timeout(grace_s):
                    await self._empty.wait()
                break
            except TimeoutError:
                log("sessions are still running", level="warning", sessions=len(self.sessions))

    def close(self) -> None:
        """Let go of the threads and the clock."""
        if self._reaper is not None:
            self._reaper.cancel()
            self._reaper = None
        if self._workers is not None:
            self._workers.close()


def _own_copy(rubric: Any) -> Any:
    """A rubric that no session scores by, even where all environments share one."""
    try:
        return copy.deepcopy(rubric)
    except Exception:  # what can't be copied: the one that was made to be looked at
        return rubric
