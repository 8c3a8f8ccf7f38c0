"""The evaluator that records: trees with hooks, async members or trajectories, and batches.

`run` and `run_async` evaluate one rubric, with its hooks, into a `Frame`; the rest of the module is
made of them. `guerdon.rubrics.calling` evaluates plain trees faster.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from guerdon._validation import check_integer, shown
from guerdon._work_clock import Turn
from guerdon.errors import (
    AsyncRubricError,
    InvalidArgumentError,
    RubricDefinitionError,
    RubricError,
)
from guerdon.rubrics.failure import close_awaitable
from guerdon.rubrics.recording import (
    Frame,
    awaitable,
    current,
)
from guerdon.rubrics.state import unwrapped

if TYPE_CHECKING:
    import anyio

T = TypeVar("T")

THREADS = 32  # of `evaluate`, for sync leaves

# One rubric --------------------------------------------------------------------------------------


def evaluate_call(rubric: Any, action: Any, observation: Any) -> Any:
    """Evaluate a call that the fast path doesn't handle."""
    traits, parent = rubric._find_traits(), current()
    if rubric._mode:
        return rubric(action, observation)  # only its traits weren't known
    if rubric._written_calls and parent is not None and parent.rubric is rubric:
        if type(rubric).forward is call_written:
            raise RubricDefinitionError(
                f"{type(rubric).__name__}.__call__ calls super().__call__(), "
                "but no base class implements forward"
            )
        return rubric.forward(action, observation)
    if not traits.is_async:
        return run(rubric, parent, action, observation)
    limiter = parent.limiter if parent is not None else None
    coroutine = run_async(rubric, parent, action, observation, limiter)
    if parent is not None:
        parent.unawaited = [*(parent.unawaited or ()), (rubric, coroutine)]
    return coroutine


def run(rubric: Any, parent: Any, action: Any, observation: Any) -> float:
    """Evaluate a rubric of a sync tree into a frame of `parent`."""
    with Frame(rubric, parent, observation) as frame:
        if rubric._mode:  # nothing but `forward`
            frame.finish(rubric.forward(action, observation))
        else:
            frame.begin(action)
            _check_hooks(rubric)
            for hook in list(rubric._pre_hooks.values()):
                _check_result(rubric, hook, hook(rubric, action, observation))
            frame.finish(_forward(rubric, action, observation))
            for hook in list(rubric._hooks.values()):
                try:
                    _check_result(rubric, hook, hook(rubric, action, observation, frame.value))
                except Exception as error:
                    frame.report_hook(_name(hook), error)
    return awaitable(frame.result()) if rubric._may_be_awaited else frame.result()


async def run_async(
    rubric: Any,
    parent: Any,
    action: Any,
    observation: Any,
    limiter: anyio.CapacityLimiter | None,
) -> float:
    """Evaluate a rubric, sync or async, in async code.

    Args:
        rubric: Any rubric.
        parent: The frame or recorder that records it, if any.
        action: The action of the agent.
        observation: The observation that it led to.
        limiter: Limits the worker threads that sync leaves run in; None runs them inline.
    """
    with Frame(rubric, parent, observation) as frame:
        frame.limiter = limiter
        frame.begin(action)
        for hook in list(rubric._pre_hooks.values()):
            await _settled(hook(rubric, action, observation))
        frame.finish(await _settled(_start(frame, action)))
        for hook in list(rubric._hooks.values()):
            try:
                await _settled(hook(rubric, action, observation, frame.value))
            except Exception as error:
                frame.report_hook(_name(hook), error)
    return frame.result()


def _start(frame: Frame, action: Any) -> Any:
    """Start `forward` in async code; the result may be awaitable."""
    rubric: Any = frame.rubric
    observation = frame.observation
    if rubric._waits:
        return rubric.forward_async(action, observation)
    frame.awaits = rubric._is_container or rubric._find_traits().is_async
    if frame.limiter is None or frame.awaits:
        return _forward(rubric, action, observation)
    return in_thread(frame.limiter, _forward, rubric, action, observation)


async def _settled(result: Any) -> Any:
    return await result if hasattr(result, "__await__") else result


def _check_hooks(rubric: Any) -> None:
    for hook in (*rubric._pre_hooks.values(), *rubric._hooks.values()):
        if is_async_callable(hook):
            raise _async_hook(rubric, hook)


