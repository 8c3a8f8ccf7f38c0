"""Scoring batches of lines in order: in this process, concurrently, or in worker processes.

Each is an `Engine`; all share `score_in_order`, which reads ahead in bounds, yields the results in
the order of the lines, and ends cleanly on ctrl-C. `ray_engine` is the engine on a cluster.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import multiprocessing
import os
import signal
import sys
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from time import perf_counter
from types import FrameType, TracebackType
from typing import Any, Self, TypeAlias

from guerdon.errors import GuerdonError, ScoringError
from guerdon.rollouts.scoring.reading import Line
from guerdon.rollouts.scoring.summary import Summary
from guerdon.services.config import share_limits

# A chunk takes about this long, so that little is lost when a run ends and little is sent between
# processes; and it has at most so many batches.
CHUNK_SECONDS = 0.5
CHUNK_BATCHES = 512

DIED = (
    "a worker process died (was it killed, or out of memory?); the rows that were finished are "
    "kept, continue with --resume"
)

# Batches of lines; the lines of a batch are scored together.
Batches: TypeAlias = list[list[Line]]

# Loads the reward in a worker; returns what scores batches there.
OpenScore: TypeAlias = "Callable[[], Callable[[Batches], ScoredChunk]]"


@dataclass(slots=True)
class ScoredChunk:
    """The result of consecutive batches.

    Attributes:
        encoded: The result rows as JSONL.
        rows: The number of rows.
        read: The number of bytes that their lines have.
        batches: The number of batches that were to be scored.
        seconds: How long scoring took.
        interrupted: Whether ctrl-C ended it before its last batch.
        summary: The summary of the rows; None if the summary of the run has them already.
        failures: The `service_failure` of each row; empty if there is none.
    """

    encoded: bytes
    rows: int
    read: int
    batches: int
    seconds: float
    interrupted: bool = False
    summary: Summary | None = None
    failures: Sequence[str | None] = ()


class Interrupts:
    """While it is entered, ctrl-C sets `requested`, and interrupts only what is in `allowed`.

    A second ctrl-C raises KeyboardInterrupt anywhere. Outside the main thread, which alone can
    handle signals, it changes nothing.

    Attributes:
        requested: Whether the run is to end.
    """

    def __init__(self) -> None:
        self.requested = False
        self._allowed = False
        self._before: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *error: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    @contextlib.contextmanager
    def allowed(self) -> Iterator[None]:
        """A context that ctrl-C ends: the program continues after it."""
        first, self._allowed = not self.requested, True
        try:
            yield
        except KeyboardInterrupt:
            self.requested = True
            if not first:
                raise
        finally:
            self._allowed = False

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        again, self.requested = self.requested, True
        if self._allowed or again:
            self._allowed = False
            raise KeyboardInterrupt


class Engine(ABC):
    """Where chunks are scored. It is entered once, and left when the run ends.

    `score_in_order` decides what is scored when; an engine only starts chunks and ends them.

    Attributes:
        ahead: The most chunks that are submitted at the same time, at least 1.
        smallest: The fewest batches of a chunk, if there are as many, at least 1.
        largest: The most batches of a chunk.
        growth: How many times as large a chunk may be as one before it.
    """

    ahead: int = 1
    smallest: int = 1
    largest: int = CHUNK_BATCHES
    growth: int = 2

    def __enter__(self) -> Self:
        return self

    def __exit__(  # noqa: B027  not every engine occupies something
        self, kind: object, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Free what the engine occupies; with an error, end the chunks that are being scored."""

    @abstractmethod
    def submit(self, chunk: Batches) -> Future[ScoredChunk]:
        """Start to score a chunk."""

    def finishing(self, pending: Iterable[Future[ScoredChunk]]) -> Iterator[Future[ScoredChunk]]:
        """The first of the pending chunks, whose results are waited for after ctrl-C."""
        return itertools.takewhile(self.finishes, pending)

    def finishes(self, future: Future[ScoredChunk]) -> bool:
        """Whether the result of a chunk is waited for after ctrl-C: if it has begun."""
        return not future.cancel()


