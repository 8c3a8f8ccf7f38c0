"""`RayBackend`: a pool's environments in actors on a Ray cluster."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from time import monotonic
from typing import Any, TypeVar

from guerdon._ray import connect, free_cpus, import_ray
from guerdon.envs.pool.codec import Call, Codec
from guerdon.envs.pool.worker import EnvWorker
from guerdon.envs.pool.workers import Running, WorkerBackend, WorkerLink
from guerdon.errors import WorkerError

__all__ = ["RayBackend"]

T = TypeVar("T")

# Seconds that starting an actor may take.
START_S = 60.0

# Seconds after which an actor reports in which call it is, though there is no result.
REPORT_S = 0.1

# Results of an actor, each the slot and a pickle; the call that it is in, and for how long.
Report = tuple[list[tuple[int, bytes]], tuple[int, float] | None]


class RayBackend(WorkerBackend):
    """A pool's environments in actors on a Ray cluster, several in each.

    A batch is one call of each actor, whose results arrive as they finish. An actor that dies, or
    whose node is lost, fails its slots alone, and is replaced by the next reset of one of them.

    Example::

        backend = RayBackend(make_environment, 1024, actor_options={"num_cpus": 2})
        async with EnvPool(backend=backend, n=1024) as pool:
            ...

    Args:
        env: A factory, or what `guerdon serve` accepts, which every node must have.
        n: The number of slots.
        workers: The number of actors, at most one for each slot; by default as many as have free
            CPUs when the pool is opened.
        threads_per_worker: How many sync environments of an actor run at the same time.
        actor_options: Options of each actor, such as ``num_cpus`` (1 by default), ``num_gpus``,
            ``resources``, ``runtime_env`` and ``scheduling_strategy`` (``"SPREAD"`` by default: a
            `PlacementGroupSchedulingStrategy` for a placement group).
        close_timeout_s: Seconds that closing the environments may take.

    Raises:
        MissingExtraError: Ray isn't installed.
        InvalidArgumentError: An argument is invalid.
        LoadError: There is no such environment.
    """

    def __init__(
        self,
        env: str | Callable[[], Any],
        n: int,
        *,
        workers: int | None = None,
        threads_per_worker: int = 1,
        actor_options: Mapping[str, Any] | None = None,
        close_timeout_s: float = 10.0,
    ) -> None:
        self._ray = import_ray()
        super().__init__(
            env,
            n,
            1 if workers is None else workers,
            threads_per_worker=threads_per_worker,
            close_timeout_s=close_timeout_s,
        )
        if workers is None:
            self._count = 0  # until the cluster is known
        self._actor_options: dict[str, Any] = {"num_cpus": 1, "scheduling_strategy": "SPREAD"}
        self._actor_options |= actor_options or {}

    async def open(self) -> None:
        """Connect to the cluster, unless the program is connected, and start the actors."""
        await asyncio.to_thread(connect, self._ray)
        if not self._count:
            each = float(self._actor_options["num_cpus"]) or 1.0
            self._count = min(self.n, max(1, int(free_cpus(self._ray) / each)))
        await super().open()

    def new_link(self, index: int) -> WorkerLink:
        """Return the connection to a new actor."""
        return RayLink(self._ray, self._factory, self._options, self._actor_options)


class RayLink(WorkerLink):
    """The connection to one actor.

    Args:
        ray: The module.
        factory: Makes an environment.
        options: The arguments of `EnvWorker`.
        actor_options: Options of the actor.
    """

    def __init__(
        self, ray: Any, factory: Any, options: dict[str, Any], actor_options: dict[str, Any]
    ) -> None:
        self._ray = ray
        self._program = factory, options
        self._actor_options = actor_options
        self._codec = Codec()
        self._actor: Any = None
        self._reading: asyncio.Task[None] | None = None
        self._running: Running | None = None
        self._outstanding = 0  # calls without a result
        self._is_over = False

    async def start(self) -> None:
        """Start the actor, and wait until it has loaded the factory."""
        program = self._codec.encode(self._program)  # raises before the start
        actor = self._ray.remote(EnvActor).options(**self._actor_options)
        self._actor = actor.remote()
        try:
            async with asyncio.timeout(START_S):
                failed = await self._actor.load.remote(program)
        except TimeoutError:
            raise WorkerError(
                f"an actor wasn't ready after {START_S:g} s: does the cluster have what "
                f"{self._actor_options} requires?"
            ) from None
        except self._ray.exceptions.RayError as error:
            raise WorkerError(f"an actor didn't start: {_first_line(error)}") from None
        if failed is not None:
            raise self._codec.unpack_error(*self._codec.decode(failed))
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        reports = self._actor.reports.options(num_returns="streaming").remote()
        try:
            async for report in reports:
                self._take(await report)
        except self._ray.exceptions.RayError as error:
            if not self._is_over:
                self.kill()  # it may only be unavailable for a while
                last, self._running = self._running, None  # another call may have begun since
                where = "" if last is None else f", and was in slot {last.slot} before"
                self.ended(f"the actor was lost ({_first_line(error)}){where}")

    def _take(self, report: Report) -> None:
        results, running = report
        if self._is_over:
            return
        self._outstanding -= len(results)
        self._running = None if running is None else Running(running[0], monotonic() - running[1])
        self.received([self._codec.read_result(slot, data) for slot, data in results])

    @property
    def running(self) -> Running | None:
        """The call that the actor was in when it last reported."""
        return self._running

    def send(self, calls: Sequence[Call]) -> None:
        """Send calls in one call of the actor."""
        content, failed = self._codec.encode_calls(calls)
        if not self._outstanding:
            self._running = None  # until the first report
        self._outstanding += len(calls) - len(failed)
        self._actor.start.options(num_returns=0).remote(content)
        self.received(failed)

    def kill(self) -> None:
        """End the actor at once."""
        if self._is_over:
            return
        self._is_over = True
        if self._reading is not None:
            self._reading.cancel()
        if self._actor is not None:
            self._ray.kill(self._actor)

    async def close(self, timeout_s: float) -> None:
        """Close the actor's environments, and end it."""
        try:
            with contextlib.suppress(TimeoutError, self._ray.exceptions.RayError):
                async with asyncio.timeout(timeout_s + 1.0):
                    await self._actor.close.remote()
        finally:  # also if it is cancelled
            self.kill()


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")


