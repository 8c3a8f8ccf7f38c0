"""Scoring in several threads, for rewards that run in a sandbox, with the results in order."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from guerdon.errors import GuerdonError
from guerdon.rollouts.scoring.desk import Scored
from guerdon.rollouts.scoring.files import Line
from guerdon.rollouts.scoring.interrupts import Interrupts
from guerdon.rollouts.scoring.workers import until_refused

__all__ = ["score_in_threads"]


def score_in_threads(
    batches: Iterator[list[Line]],
    workers: int,
    *,
    score: Callable[[Sequence[Line]], Scored],
    stop: Callable[[], None],
    interrupts: Interrupts,
) -> Iterator[tuple[Scored, list[Line]]]:
    """Score lines in threads, which do nothing but wait for a sandbox.

    Ctrl-C ends it at once: what is finished and next in order is still given.

    Args:
        batches: Lines that are scored together.
        workers: How many threads.
        score: Scores the lines of a batch, in a thread.
        stop: Ends what is being scored, so that the threads come back.
        interrupts: Where ctrl-C is allowed, and noticed.

    Yields:
        What became of each batch, in order, with its lines.

    Raises:
        GuerdonError: What reading the lines raised, after what stood before it is scored.
    """
    pool = ThreadPoolExecutor(workers, "guerdon-score")
    pending: deque[tuple[Future[Scored], list[Line]]] = deque()
    refused: list[GuerdonError] = []
    batches = until_refused(batches, refused)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            while not interrupts.asked:
                while len(pending) <= 2 * workers and (lines := _next(batches, interrupts)):
                    pending.append((pool.submit(score, lines), lines))
                if not pending:
                    break
                scored = _result(pending[0][0], interrupts)
                yield scored, pending.popleft()[1]
        while pending and _is_finished(pending[0][0]):
            future, lines = pending.popleft()
            yield future.result(), lines
        if refused and not pending:
            raise refused[0]
    finally:
        stop()
        pool.shutdown(wait=True, cancel_futures=True)


def _next(batches: Iterator[list[Line]], interrupts: Interrupts) -> list[Line] | None:
    interrupts.allowed = True
    try:
        return next(batches, None)
    finally:
        interrupts.allowed = False


def _result(future: Future[Scored], interrupts: Interrupts) -> Scored:
    interrupts.allowed = True
    try:
        return future.result()
    finally:
        interrupts.allowed = False


def _is_finished(future: Future[Scored]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None