def _check_result(rubric: Any, hook: Any, result: Any) -> None:
    if close_awaitable(result):
        raise _async_hook(rubric, hook)


def _async_hook(rubric: Any, hook: Any) -> AsyncRubricError:
    return AsyncRubricError(
        f"the hook {_name(hook)} of {type(rubric).__name__} returns an awaitable, but the tree has "
        "no async member; write a plain function, or use `await rubric.evaluate(…)`"
    )


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or type(function).__name__


async def in_thread(
    limiter: anyio.CapacityLimiter | None, function: Callable[..., T], *args: object
) -> T:
    """Run a function in a worker thread; when cancelled, abandon the thread."""
    import anyio.to_thread

    if (calls := thread_calls.get()) is not None:
        function = functools.partial(calls.run, function)
    with Turn() as turn:
        return await anyio.to_thread.run_sync(
            turn.run, function, *args, limiter=limiter, abandon_on_cancel=True
        )


class ThreadCalls:
    """Counts the calls of a rollout in threads, also those that were abandoned.

    Args:
        finish: Called once the rollout and the last of its calls have ended.
    """

    def __init__(self, finish: Callable[[], object]) -> None:
        self._finish = finish
        self._lock = threading.Lock()
        self.running = 1  # the rollout and its calls

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Count the calls of a rollout, which is the body."""
        token = thread_calls.set(self)
        try:
            yield
        finally:
            thread_calls.reset(token)
            self._end()

    def run(self, function: Callable[..., T], *args: object) -> T:
        """Call a function."""
        with self._lock:
            if not self.running:  # it was abandoned before it began
                raise RubricError("the rollout has ended")
            self.running += 1
        try:
            return function(*args)
        finally:
            self._end()

    def _end(self) -> None:
        with self._lock:
            self.running -= 1
            is_last = not self.running
        if is_last:
            self._finish()


thread_calls: ContextVar[ThreadCalls | None] = ContextVar("guerdon_thread_calls", default=None)


# Authors who override __call__ -------------------------------------------------------------------


def evaluating(written: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    """Make an author's ``__call__`` evaluate the rubric: its hooks, checks and recording work."""

    @functools.wraps(written)
    def call(self: Any, action: Any, observation: Any) -> Any:
        frame = current()
        if frame is not None and frame.rubric is self:  # super().__call__() in that of a subclass
            return written(self, action, observation)
        return evaluate_call(self, action, observation)

    return call


def call_written(self: Any, action: Any, observation: Any) -> Any:
    """The `forward` of a rubric that only overrides ``__call__``."""
    return self._written_calls[0](self, action, observation)


def _forward(rubric: Any, action: Any, observation: Any) -> Any:
    """Run what the author wrote."""
    if rubric._written_calls:
        return call_written(rubric, action, observation)
    return rubric.forward(action, observation)


def is_async_callable(function: Any) -> bool:
    """Whether calling a function is known to return an awaitable."""
    function = unwrapped(function)
    # The second: an object whose __call__ is async.
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(type(function), "__call__", None)  # noqa: B004
    )


# Containers --------------------------------------------------------------------------------------


def adaptive(
    forward: Callable[[Any, Any, Any], Coroutine[Any, Any, float]],
) -> Callable[[Any, Any, Any], Any]:
    """Make of an ``async def forward`` one that is sync in sync trees.

    What it awaits must be made with `score_child` and `score_children`: in a sync tree they never
    suspend, so that the coroutine runs to its end at once.
    """

    @functools.wraps(forward)
    def adapted(self: Any, action: Any, observation: Any) -> Any:
        frame = current()
        coroutine = forward(self, action, observation)
        own = frame is not None and frame.rubric is self
        if (own and frame.awaits) or self._find_traits().is_async:  # type: ignore[union-attr]
            if own:
                frame.unawaited = [*(frame.unawaited or ()), (self, coroutine)]  # type: ignore[union-attr]
            return coroutine
        try:
            coroutine.send(None)
        except StopIteration as end:
            return end.value
        coroutine.close()
        raise AsyncRubricError(f"{type(self).__name__}.forward waited in a sync tree")

    adapted._is_adaptive = True  # type: ignore[attr-defined]
    return adapted


