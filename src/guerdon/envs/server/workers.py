"""`SessionWorkers`: the environments of a server's sessions in several processes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping
from typing import Any

from guerdon.envs.pool.backend import start_task
from guerdon.envs.pool.codec import Call
from guerdon.envs.pool.processes import START_S, ProcessLink
from guerdon.envs.pool.workers import Worker, start_all, usable_cores
from guerdon.envs.runner import EnvCall
from guerdon.envs.server.limits import ServerLimits

# Seconds between two looks at whether the processes respond.
LOOK_S = 1.0
# The slot of the calls that ask a process whether it responds; sessions count from 1.
PING = 0


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
        self._numbers = itertools.count(PING + 1)
        self._sessions = dict.fromkeys(self._workers, 0)
        self._waiting: dict[Worker, list[tuple[Call, Any]]] = {}
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

    async def open(self) -> WorkerAdapter:
        """Make an environment, in the process that has the fewest of those that can be started."""
        worker = min(self._sessions, key=lambda each: (each.is_broken, self._sessions[each]))
        self._sessions[worker] += 1
        adapter = WorkerAdapter(self, worker, next(self._numbers))
        try:
            await self.call(worker, adapter.number, "open")
        except BaseException:
            await asyncio.shield(adapter.close())
            raise
        return adapter

    async def call(self, worker: Worker, number: int, method: str, *arguments: Any) -> Any:
        """Make a call of a session."""
        waiting = _Waiting()
        self.start_call(worker, (number, method, arguments), waiting)
        return await waiting.future

    def start_call(self, worker: Worker, call: Call, caller: Any) -> None:
        """Start a call of a session. Those of one moment share a message."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._submit)
        self._waiting.setdefault(worker, []).append((call, caller))

    def _submit(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for worker, calls in waiting.items():
            worker.submit(calls)

    async def closed(self, worker: Worker, number: int) -> None:
        """Close the environment of a session."""
        self._sessions[worker] -= 1
        await self.call(worker, number, "close", self._limits.close_timeout_s)

    async def _watch(self, worker: Worker) -> None:
        """Ask a process how many threads hang; kill it if it doesn't respond.

        One that has ended is started again.
        """
        limit = self._limits.step_timeout_s
        while True:
            waiting = _Waiting()
            asked = waiting.future
            starting_s = 0.0 if worker.is_running else START_S
            worker.submit([((PING, "ping", ()), waiting)])
            await asyncio.wait([asked], timeout=limit + starting_s)
            if not asked.done():
                worker.kill()
                worker.fail(f"the process was stopped, as it didn't respond for {limit:g} s")
            self._stuck[worker] = 0 if asked.exception() else asked.result()
            await asyncio.sleep(min(LOOK_S, limit))

    async def close(self) -> None:
        """Close the environments, and end the processes."""
        for each in self._watching:
            each.cancel()
        await asyncio.gather(*(each.close(self._limits.close_timeout_s) for each in self._workers))


class _Waiting:
    """A call that waits for its end."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def finish(self, value: Any, error: BaseException | None = None) -> None:
        """Receive the end of the call."""
        if self.future.done():  # its caller has left
            return
        if error is None:
            self.future.set_result(value)
        else:
            self.future.set_exception(error)
            self.future.exception()  # nobody may wait for it


class _Step:
    """A step that ends an `EnvCall`, without a task that waits for it."""

    def __init__(self, call: EnvCall) -> None:
        self._call = call

    def finish(self, value: Any, error: BaseException | None = None) -> None:
        """Receive the end of the step."""
        call = self._call
        if not call.is_abandoned:
            call.result, call.error = value, error
            call.deliver()


class WorkerEnvironment:
    """What `EnvRunner` needs of an environment that is in another process.

    Args:
        configure: Applies the configuration of an episode there.
    """

    def __init__(self, configure: Callable[[int], Any]) -> None:
        self._runtime: Any = None
        self._apply_configuration = configure


class WorkerAdapter:
    """The members of `EnvAdapter` for an environment in another process.

    Args:
        workers: The processes.
        worker: That of the environment.
        number: The number of the session.

    Attributes:
        number: The number of the session.
        environment: Takes the place of the environment.
    """

    reset_is_async = step_is_async = close_is_async = True

    def __init__(self, workers: SessionWorkers, worker: Worker, number: int) -> None:
        self._workers = workers
        self._worker = worker
        self.number = number
        self.environment = WorkerEnvironment(self._configure)

    def _call(self, method: str, *arguments: Any) -> Any:
        return self._workers.call(self._worker, self.number, method, *arguments)

    def _begin(self, episode: int | None = None) -> Any:
        runtime = self.environment._runtime
        return None if runtime is None else runtime.begin(episode)

    def reset(self, seed: int | None, episode_id: str | None, extra: Mapping[str, Any]) -> Any:
        """Begin an episode."""
        return self._call("reset", seed, episode_id, dict(extra or {}), self._begin())

    def _configure(self, episode: int) -> Any:
        return self._call("configure", self._begin(episode))

    def step(self, action: Any, timeout_s: float | None, extra: Mapping[str, Any] | None) -> Any:
        """Take a step."""
        if timeout_s is None and not extra:
            return self._call("step", action)
        return self._call("step", action, timeout_s, dict(extra or {}))

    def start_step(self, action: Any, call: EnvCall) -> None:
        """Take a step, whose result is that of a call."""
        self._workers.start_call(self._worker, (self.number, "step", (action,)), _Step(call))

    def state(self) -> Any:
        """Return the state of the episode."""
        return self._call("state")

    def close(self) -> Any:
        """Close the environment, and abandon the call that it is in."""
        return self._workers.closed(self._worker, self.number)
