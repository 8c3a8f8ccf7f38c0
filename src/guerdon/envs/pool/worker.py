"""`EnvWorker`: the environments of several slots, inside a worker process or an actor."""

from __future__ import annotations

import asyncio
import math
from asyncio import events, tasks
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

from guerdon.config.runtime import ReceivedConfiguration
from guerdon.envs.configured import PipelineFactory
from guerdon.envs.pool.backend import start_task
from guerdon.envs.pool.codec import Call, Codec
from guerdon.envs.runner import EnvCall, EnvRunner, EnvThreads, failure_of


class Emit(Protocol):
    """Receives how a call has ended."""

    def __call__(
        self, slot: int, value: Any, error: BaseException | None = None, means: Any = None
    ) -> Exception | None:
        """Receive a result, or what was raised instead; return why it can't be sent, if so."""


@contextmanager
def outside_loop() -> Iterator[None]:
    """Hide the running event loop from an author's sync code, which may call `asyncio.run`."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    if task is not None:
        tasks._leave_task(loop, task)
    events._set_running_loop(None)
    try:
        yield
    finally:
        events._set_running_loop(loop)
        if task is not None:
            tasks._enter_task(loop, task)


class InlineThreads(EnvThreads):
    """Runs sync calls at once, in the thread of the event loop, or in an environment's own thread.

    Args:
        beginning: Called with the runner whose call begins.
    """

    def __init__(self, beginning: Callable[[EnvRunner | None], None]) -> None:
        super().__init__(1)
        self._beginning = beginning

    def start(self, call: EnvCall, *, is_async: bool = False) -> None:
        """Start a call: one of sync code has ended when this returns."""
        makes = call.runner if call.makes else None
        if is_async or call.own is not None or (makes and _needs_thread(makes.factory)):
            super().start(call, is_async=is_async)
            return
        self._beginning(call.runner)
        with outside_loop():
            call.run()
            if makes and getattr(call.result, "own_calls", None) is not None:
                call.result.close()  # it was made in this thread, which is not its own
                call.result = None
                super().start(call)
                return
        self.deliver(call)


def _needs_thread(factory: Any) -> bool:
    """Whether a factory is known to make environments that need threads of their own."""
    while factory is not None and not getattr(factory, "own_thread", False):
        factory = getattr(factory, "_factory", None)
    return factory is not None


class EnvWorker:
    """Runs the environments of several slots in the running event loop.

    It is created, used and closed in one event loop. Sync code blocks that loop if there is one
    thread: then a step costs no change of threads.

    Args:
        factory: Makes an environment.
        emit: Called in the event loop as soon as a call has ended.
        threads: How many environments run at the same time. Async ones all do.
        replaces_failed: Whether an environment that raised is replaced by the next reset.
        timeout_s: Seconds that a call may take, if there are several threads.
        close_timeout_s: Seconds that closing an environment may take.
        name: What a slot is called in messages.
        beginning: Called with the slot whose call begins, and None if calls run concurrently.
    """

    def __init__(
        self,
        factory: Callable[[], Any],
        emit: Emit,
        *,
        threads: int = 1,
        replaces_failed: bool = True,
        timeout_s: float = math.inf,
        close_timeout_s: float = 10.0,
        name: str = "slot",
        beginning: Callable[[int | None], None],
    ) -> None:
        self._factory = factory
        self._emit = emit
        inline = threads == 1
        self._threads = InlineThreads(self._begin_of) if inline else EnvThreads(threads)
        self._replaces_failed = replaces_failed
        self._timeout_s = timeout_s
        self._close_timeout_s = close_timeout_s
        self._name = name
        self._beginning = beginning
        self._runners: dict[int, EnvRunner] = {}
        self._received: dict[int, ReceivedConfiguration] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._playing: dict[int, asyncio.Task[Any]] = {}  # the latest call of each slot

    @classmethod
    def load(
        cls, codec: Codec, program: bytes, emit: Emit, beginning: Callable[[int | None], None]
    ) -> tuple[EnvWorker | None, bytes | None]:
        """Return the worker of an encoded factory and options, or the encoded error."""
        try:
            with outside_loop():
                factory, options = codec.decode(program)
            return cls(factory, emit, beginning=beginning, **options), None
        except BaseException as error:  # of the author's modules, sys.exit too
            failure = failure_of("loading the environment", error)
            return None, codec.encode(codec.pack_error(failure))

    def start(self, calls: Sequence[Call]) -> None:
        """Start calls of different slots, one after the other."""
        for slot, method, arguments in calls:
            if method == "ping":
                self._emit(slot, self._threads.stuck)
                continue
            runner = self._runners.get(slot)
            if runner is None:
                runner = self._runners[slot] = self._new_runner(slot)
            if method == "step" and len(arguments) == 1:
                self._step(slot, runner, *arguments)
            else:
                before = self._playing.get(slot)
                playing = self._play(slot, runner, method, arguments, before)
                self._playing[slot] = start_task(playing, self._tasks)

    def start_encoded(self, codec: Codec, data: bytes | memoryview) -> None:
        """Start calls that the other end of a codec has encoded."""
        calls, failed = codec.decode_calls(data)
        for each in failed:
            self._emit(*each)
        self.start(calls)

    def _is_inline(self, runner: EnvRunner, method: str) -> bool:
        is_async = getattr(runner.adapter, f"{method}_is_async", False)
        has_thread = getattr(runner.adapter, "own_calls", None) is not None
        return self._threads.size == 1 and not (is_async or has_thread)

    def _new_runner(self, slot: int) -> EnvRunner:
        return EnvRunner(
            self._factory,
            self._threads,
            timeout_s=self._timeout_s,
            replaces_failed=self._replaces_failed,
            configuration=lambda: self._received.get(slot),  # type: ignore[arg-type, return-value]
            name=f"{self._name} {slot}",
        )

    def _step(self, slot: int, runner: EnvRunner, action: Any) -> None:
        """Take a step here, or start it in a thread or as a task."""
        if not self._is_inline(runner, "step"):
            self._beginning(None)
            runner.start_step(action, partial(self._step_ended, slot))
            return
        self._begin(slot)
        events._set_running_loop(None)  # as `outside_loop`, in no task and for less time
        observation = error = None
        try:
            observation = runner.step_here(action)
        except Exception as failure:
            error = failure
        finally:
            events._set_running_loop(self._threads.loop)
        self._end(slot, observation, error)

    def _step_ended(self, slot: int, step: EnvCall) -> None:
        self._end(slot, step.result, step.error)

    def _begin(self, slot: int | None) -> None:
        """Report which call begins; None while async ones run, which don't wait for each other."""
        self._beginning(None if self._threads.has_tasks else slot)

    def _begin_of(self, runner: EnvRunner | None) -> None:
        slots = (slot for slot, each in self._runners.items() if each is runner)
        self._begin(next(slots, None))

    async def _play(
        self,
        slot: int,
        runner: EnvRunner,
        method: str,
        arguments: tuple[Any, ...],
        before: asyncio.Task[Any] | None,
    ) -> None:
        if not self._is_inline(runner, method):
            self._beginning(None)
        if method == "close":
            if before is not None and not before.done():
                before.cancel()
                await asyncio.wait({before})
        elif method in ("reset", "configure") and arguments[-1] is not None:
            received = self._received.setdefault(slot, ReceivedConfiguration())
            received.configuration, received.means = arguments[-1], None
        try:
            if method == "configure":
                configure = partial(_configure, self._received[slot])
                value = await runner.call(configure, "configuring the environment")
            else:
                given = arguments[:-1] if method == "reset" else arguments
                value = await getattr(runner, method)(*given)
        except Exception as error:
            self._end(slot, None, error)
        else:
            self._end(slot, None if method == "close" else value)
        if method == "close":
            del self._runners[slot], self._playing[slot]
            self._received.pop(slot, None)

    def _end(self, slot: int, value: Any, error: BaseException | None = None) -> None:
        means = None
        if slot in self._received:
            received = self._received[slot]
            means, received.means = received.means, None
        unsent = self._emit(slot, value, error, means)
        if unsent is not None:  # the episode has ended for the caller
            self._runners[slot].step_failed(unsent)

    async def close(self) -> None:
        """Close every environment."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        closing = (each.close(self._close_timeout_s) for each in self._runners.values())
        await asyncio.gather(*closing)
        self._threads.close()
        if isinstance(self._factory, PipelineFactory):
            self._factory.close()


def _configure(received: ReceivedConfiguration, adapter: Any) -> None:
    adapter.environment._runtime = received
    adapter.environment._apply_configuration()