# In the actor ------------------------------------------------------------------------------------


class EnvActor:
    """The environments of several slots, in an event loop in a thread of their own.

    Ray's own event loop passes calls and results on meanwhile.
    """

    def __init__(self) -> None:
        self._codec = Codec()
        self._results: deque[tuple[int, bytes]] = deque()  # that are not reported yet
        self._running: tuple[int, float] | None = None
        self._worker: EnvWorker | None = None
        self._is_closed = False
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="guerdon-envs", daemon=True).start()

    async def load(self, program: bytes) -> bytes | None:
        """Load the factory; return what that raised."""
        self._rays_loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        return await self._in_thread(self._load(program))

    def _in_thread(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))

    async def _load(self, program: bytes) -> bytes | None:
        self._worker, failed = EnvWorker.load(self._codec, program, self._emit, self._begin)
        return failed

    async def start(self, content: bytes) -> None:
        """Start calls of different slots."""
        assert self._worker is not None
        self._loop.call_soon_threadsafe(self._worker.start_encoded, self._codec, content)

    def _begin(self, slot: int | None) -> None:
        self._running = None if slot is None else (slot, monotonic())

    def _emit(
        self, slot: int, value: Any, error: BaseException | None = None, means: Any = None
    ) -> Exception | None:
        data, unsent = self._codec.encode_result(value, error, means)
        self._results.append((slot, data))
        if not self._changed.is_set():
            self._rays_loop.call_soon_threadsafe(self._changed.set)
        return unsent

    async def reports(self) -> AsyncIterator[Report]:
        """Yield results as they finish, and which call takes long."""
        reported = None
        while not self._is_closed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REPORT_S):
                    await self._changed.wait()
            self._changed.clear()  # before the results are taken, so that none is forgotten
            results = [self._results.popleft() for _ in range(len(self._results))]
            running = self._running
            if results or running != reported:
                reported = running
                age = None if running is None else (running[0], monotonic() - running[1])
                yield results, age

    async def close(self) -> None:
        """Close every environment."""
        if self._worker is not None:
            await self._in_thread(self._worker.close())
        self._is_closed = True
