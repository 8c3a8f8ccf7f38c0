"""`Job`: a file of rollouts in, a file of result rows out, in bounded memory."""

from __future__ import annotations

import contextlib
import itertools
import json
import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from time import perf_counter
from typing import IO, Any, cast

from guerdon.errors import InvalidArgumentError, ResumeError, RolloutError, WorkerError
from guerdon.functions.loading import load_reward
from guerdon.rollouts.files import parse_line, read_lines
from guerdon.rollouts.output import RowWriter, read_finished
from guerdon.rollouts.scoring import ResultRow, RolloutScorer
from guerdon.rollouts.summary import Summary, gates_of

__all__ = ["Job", "JobReport"]

Line = tuple[int, bytes]

# A worker gets about this much work at a time, so that little is lost and little is sent.
CHUNK_SECONDS = 0.5
CHUNK_ROWS = 512
FLUSH_SECONDS = 1.0

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


@dataclass(slots=True)
class JobReport:
    """How a run ended.

    Attributes:
        summary: Over all rows, those of an earlier run that was resumed included.
        fingerprint: The reward's.
        seconds: How long scoring took.
        scored: How many rows this run scored.
        resumed: How many an earlier run had finished.
        interrupted: Whether ctrl-C ended it; every finished row is written.
    """

    summary: Summary
    fingerprint: str
    seconds: float = 0.0
    scored: int = 0
    resumed: int = 0
    interrupted: bool = False


@dataclass(slots=True)
class Job:
    """Scores every rollout of a JSONL file.

    Example:
        >>> import json, pathlib
        >>> path = pathlib.Path("rollouts.jsonl")
        >>> _ = path.write_text(json.dumps({"id": 1, "ground_truth": "42", "messages": [
        ...     {"role": "assistant", "content": "A: 42"}]}))
        >>> report = Job("rollouts.jsonl", "guerdon:NumericAnswer", out="scored.jsonl").run()
        >>> report.summary.rows, report.summary.score.value
        (1, 1.0)

    Attributes:
        rollouts: The file; ``-`` is standard input.
        reward: The reward as ``module:name`` or ``file.py:name``.
        out: The file for the result rows; ``-`` is standard output, None writes none.
        workers: How many processes score, at least 1. Each loads the reward itself.
        resume: Go on after the rows that stand in `out`.
        by: A column to break the summary down by.
        passing: The score from which on the summary counts a row as passed.
        progress: Called now and then with how many rows are done and how many bytes are read.
    """

    rollouts: str
    reward: str
    out: str | None = None
    workers: int = 1
    resume: bool = False
    by: str | None = None
    passing: float | None = None
    progress: Callable[[int, int], None] | None = None

    def run(self) -> JobReport:
        """Score all rows; ctrl-C ends it early and keeps what is finished.

        Raises:
            SpecError: The reward can't be loaded.
            InvalidArgumentError: The arguments don't go together.
            RolloutError: There is no rollout to score. (Broken rows are rows of the result.)
            ResumeError: `out` was not made by this reward from these rollouts.
            OutputError: The result can't be written.
            WorkerError: A worker process died.
        """
        self._check()
        desk = _Desk(self.reward, self.by, self.passing)
        report = JobReport(desk.summary, desk.fingerprint)
        with contextlib.ExitStack() as stack:
            stack.enter_context(desk)
            file = stack.enter_context(self._open())
            size, last = self._read_finished(desk, report)
            lines = read_lines(file)
            self._skip(lines, report.resumed, last, desk)
            writer = stack.enter_context(RowWriter(self.out, keep=size))
            start = perf_counter()
            try:
                if self.workers == 1:
                    self._run_here(desk, lines, writer, report)
                else:
                    self._run_workers(lines, writer, report)
            except KeyboardInterrupt:
                report.interrupted = True
            report.seconds = perf_counter() - start
        if not report.summary.rows and not report.interrupted:
            raise RolloutError(f"{self._name()} holds no rollouts: it is empty")
        return report

    def _check(self) -> None:
        if self.workers < 1:
            raise InvalidArgumentError(f"workers is {self.workers}; it takes at least 1")
        if self.resume and self.out in (None, "-"):
            raise InvalidArgumentError("resuming needs the file to go on with: --out FILE")
        same = self.out not in (None, "-") and self.rollouts != "-"
        if same and os.path.exists(str(self.out)) and os.path.exists(self.rollouts):
            same = os.path.samefile(str(self.out), self.rollouts)
            if same:
                raise InvalidArgumentError(f"{self.out} is the file of the rollouts themselves")

    def _name(self) -> str:
        return "standard input" if self.rollouts == "-" else self.rollouts

    def _open(self) -> contextlib.AbstractContextManager[IO[bytes]]:
        if self.rollouts == "-":
            return contextlib.nullcontext(sys.stdin.buffer)
        try:
            return open(self.rollouts, "rb")
        except OSError as error:
            raise RolloutError(f"can't read {self.rollouts}: {error.strerror}") from error

    def _read_finished(self, desk: _Desk, report: JobReport) -> tuple[int, Any]:
        if not self.resume or self.out is None:
            return 0, None
        # With a breakdown, the rows are counted as their rollouts are passed over.
        count = desk.finished.append if self.by else report.summary.add
        report.resumed, size, last = read_finished(
            self.out, desk.fingerprint, cast("Callable[[dict[str, Any]], None]", count)
        )
        return size, last

    def _skip(self, lines: Iterator[Line], count: int, last: Any, desk: _Desk) -> None:
        """Pass over the rollouts that are finished, seeing to it that they are the same."""
        line = None
        for place in range(count):
            line = next(lines, None)
            if line is None:
                raise ResumeError(f"{self.out} has {count} rows, {self._name()} only {place}")
            if self.by:
                desk.summary.add(desk.finished.popleft(), desk.part_of(line))
        if line is not None and last is not None:
            with contextlib.suppress(RolloutError):  # a broken row has no id to compare
                rollout = parse_line(*line)
                if rollout.id != last:
                    raise ResumeError(
                        f"row {count} of {self.out} is {last!r}, that of {self._name()} is "
                        f"{rollout.id!r}: it was made from other rollouts"
                    )

    def _run_here(
        self, desk: _Desk, lines: Iterable[Line], writer: RowWriter, report: JobReport
    ) -> None:
        flushed = perf_counter()
        read = 0
        for line in lines:
            writer.write(desk.score(line))
            report.scored += 1
            read += len(line[1])
            if report.scored % 64 == 0 or perf_counter() - flushed > FLUSH_SECONDS:
                self._tell(report, read)
                if perf_counter() - flushed > FLUSH_SECONDS:
                    writer.flush()
                    flushed = perf_counter()
        self._tell(report, read)

    def _tell(self, report: JobReport, read: int) -> None:
        if self.progress is not None:
            self.progress(report.resumed + report.scored, read)

    # Workers ---------------------------------------------------------------------------------

    def _run_workers(self, lines: Iterator[Line], writer: RowWriter, report: JobReport) -> None:
        pending: deque[Future[_Chunk]] = deque()
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(
            self.workers, context, _start_worker, (self.reward, self.by, self.passing)
        )
        size, read = 1, 0

        def finish() -> int:
            nonlocal read
            chunk = pending.popleft().result()
            writer.write(chunk.lines, chunk.rows)
            writer.flush()
            report.summary.merge(chunk.summary)
            report.scored += chunk.rows
            read += chunk.read
            self._tell(report, read)
            wished = int(chunk.rows * CHUNK_SECONDS / max(chunk.seconds, 1e-6))
            return max(1, min(CHUNK_ROWS, wished, 2 * chunk.rows))

        try:
            while chunk := list(itertools.islice(lines, size)):
                pending.append(pool.submit(_score_chunk, chunk))
                if len(pending) > 2 * self.workers:
                    size = finish()
            while pending:
                finish()
        except KeyboardInterrupt:
            # What runs is finished, what waits is not started; a second ctrl-C ends that too.
            while pending and pending[-1].cancel():
                pending.pop()
            while pending:
                finish()
            raise
        except BrokenProcessPool:
            raise WorkerError(
                "a worker process died (was it killed, or out of memory?) after "
                f"{report.resumed + report.scored} rows; they are kept, and --resume goes on"
            ) from None
        finally:
            pool.shutdown(wait=not pending, cancel_futures=True)


