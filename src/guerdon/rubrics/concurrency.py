"""Evaluating at the same time: the children of a container, and the pairs of a batch."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from guerdon.errors import InvalidArgumentError
from guerdon.rubrics.call import replace_note
from guerdon.rubrics.evaluation import run_async
from guerdon.rubrics.frames import Frame, current
from guerdon.rubrics.threads import in_thread

if TYPE_CHECKING:
    from guerdon.rubrics.rubric import Rubric

__all__ = ["evaluate", "evaluate_batch", "evaluate_child", "evaluate_together"]

T = TypeVar("T")

DEFAULT_THREADS = 32


async def together(jobs: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """Run jobs at the same time. The first to fail cancels the others, and is raised as it is."""
    results: dict[int, T] = {}
    failure: list[Exception | SystemExit] = []

    async def run(place: int, scope: anyio.CancelScope) -> None:
        try:
            results[place] = await jobs[place]()
        except (Exception, SystemExit) as error:  # sys.exit() in a task would end the event loop
            failure.append(error)
            scope.cancel()

    async with anyio.create_task_group() as group:
        for place in range(len(jobs)):
            group.start_soon(run, place, group.cancel_scope)
    if failure:
        raise failure[0]
    return [results[place] for place in range(len(jobs))]


async def evaluate_child(frame: Frame, child: Rubric, action: Any, observation: Any) -> float:
    """Evaluate one child of a container: awaited, in a thread, or inline, as it needs."""
    traits = child._look()
    if traits.is_async or traits.waits or frame.limiter is not None:
        return await run_async(child, frame, action, observation, frame.limiter)
    score: float = child(action, observation)
    return score


async def evaluate_together(
    frame: Frame, children: Sequence[Rubric], action: Any, observation: Any
) -> list[float]:
    """Evaluate children that don't depend on each other at the same time."""

    def job(child: Rubric) -> Callable[[], Awaitable[float]]:
        return lambda: evaluate_child(frame, child, action, observation)

    return await together([job(child) for child in children])


async def evaluate(rubric: Rubric, action: Any, observation: Any) -> float:
    """See `Rubric.evaluate`."""
    parent = current()
    limiter = (parent and parent.limiter) or anyio.CapacityLimiter(DEFAULT_THREADS)
    return await run_async(rubric, parent, action, observation, limiter)


class _PairNote(str):
    """The note on an exception that says which pair raised it."""


async def evaluate_batch(  # noqa: C901
    rubric: Rubric,
    pairs: Iterable[tuple[Any, Any]],
    max_workers: int,
    return_exceptions: bool,
) -> list[Any]:
    """See `Rubric.evaluate_batch`."""
    if isinstance(max_workers, bool) or not isinstance(max_workers, int) or max_workers < 1:
        raise InvalidArgumentError(f"max_workers is {max_workers!r}; it takes an int of at least 1")
    batch = _checked(pairs)
    traits = rubric._look()
    workers = 1 if traits.holds_trajectory else min(max_workers, len(batch))
    results: list[Any] = [None] * len(batch)
    places = _shared(iter(range(len(batch))))
    stopped = threading.Event()

    def fail(place: int, error: Exception) -> None:
        if not return_exceptions:
            stopped.set()
            replace_note(error, _PairNote, _PairNote(f"in pair {place} of {len(batch)}"))
            raise error
        results[place] = error

    async def work_async() -> None:
        for place in places:
            try:
                results[place] = await evaluate(rubric, *batch[place])
            except Exception as error:
                fail(place, error)

    def work() -> None:
        for place in places:
            if stopped.is_set():
                return
            try:
                results[place] = rubric(*batch[place])
            except Exception as error:
                fail(place, error)

    async def work_in_thread() -> None:
        try:
            await in_thread(limiter, work)
        except BaseException:  # cancelled: the thread goes on by itself, but takes no more
            stopped.set()
            raise

    limiter = anyio.CapacityLimiter(max(workers, 1))
    awaited = traits.is_async or traits.waits
    await together([work_async if awaited else work_in_thread] * workers)
    return results


def _checked(pairs: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    batch = list(pairs)
    for place, pair in enumerate(batch):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise InvalidArgumentError(
                f"pairs[{place}] is {pair!r:.80}; it takes a pair of an action and an observation"
            )
    return batch


def _shared(places: Iterator[int]) -> Iterator[int]:
    """An iterator that several threads may take from."""
    lock = threading.Lock()

    def take() -> int:
        with lock:
            return next(places, -1)

    return iter(take, -1)