class InThisThread(Engine):
    """Scores in this thread. Ctrl-C ends it at once; batches that are finished are kept.

    Args:
        score: Scores batches. It handles KeyboardInterrupt.
    """

    def __init__(self, score: Callable[[Batches], ScoredChunk]) -> None:
        self._score = score

    def submit(self, chunk: Batches) -> Future[ScoredChunk]:
        """Score a chunk."""
        future: Future[ScoredChunk] = Future()
        future.set_result(self._score(chunk))
        return future


class InScoringLoop(Engine):
    """Scores concurrently in an event loop, whose owner closes it.

    Ctrl-C ends what is being scored, except for the chunks before one that is finished.

    Args:
        score: Scores batches, in the event loop.
        start: Starts a coroutine in the event loop.
        ahead: The most chunks that are submitted at the same time.
    """

    largest = 64
    growth = 64  # the first chunks, of one batch, show how long one takes

    def __init__(
        self,
        score: Callable[[Batches], Coroutine[Any, Any, ScoredChunk]],
        *,
        start: Callable[[Coroutine[Any, Any, ScoredChunk]], Future[ScoredChunk]],
        ahead: int,
    ) -> None:
        self.ahead = ahead
        self._score, self._start = score, start

    def submit(self, chunk: Batches) -> Future[ScoredChunk]:
        """Start to score a chunk in the event loop."""
        return self._start(self._score(chunk))

    def finishing(self, pending: Iterable[Future[ScoredChunk]]) -> Iterator[Future[ScoredChunk]]:
        """The chunks up to the last that is finished; the others are cancelled."""
        kept = list(pending)
        while kept and not kept[-1].done():
            kept.pop().cancel()
        return iter(kept)


class InThreads(Engine):
    """Scores in threads that wait for a sandbox.

    Ctrl-C ends it at once; the batches that are finished and next in order are kept.

    Args:
        score: Scores batches, in a thread.
        workers: The number of threads.
        stop: Ends what is being scored, so that the threads return.
        chunks: Whether to score many batches at a time.
    """

    def __init__(
        self,
        score: Callable[[Batches], ScoredChunk],
        *,
        workers: int,
        stop: Callable[[], None],
        chunks: bool = False,
    ) -> None:
        self.ahead = 2 * workers + 1
        self.largest = CHUNK_BATCHES if chunks else 1
        self._score, self._stop = score, stop
        self._pool = ThreadPoolExecutor(workers, "guerdon-score")

    def __exit__(self, *error: object) -> None:
        self._stop()
        self._pool.shutdown(cancel_futures=True)

    def submit(self, chunk: Batches) -> Future[ScoredChunk]:
        """Start to score a chunk in a thread."""
        return self._pool.submit(self._score, chunk)

    def finishes(self, future: Future[ScoredChunk]) -> bool:
        """Whether the chunk is finished."""
        return future.done() and not future.cancelled() and future.exception() is None