@dataclass(slots=True)
class _Chunk:
    lines: bytes
    rows: int
    read: int
    seconds: float
    summary: Summary


class _Desk:
    """Where lines are scored: a reward with the summary of what it gave."""

    def __init__(self, reward: str, by: str | None, passing: float | None) -> None:
        rubric = load_reward(reward)
        self.by = by
        self.scorer = RolloutScorer(rubric)
        self.fingerprint = self.scorer.fingerprint
        self.summary = Summary(tuple(gates_of(rubric)), passing)
        self.finished: deque[ResultRow] = deque()

    def __enter__(self) -> _Desk:
        return self

    def __exit__(self, *error: Any) -> None:
        self.scorer.__exit__(*error)

    def score(self, line: Line) -> bytes:
        """Score the rollout of a line; the line of its result."""
        part = None
        try:
            rollout = parse_line(*line)
        except RolloutError as error:
            row = self.scorer.failed(error)
        else:
            row = self.scorer.score(rollout)
            if self.by is not None:
                part = str(rollout.columns.get(self.by))
        self.summary.add(row, part)
        return _encode(row).encode() + b"\n"

    def part_of(self, line: Line) -> str | None:
        """Which part of the breakdown a line belongs to."""
        try:
            return str(parse_line(*line).columns.get(str(self.by)))
        except RolloutError:
            return None


_desk: _Desk | None = None  # of a worker process


def _start_worker(reward: str, by: str | None, passing: float | None) -> None:
    global _desk
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-C is the parent's to deal with
    _desk = _Desk(reward, by, passing)


def _score_chunk(lines: list[Line]) -> _Chunk:
    assert _desk is not None
    _desk.summary = _desk.summary.empty()
    start = perf_counter()
    scored = b"".join([_desk.score(line) for line in lines])
    seconds = perf_counter() - start
    return _Chunk(scored, len(lines), sum(len(line) for _, line in lines), seconds, _desk.summary)