async def score_child(parent: Any, child: Any, action: Any, observation: Any) -> float:
    """Evaluate a child in a `forward` that is `adaptive`: as the child needs it, or at once."""
    frame = current()
    if frame is not None and frame.rubric is parent and frame.awaits:
        traits = child._find_traits()
        if traits.is_async or traits.waits or frame.limiter is not None:
            return await run_async(child, frame, action, observation, frame.limiter)
    return await _settled(child(action, observation))  # type: ignore[no-any-return]


async def score_children(
    parent: Any, children: Sequence[Any], action: Any, observation: Any
) -> list[float]:
    """Evaluate children that don't depend on each other, concurrently where the parent awaits."""
    frame = current()
    if frame is None or frame.rubric is not parent or not frame.awaits:
        return [await score_child(parent, child, action, observation) for child in children]
    return await together(
        [functools.partial(score_child, parent, child, action, observation) for child in children]
    )


async def together(jobs: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """Run jobs concurrently. The first to fail cancels the others; its exception is re-raised."""
    import anyio

    results: dict[int, T] = {}
    failure: list[Exception | SystemExit] = []

    async def work(place: int, scope: anyio.CancelScope) -> None:
        try:
            results[place] = await jobs[place]()
        except (Exception, SystemExit) as error:  # sys.exit() in a task would end the event loop
            failure.append(error)
            scope.cancel()

    async with anyio.create_task_group() as group:
        for place in range(len(jobs)):
            group.start_soon(work, place, group.cancel_scope)
    if failure:
        raise failure[0]
    if len(results) < len(jobs):
        raise RubricError("async code of a rubric raised CancelledError without a cancellation")
    return [results[place] for place in range(len(jobs))]


# Batches ---------------------------------------------------------------------------------------


_PAIR = "in pair "  # begins the note on an exception that names the pair that raised it


async def evaluate_batch(
    rubric: Any, pairs: Iterable[tuple[Any, Any]], max_workers: int, return_exceptions: bool
) -> list[Any]:
    """See `Rubric.evaluate_batch`."""
    import anyio

    check_integer("max_workers", max_workers, low=1)
    batch = _Batch(rubric, pairs, return_exceptions)
    traits = rubric._find_traits()
    workers = 1 if traits.has_trajectory else min(max_workers, len(batch.results))
    limiter = anyio.CapacityLimiter(max(workers, 1))
    awaits = traits.is_async or traits.waits
    job = batch.work_async if awaits else functools.partial(batch.work_in_thread, limiter)
    await together([job] * workers)
    return batch.results


class _Batch:
    """Pairs that several workers take from."""

    def __init__(self, rubric: Any, pairs: Iterable[Any], return_exceptions: bool) -> None:
        self._waiting = deque(enumerate(pairs))  # threads may take from a deque
        self.results: list[Any] = [None] * len(self._waiting)
        self._rubric = rubric
        self._return_exceptions = return_exceptions
        for place, pair in self._waiting:
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise InvalidArgumentError(
                    f"`pairs[{place}]` must be a pair of an action and an observation, "
                    f"got {shown(pair)}"
                )

    async def work_async(self) -> None:
        for place, pair in self._taken():
            try:
                self.results[place] = await self._rubric.evaluate(*pair)
            except Exception as error:
                self._failed(place, error)

    async def work_in_thread(self, limiter: anyio.CapacityLimiter) -> None:
        try:
            await in_thread(limiter, self._work)
        except BaseException:  # cancelled: the thread runs on, but takes no more pairs
            self._waiting.clear()
            raise

    def _work(self) -> None:
        for place, pair in self._taken():
            try:
                self.results[place] = self._rubric(*pair)
            except Exception as error:
                self._failed(place, error)

    def _taken(self) -> Iterator[tuple[int, Any]]:
        with contextlib.suppress(IndexError):  # it is empty
            while True:
                yield self._waiting.popleft()

    def _failed(self, place: int, error: Exception) -> None:
        if self._return_exceptions:
            self.results[place] = error
            return
        self._waiting.clear()
        # An exception that another batch has raised names the last pair alone.
        notes = [note for note in getattr(error, "__notes__", ()) if not note.startswith(_PAIR)]
        error.__notes__ = [*notes, f"{_PAIR}{place} of {len(self.results)}"]
        raise error
