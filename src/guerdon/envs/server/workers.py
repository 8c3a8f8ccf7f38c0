"""`SessionWorkers`: the environments of a server's sessions in several processes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from guerdon.config.runtime import RewardRuntime
from guerdon.envs.pool.backend import start_task
from guerdon.envs.pool.codec import Call
from guerdon.envs.pool.processes import START_S, ProcessLink
from guerdon.envs.pool.workers import Worker, close_all, start_all, usable_cores
from guerdon.envs.runner import EnvCall, EnvRunner, settle
from guerdon.envs.server.limits import ServerLimits
from guerdon.errors import EnvError

# Seconds between two looks at whether the processes respond.
LOOK_S = 1.0


class SessionWorkers:
    """The processes in which the environments of a server's sessions run.

    A process runs its environments in threads, like a server with one process, and watches their
    time limits. If it doesn't respond for that time, it is killed. Its sessions have to be reset
    then, and so after it has ended by itself.

    Args:
        factory: Makes an environment.
        processes: How many processes there are.
        limits: The server's limits.
        observe: Called with the means of episodes that a curriculum needs.

    Attributes:
        sessions: How many environments each process has.
    """

    def __init__(
        self,
        factory: Callable[[], Any],
        processes: int,
        limits: ServerLimits,
        observe: Callable[[Any], None],
    ) -> None:
        self._limits = limits
        options = {
            "threads": max(2, -(-limits.max_threads // processes)),
            "replaces_failed": False,
            "timeout_s": limits.step_timeout_s,
            "close_timeout_s": limits.close_timeout_s,
            "name": "session",
        }
        self._workers = [
            Worker(lambda: ProcessLink(factory, options), "session", observe)
            for _ in range(processes)
        ]
        self._numbers = itertools.count(1)
        self.sessions = dict.fromkeys(self._workers, 0)
        self._waiting: dict[Worker, list[tuple[Call, WorkerRunner]]] = {}
        self._stuck: dict[Worker, int] = {}
        self._watching: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Start the processes.

        Raises:
            Exception: What loading the factory raised.
        """
        await start_all(self._workers, 2 * usable_cores())
        for worker in self._workers:
            start_task(self._watch(worker), self._watching)

    @property
    def stuck(self) -> int:
        """How many threads of the processes hang in abandoned calls."""
        return sum(self._stuck.values())

    def runner(self, configuration: Callable[[], RewardRuntime | None]) -> WorkerRunner:
        """Return a runner of a new environment, whose episodes a configuration scores."""
        return WorkerRunner(self, next(self._numbers), configuration)

    def start_call(self, worker: Worker, call: Call, runner: WorkerRunner) -> None:
        """Start a call of a session. Those of one moment share a message."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._submit)
        self._waiting.setdefault(worker, []).append((call, runner))

    def _submit(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for worker, calls in waiting.items():
            worker.submit(calls)

    async def _watch(self, worker: Worker) -> None:
        """Ask a process how many threads hang; kill it if it doesn't respond.

        One that has ended is started again.
        """
        limit = self._limits.step_timeout_s
        asking = self.runner(lambda: None)
        asking.worker = worker
        while True:
            starting_s = 0.0 if worker.is_running else START_S
            try:
                async with asyncio.timeout(limit + starting_s) as time:
                    self._stuck[worker] = await asking.call("ping")
            except Exception:
                self._stuck[worker] = 0
                if time.expired():  # else it has ended, or can't be started
                    worker.kill()
                    worker.fail(f"the process was stopped, as it didn't respond for {limit:g} s")
            await asyncio.sleep(min(LOOK_S, limit))

    async def close(self) -> None:
        """Close the environments, and end the processes."""
        for each in self._watching:
            each.cancel()
        await close_all(self._workers, self._limits.close_timeout_s)


class WorkerRunner:
    """What a server needs of an `EnvRunner`, for an environment in one of the processes.

    The process watches the time limits, and refuses what can't be called now.

    Args:
        workers: The processes.
        number: The number of the session, among those of all processes.
        configuration: Returns the configuration that scores the episodes.

    Attributes:
        worker: The process of the environment; None before it is made.
    """

    _call: EnvCall  # the latest

    def __init__(
        self,
        workers: SessionWorkers,
        number: int,
        configuration: Callable[[], RewardRuntime | None],
    ) -> None:
        self.worker: Any = None
        self._workers = workers
        self._number = number
        self._configuration = configuration

    async def open(self, keeps_trees: bool = False) -> None:
        """Make the environment, in the process that has the fewest of those that can be started."""
        sessions = self._workers.sessions
        self.worker = min(sessions, key=lambda each: (each.is_broken, sessions[each]))
        sessions[self.worker] += 1
        await self.call("open", keeps_trees)

    async def reset(
        self,
        seed: int | None,
        episode_id: str | None,
        extra: Mapping[str, Any] | None,
        is_lenient: bool = False,
    ) -> Any:
        """Begin an episode."""
        runtime = self._configuration()
        configuration = None if runtime is None else runtime.begin()
        arguments = (seed, episode_id, dict(extra or {}), is_lenient)
        return await self.call("reset", *arguments, configuration)

    async def configure(self) -> None:
        """Apply the configuration to a new environment that is stepped without a reset."""
        runtime = self._configuration()
        if runtime is not None:
            await self.call("configure", runtime.begin(runtime.progress.episode))

    async def step(
        self, action: Any, timeout_s: float | None = None, extra: Mapping[str, Any] | None = None
    ) -> Any:
        """Take a step."""
        if timeout_s is None and not extra:
            return await self.call("step", action)
        return await self.call("step", action, timeout_s, dict(extra or {}))

    def start_step(self, action: Any, finish: Callable[[EnvCall], None]) -> None:
        """Start a step, without a task that waits for it."""
        self._start(finish, "step", action)

    async def state(self) -> Any:
        """Return the state of the episode."""
        return await self.call("state")

    async def list_tools(self) -> Any:
        """Return the tools that the agent may call now."""
        return await self.call("list_tools")

    async def call_tool(self, call: Any) -> Any:
        """Call a tool outside of a step."""
        return await self.call("call_tool", call)

    async def close(self, timeout_s: float) -> None:
        """Close the environment, and abandon the call that it is in."""
        if self.worker is None:
            return
        self._workers.sessions[self.worker] -= 1
        with contextlib.suppress(EnvError, TimeoutError):  # its process has ended, or is about to
            async with asyncio.timeout(timeout_s):
                await self.call("close", timeout_s)

    async def call(self, method: str, *arguments: Any) -> Any:
        """Make a call, and wait for its end."""
        waiting = asyncio.get_running_loop().create_future()
        self._start(partial(settle, waiting), method, *arguments)
        return await waiting

    def _start(self, finish: Callable[[EnvCall], None], method: str, *arguments: Any) -> None:
        self._call = EnvCall(lambda: None, method, finish)
        self._workers.start_call(self.worker, (self._number, method, arguments), self)

    def finish(self, value: Any, error: BaseException | None = None) -> None:
        """Receive how the latest call has ended."""
        self._call.result, self._call.error = value, error
        self._call.deliver()


# What runs the environment of a session.
Runner: TypeAlias = EnvRunner | WorkerRunner
