"""Scoring in several processes, a chunk of lines at a time, with the results in order."""

from __future__ import annotations

import itertools
import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from time import perf_counter

from guerdon.errors import GuerdonError, ScoringError
from guerdon.rollouts.scoring.desk import Desk, Settings
from guerdon.rollouts.scoring.files import Line
from guerdon.rollouts.scoring.interrupts import Interrupts, held_back
from guerdon.rollouts.scoring.summary import Summary

__all__ = ["Chunk", "score_in_workers", "until_refused"]

# A worker gets about this much work at a time, so that little is lost and little is sent.
CHUNK_SECONDS = 0.5
CHUNK_ROWS = 512


@dataclass(frozen=True, slots=True)
class Chunk:
    """What became of some lines.

    Attributes:
        lines: The lines of the result.
        batches: How many batches there were.
        rows: How many lines there are.
        read: How many bytes the lines had.
        seconds: How long scoring them took.
        summary: Over these rows.
    """

    lines: bytes
    batches: int
    rows: int
    read: int
    seconds: float
    summary: Summary


def score_in_workers(  # noqa: C901
    batches: Iterator[list[Line]], workers: int, interrupts: Interrupts, settings: Settings
) -> Iterator[Chunk]:
    """Score lines in processes.

    After ctrl-C the chunks that have been started are finished, and no more are started; a second
    one ends that too.

    Args:
        batches: Lines that are scored together.
        workers: How many processes.
        interrupts: Where ctrl-C is allowed, and noticed.
        settings: Those of the `Desk` of each process.

    Yields:
        Chunks, in the order of the lines.

    Raises:
        ScoringError: A process died.
        GuerdonError: What reading the lines raised, after what stood before it is scored.
    """
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), _start, (settings,)
    )  # fmt: skip
    pending: deque[Future[Chunk]] = deque()
    refused: list[GuerdonError] = []
    batches = until_refused(batches, refused)
    size = 1
    try:
        while True:
            while len(pending) <= 2 * workers and not interrupts.asked:
                if not (chunk := list(itertools.islice(batches, size))):
                    break
                with held_back():  # submitting may start a process
                    pending.append(pool.submit(_score, chunk))
            if interrupts.asked:
                while pending and pending[-1].cancel():
                    pending.pop()
            if not pending and refused:
                raise refused[0]
            if not pending:
                return
            done = _wait(pending[0], interrupts)
            if done is not None:
                pending.popleft()
                size = _next_size(done)
                yield done
    except BrokenProcessPool:
        raise ScoringError(
            "a worker process died (was it killed, or out of memory?); the rows that were "
            "finished are kept, and --resume goes on"
        ) from None
    finally:
        if pending:  # nobody waits for these any more, however long they would take
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
        pool.shutdown(wait=True, cancel_futures=True)


def until_refused(
    batches: Iterator[list[Line]], refused: list[GuerdonError]
) -> Iterator[list[Line]]:
    """The batches up to where reading them raised."""
    try:
        yield from batches
    except GuerdonError as error:
        refused.append(error)


def _wait(future: Future[Chunk], interrupts: Interrupts) -> Chunk | None:
    """The chunk, or None where a first ctrl-C came before it."""
    first = not interrupts.asked
    try:
        interrupts.allowed = True
        return future.result()
    except KeyboardInterrupt:
        if first:
            return None
        raise
    finally:
        interrupts.allowed = False


def _next_size(chunk: Chunk) -> int:
    wished = int(chunk.batches * CHUNK_SECONDS / max(chunk.seconds, 1e-6))
    return max(1, min(CHUNK_ROWS, wished, 2 * chunk.batches))


# In a worker process ---------------------------------------------------------------------------

_desk: Desk | None = None
_refused: GuerdonError | None = None


def _start(settings: Settings) -> None:
    global _desk, _refused
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-C is the parent's to deal with
    sys.stdout = sys.stderr  # what a reward prints may not get between the rows
    # What reading the reward's file warns of, the parent has told.
    logging.getLogger("guerdon.config").addHandler(logging.NullHandler())
    try:
        _desk = Desk(settings)
    except GuerdonError as error:
        _refused = error  # told with the first chunk: an error here would only break the pool


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _score(batches: list[list[Line]]) -> Chunk:
    if _refused is not None:
        raise _refused
    assert _desk is not None
    _desk.summary = _desk.summary.empty()
    start = perf_counter()
    scored = [_desk.score(lines) for lines in batches]
    for each in scored:
        _desk.count(each)
    seconds = perf_counter() - start
    read = sum(len(line) for lines in batches for _, line in lines)
    text = b"".join(each.lines for each in scored)
    rows = sum(len(lines) for lines in batches)
    return Chunk(text, len(batches), rows, read, seconds, _desk.summary)