class InProcesses(Engine):
    """Scores in worker processes.

    After ctrl-C the chunks that are running are finished; a second ctrl-C ends them.

    Args:
        open_score: Called once in each process; returns what scores batches there.
        workers: The number of processes.

    Raises:
        ScoringError: From a chunk: its process died.
    """

    def __init__(self, open_score: OpenScore, *, workers: int) -> None:
        self.ahead = 2 * workers + 1
        self._arguments = open_score, workers
        # Each thread has a process, and a pipe to it: the queues of a pool of processes have named
        # semaphores, which stay if all processes are killed.
        self._threads = ThreadPoolExecutor(workers, "guerdon-score")
        self._own = threading.local()
        self._workers: list[tuple[BaseProcess, Connection]] = []

    def __exit__(
        self, kind: object, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:  # also a closed generator: no chunk is waited for
            for process, _ in self._workers:
                process.terminate()
        self._threads.shutdown(cancel_futures=True)
        for process, pipe in self._workers:
            pipe.close()  # which ends it
            process.join()

    def submit(self, chunk: Batches) -> Future[ScoredChunk]:
        """Start to score a chunk in the next process that is free."""
        return self._threads.submit(self._score, chunk)

    def _score(self, chunk: Batches) -> ScoredChunk:
        if not hasattr(self._own, "pipe"):
            self._own.pipe = self._start()
        try:
            self._own.pipe.send(chunk)
            result: ScoredChunk | BaseException = self._own.pipe.recv()
        except (EOFError, OSError):
            raise ScoringError(DIED) from None
        if isinstance(result, BaseException):
            raise result
        return result

    def _start(self) -> Connection:
        context = multiprocessing.get_context("spawn")
        pipe, its_pipe = context.Pipe()
        process = context.Process(target=_work, args=(its_pipe, *self._arguments))
        with _blocked_interrupts(), its_pipe:  # the process inherits this
            process.start()
        self._workers.append((process, pipe))
        return pipe


def score_in_order(
    batches: Iterator[list[Line]], engine: Engine, *, interrupts: Interrupts
) -> Generator[ScoredChunk, None, None]:
    """Score batches with an engine, with up to `engine.ahead` chunks submitted.

    After ctrl-C nothing more is submitted, and the results up to the first chunk that doesn't
    finish are yielded.

    Args:
        batches: The lines that are scored together.
        engine: Where they are scored.
        interrupts: Where ctrl-C is allowed and recorded.

    Yields:
        The result of each chunk, in order.

    Raises:
        ScoringError: A process died.
        GuerdonError: What reading the lines raised, after the results of the lines before.
    """
    pending: deque[Future[ScoredChunk]] = deque()
    failed: list[GuerdonError] = []
    readable = _until_error(batches, failed)
    size = engine.smallest
    with engine:
        while True:
            reading = 0.0
            while len(pending) < engine.ahead and not interrupts.requested:
                start = perf_counter()
                chunk: Batches = []
                with interrupts.allowed():
                    chunk = list(itertools.islice(readable, size))
                reading = max(reading, perf_counter() - start)
                if not chunk:
                    break
                pending.append(engine.submit(chunk))
            if interrupts.requested:
                pending = deque(engine.finishing(pending))
            if not pending:
                break
            scored = None
            with interrupts.allowed():
                scored = pending[0].result()
            if scored is None:  # ctrl-C
                continue
            pending.popleft()
            yield scored
            if scored.interrupted:
                interrupts.requested = True
                return
            wished = scored.batches * CHUNK_SECONDS / max(scored.seconds, reading, 1e-6)
            size = max(
                engine.smallest, min(engine.largest, int(wished), engine.growth * scored.batches)
            )
    if failed and not interrupts.requested:
        raise failed[0]


def _until_error(batches: Iterator[list[Line]], failed: list[GuerdonError]) -> Iterator[list[Line]]:
    """The batches up to where reading them raised."""
    try:
        yield from batches
    except GuerdonError as error:
        failed.append(error)


@contextlib.contextmanager
def _blocked_interrupts() -> Iterator[None]:
    """Block ctrl-C, if the system can; a process that is started here inherits that."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# In a worker process -----------------------------------------------------------------------------

# What scores here; an error is raised with the first chunk, since it would break the pool at start.
_score: Callable[[Batches], ScoredChunk] | GuerdonError


def _work(pipe: Connection, open_score: OpenScore, workers: int) -> None:
    """Score the chunks that the parent sends, until it closes the pipe."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles ctrl-C
    open_worker(open_score, workers)
    with contextlib.suppress(EOFError, OSError):
        while True:
            chunk = pipe.recv()
            try:
                pipe.send(score_in_worker(chunk))
            except Exception as error:
                pipe.send(error)


def open_worker(open_score: OpenScore, workers: int) -> None:
    """Load the reward in this process, for `score_in_worker`.

    Args:
        open_score: Returns what scores batches.
        workers: The number of processes that score, which share the limits of services.
    """
    global _score
    share_limits(workers)
    sys.stdout = sys.stderr  # what a reward prints must not get between the rows
    # The parent has shown the warnings about the reward's file.
    logging.getLogger("guerdon.config").addHandler(logging.NullHandler())
    try:
        _score = open_score()
    except GuerdonError as error:
        _score = error


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def score_in_worker(chunk: Batches) -> ScoredChunk:
    """Score a chunk with the reward of this process.

    Raises:
        GuerdonError: The reward could not be loaded.
    """
    if isinstance(_score, GuerdonError):
        raise _score
    return _score(chunk)
