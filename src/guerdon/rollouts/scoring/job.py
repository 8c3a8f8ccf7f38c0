"""`ScoringJob`: score a file of rollouts into a file of result rows, in bounded memory."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any, Self, TypeAlias

from guerdon._loading import library_of
from guerdon._validation import check_choice, check_integer
from guerdon.config.pipeline import RewardPipeline, is_pipeline_file, open_reward
from guerdon.errors import InvalidArgumentError, RolloutError
from guerdon.rollouts.crediting import CreditSettings, RowCredit
from guerdon.rollouts.scoring import parquet, reading, scorers
from guerdon.rollouts.scoring.execution import (
    Engine,
    InProcesses,
    InScoringLoop,
    Interrupts,
    InThisThread,
    InThreads,
    ScoredChunk,
    score_in_order,
)
from guerdon.rollouts.scoring.outage import Outage, service_failure
from guerdon.rollouts.scoring.reading import Line, name_of_file
from guerdon.rollouts.scoring.result_rows import ResultRow, RowWriter, encode_row, read_finished
from guerdon.rollouts.scoring.scorers import RubricScorer, SandboxScorer, SandboxSettings, Scorer
from guerdon.rollouts.scoring.summary import GroupSummary, Summary, group_stats
from guerdon.rubrics.composer import RubricComposer
from guerdon.rubrics.copies import ROLLOUTS
from guerdon.rubrics.functions.function import RewardFunction
from guerdon.rubrics.rubric import Rubric
from guerdon.rubrics.state import fingerprint_of
from guerdon.types.rollout import Rollout

__all__ = ["ScoringJob", "ScoringReport"]

ENGINES = ("processes", "ray")

# The parts of a breakdown for rollouts without the column, and for lines that can't be read.
NO_VALUE = "(none)"
UNREADABLE = "(unreadable)"


@dataclass(slots=True)
class ScoringReport:
    """How a run ended.

    Example:
        >>> report = ScoringReport(Summary(), "0123456789abcdef", seconds=2.0, scored=500)
        >>> report.rate, report.interrupted
        (250.0, False)

    Attributes:
        summary: The summary of all rows, including those of an earlier run that was resumed.
        fingerprint: The fingerprint of the reward.
        seconds: How long scoring took.
        scored: How many rows this run scored.
        resumed: How many rows an earlier run had finished.
        interrupted: Whether ctrl-C ended the run; every finished row is written.
        stopped: Why the run ended before the last row, because a service is down, and how it is
            continued; every row before is written.
        sandbox: The sandbox that the reward ran in: ``level``, ``promise``, ``limits``,
            ``allow_read``.
    """

    summary: Summary
    fingerprint: str
    seconds: float = 0.0
    scored: int = 0
    resumed: int = 0
    interrupted: bool = False
    stopped: str | None = None
    sandbox: dict[str, Any] | None = None

    @property
    def rate(self) -> float:
        """How many rows were scored per second."""
        return self.scored / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class ScoringJob:
    """Scores every rollout of a file. It can be sent to another process.

    Example:
        >>> import json, pathlib
        >>> path = pathlib.Path("rollouts.jsonl")
        >>> _ = path.write_text(json.dumps({"id": 1, "ground_truth": "42", "messages": [
        ...     {"role": "assistant", "content": "A: 42"}]}))
        >>> report = ScoringJob("rollouts.jsonl", "guerdon:NumericAnswer", out="scored.jsonl").run()
        >>> report.summary.rows, report.summary.score.value
        (1, 1.0)

    Attributes:
        rollouts: The file of rollouts; ``-`` is standard input.
        reward: The reward as ``reward.yaml``, ``module:name`` or ``file.py:name``.
        out: The file for the result rows: JSONL, or Parquet if it ends with ``.parquet``; ``-`` is
            standard output, None writes none. Until all rows of a Parquet file are scored, they
            are in a JSONL file beside it, whose name ends with ``.partial``.
        workers: The number of processes that score, at least 1. Each loads the reward itself, and
            they share the limits of services. By default this process alone; on Ray one for each
            free CPU of the cluster. Without Ray, a sandbox runs so many calls at the same time.
        engine: Where the workers are: ``processes`` of this machine, or ``ray``, a cluster.
        resume: Whether to continue after the rows in `out`.
        by: A column to break the summary down by.
        passing: The score from which the summary counts a row as passed.
        format: The format of the rollouts: ``jsonl``, ``tau-bench``, ``parquet``,
            ``openenv-trace`` or ``atif``; by default that of the file's suffix.
        ground_truth: The column that has the ground truth; None is ``ground_truth``.
        parameters: Keyword arguments for a reward function.
        credit: How credit is assigned; None assigns none. With credit, and with a batch function,
            the rollouts of a group are scored together and must be consecutive.
        score_failed: Whether to score episodes that ended with an error (``"ended": "error"``);
            by default their rows are invalid.
        sandbox: The sandbox in which alone the reward is loaded; None is this process.
        at: The position of the schedules of a reward file: the episode and the training step.
        services: A file of services by name, which a rubric and a reward file use.
        trees: Whether rows have ``trees``: the score of every rubric at each step. It requires a
            rubric that runs without a sandbox.
        keep_going: Whether to score on when 10 rows in a row have failed because a service is
            unavailable or too slow. By default the run ends there, without these rows.
    """

    rollouts: str
    reward: str
    out: str | None = None
    workers: int | None = None
    engine: str = "processes"
    resume: bool = False
    by: str | None = None
    passing: float | None = None
    format: str | None = None
    ground_truth: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    credit: CreditSettings | None = None
    score_failed: bool = False
    sandbox: SandboxSettings | None = None
    at: int | None = None
    services: str | None = None
    trees: bool = False
    keep_going: bool = False

    def run(self, progress: Callable[[int, int], None] | None = None) -> ScoringReport:
        """Score all rows; ctrl-C ends the run early and keeps the finished rows.

        Args:
            progress: Called about twice a second with the number of finished rows and of bytes
                read.

        Raises:
            LoadError: The reward can't be loaded.
            RewardConfigError: The reward file is invalid.
            InvalidArgumentError: The options are invalid, or exclude each other.
            RolloutError: There is no rollout to score, or `out` was not made by this reward from
                these rollouts. (Invalid lines are rows of the result.)
            ScoringError: The result can't be written, or a worker process died.
            SandboxUnavailableError: The sandbox doesn't work on this machine.
        """
        self._check()
        with contextlib.ExitStack() as stack:
            pipeline = stack.enter_context(ScoringPipeline(self))
            if self.trees and not isinstance(pipeline.scorer, RubricScorer):
                raise InvalidArgumentError(
                    f"--trees requires a rubric that runs without a sandbox, got {self.reward}"
                )
            if self._is_parallel or self.resume:
                self._check_order(pipeline.scorer)
            report = ScoringReport(
                pipeline.new_summary(),
                pipeline.scorer.fingerprint,
                sandbox=pipeline.scorer.sandbox_data,
            )
            file = stack.enter_context(reading.open_file(self.rollouts))
            batches = reading.read_batches(
                file, self.rollouts, format=self.format, together=pipeline.takes_groups
            )
            out, is_parquet = self.out, str(self.out).endswith(parquet.SUFFIX)
            if is_parquet:
                out = parquet.partial_file(str(out))
            writer = stack.enter_context(RowWriter(out))
            if self.resume:
                if is_parquet:
                    parquet.restore(str(out), str(self.out))
                batches, writer.keep = self._skip_finished(batches, str(out), pipeline, report)
            if self.out == "-":  # what a reward prints must not get between the rows
                stack.enter_context(contextlib.redirect_stdout(sys.stderr))
            interrupts = stack.enter_context(Interrupts())
            start = perf_counter()
            try:
                engine = self._engine(pipeline, report.summary, interrupts)
                chunks = score_in_order(batches, engine, interrupts=interrupts)
                with contextlib.closing(chunks):
                    self._write(chunks, writer, report, progress)
            except KeyboardInterrupt:
                interrupts.requested = True
            report.interrupted = interrupts.requested
            if out != self.out and not report.interrupted and report.stopped is None:
                parquet.finish_file(str(out), str(self.out))
            report.seconds = perf_counter() - start
        if not report.summary.rows and not report.interrupted:
            raise RolloutError(f"{name_of_file(self.rollouts)} has no rollouts: it is empty")
        return report

    def _check(self) -> None:
        check_choice("engine", self.engine, ENGINES)
        if self.workers is not None:
            check_integer("workers", self.workers, low=1)
        if self.resume and self.out in (None, "-"):
            raise InvalidArgumentError("--resume requires the file to continue: --out FILE")
        if self.trees and self.out is None:
            raise InvalidArgumentError("--trees requires a file for the rows: --out FILE")
        if self.sandbox is not None and self.credit is not None and ":" in self.credit.state_key:
            raise InvalidArgumentError(
                f"the state key {self.credit.state_key} would run outside of the sandbox; with a "
                "sandbox it must be 'last', 'last-K' or 'history'"
            )
        refuse_overwriting(self.out, self.rollouts, self.reward)

    def _check_order(self, scorer: Scorer) -> None:
        """Refuse a reward that scores a row by the rows before it in the same process."""
        rubrics = []
        if isinstance(scorer, RubricScorer):
            rubrics = [("", scorer.rubric), *scorer.rubric.named_rubrics()]
        names = [
            f"{path}.{name}" if path else name
            for path, rubric in rubrics
            if isinstance(rubric, RubricComposer) and rubric.normalize
            for name, known in rubric.ranges().items()
            if known is None or known.source == "observed"
        ]
        if names:
            option = "--workers over 1" if (self.workers or 1) > 1 else "--resume"
            option = "--engine ray" if self.engine == "ray" else option
            raise InvalidArgumentError(
                f"{option} can't be used with {self.reward}: it normalizes {', '.join(names)} by "
                "the scores seen before, so that a score would depend on the worker; declare a "
                "score_range, or use normalize: false"
            )

    def _skip_finished(
        self,
        batches: Iterator[list[Line]],
        out: str,
        pipeline: ScoringPipeline,
        report: ScoringReport,
    ) -> tuple[Iterator[list[Line]], int]:
        """Count the rows of the JSONL file `out` and skip their rollouts.

        Returns:
            The batches that are left, and how many bytes of `out` to keep: batches are kept whole,
            up to the first with a line that could not be read then and can be now.
        """
        kept, rows = 0, read_finished(out, pipeline.scorer.fingerprint)
        last: tuple[ResultRow, Line] | None = None
        for lines in batches:
            finished = list(itertools.islice(rows, len(lines)))
            if len(finished) < len(lines) or any(
                # The line could not be read, as one that is half written; now it can.
                row["id"] is None and not pipeline.is_row_of(row, line)
                for (row, _), line in zip(finished, lines, strict=True)
            ):
                batches = itertools.chain([lines], batches)
                break
            pipeline.count(pipeline.finished([row for row, _ in finished], lines), report.summary)
            report.resumed += len(lines)
            kept, last = finished[-1][1], (finished[-1][0], lines[-1])
        else:
            if next(rows, None) is not None:
                raise RolloutError(
                    f"{self.out} has more rows than {name_of_file(self.rollouts)}, "
                    f"which has {report.resumed}: it was made from other rollouts"
                )
        if last is not None and not pipeline.is_row_of(*last):
            raise RolloutError(
                f"row {report.resumed} of {self.out} has the id {last[0]['id']!r}, and "
                f"{name_of_file(self.rollouts)} has another: it was made from other rollouts"
            )
        return batches, kept

    def _engine(
        self, pipeline: ScoringPipeline, summary: Summary, interrupts: Interrupts
    ) -> Engine:
        engine: Engine
        if self.engine == "ray":
            from guerdon.rollouts.scoring.ray_engine import OnRay

            # A sandbox of each worker is used by that worker alone.
            scoring = partial(ScoringPipeline, replace(self, workers=1))
            engine = OnRay(scoring, workers=self.workers, interrupts=interrupts)
        elif self.sandbox is not None:
            return InThreads(
                pipeline,
                workers=self.workers or 1,
                stop=pipeline.scorer.close,
                chunks=pipeline.scores_chunks,
            )
        elif self._is_parallel:
            engine = InProcesses(partial(ScoringPipeline, self), workers=self.workers or 1)
        elif pipeline.scorer.is_concurrent:
            return InScoringLoop(
                pipeline.score_async, start=pipeline.scorer.loop.start, ahead=pipeline.ahead
            )
        else:
            return InThisThread(partial(pipeline, into=summary, interrupts=interrupts))
        if pipeline.scorer.is_concurrent:  # each worker scores a chunk concurrently
            engine.smallest = ROLLOUTS
        return engine

    @property
    def _is_parallel(self) -> bool:
        """Whether several processes may score."""
        return self.engine == "ray" or (self.workers or 1) > 1

    def _write(
        self,
        chunks: Iterable[ScoredChunk],
        writer: RowWriter,
        report: ScoringReport,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        read = 0
        outage = Outage[bytes](ignored=self.keep_going)

        def write(lines: bytes, rows: int) -> None:
            writer.write(lines)
            report.scored += rows

        for chunk in chunks:
            if chunk.summary is not None:
                report.summary.merge(chunk.summary)
            read += chunk.read
            if chunk.failures or outage.held:
                lines = chunk.encoded.splitlines(keepends=True)
                for pair in zip(lines, chunk.failures or [None] * chunk.rows, strict=True):
                    released = outage.add(*pair)
                    write(b"".join(released), len(released))
            else:
                write(chunk.encoded, chunk.rows)
            if progress is not None:
                progress(report.resumed + report.scored, read)
            if outage.stops is not None:
                break
        rest = outage.end()
        write(b"".join(rest), len(rest))
        report.stopped = outage.stops


def refuse_overwriting(out: str | None, rollouts: str, *rewards: str) -> None:
    """Refuse a result file that is the file of the rollouts or of a reward.

    Raises:
        InvalidArgumentError: It is one of them.
    """
    inputs = [("rollouts", rollouts)]
    for reward in rewards:
        file = reward if is_pipeline_file(reward) else library_of(reward)[1].rpartition(":")[0]
        inputs.append(("reward", file))
    for what, path in inputs:
        exist = out is not None and os.path.exists(out) and os.path.exists(path)
        if exist and os.path.samefile(str(out), path):
            raise InvalidArgumentError(f"`out` must not be the file of the {what}: {out}")


# A row, and the part of the breakdown that it belongs to, if there is one.
ScoredRow: TypeAlias = "tuple[ResultRow, str | None]"


class ScoringPipeline:
    """From lines to result rows: parses, scores, assigns credit, encodes and counts.

    Calling it scores batches of lines. It may be called in several threads if the reward runs in
    a sandbox.

    Args:
        job: The reward and the options.
        reward: A reward in place of the one that the job names.

    Raises:
        LoadError: The reward can't be loaded.
        InvalidArgumentError: The reward has no such parameters, or the credit settings are
            invalid.
        SandboxUnavailableError: The sandbox doesn't work on this machine.
    """

    def __init__(
        self, job: ScoringJob, reward: Rubric | RewardFunction | RewardPipeline | None = None
    ) -> None:
        self.job = job
        self._reward = job.reward if reward is None else reward
        with contextlib.ExitStack() as opening:
            self.scorer = self._open_scorer(opening)
            # After the reward, whose module may register an estimator.
            self.credit = self._open_credit(job.credit) if job.credit is not None else None
            self._opened = opening.pop_all()
        self.takes_groups = self.scorer.takes_groups or self.credit is not None
        self.scores_chunks = self.scorer.scores_chunks and not self.takes_groups
        self.ahead = ROLLOUTS if self.takes_groups else scorers.AHEAD
        fingerprint = self.scorer.fingerprint
        if self.credit is not None:
            fingerprint = fingerprint_of(fingerprint, *self.credit.identity)
        if job.score_failed:
            fingerprint = fingerprint_of(fingerprint, "score failed")
        self.scorer.fingerprint = fingerprint

    def _open_credit(self, settings: CreditSettings) -> RowCredit:
        if not isinstance(self.scorer, RubricScorer):
            return RowCredit(settings)
        rubric = self.scorer.rubric
        weights = {name: rubric._weight_of(name) for name in rubric._children}
        known = {name: weight for name, weight in weights.items() if weight is not None}
        return RowCredit(settings, weights=known)

    def _open_scorer(self, opening: contextlib.ExitStack) -> Scorer:
        job, parameters = self.job, dict(self.job.parameters)
        if job.sandbox is None:
            reward = opening.enter_context(
                open_reward(self._reward, at=job.at, services=job.services)
            )
            scorer = scorers.scorer_of(reward, parameters, keeps_trees=job.trees)
            return opening.enter_context(scorer)
        if is_pipeline_file(job.reward):
            raise InvalidArgumentError(
                f"{job.reward} is a reward file, whose rubrics are loaded in this process; a "
                "sandbox requires a reward in code"
            )
        if job.services is not None:
            raise InvalidArgumentError("`services` requires a reward that runs without a sandbox")
        return opening.enter_context(
            SandboxScorer(job.reward, job.sandbox, parameters=parameters, workers=job.workers or 1)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.close()

    def new_summary(self, **options: Any) -> Summary:
        """An empty summary of rows of this reward."""
        groups = GroupSummary() if self.takes_groups else None
        scorer = self.scorer
        return Summary(scorer.gates, self.job.passing, groups, scorer.rubrics, **options)

    def __call__(
        self,
        batches: Sequence[list[Line]],
        *,
        into: Summary | None = None,
        interrupts: Interrupts | None = None,
    ) -> ScoredChunk:
        """Score batches, encode their rows and count them.

        Args:
            batches: The lines that are scored together.
            into: The summary in which to count the rows; None counts them in a new one.
            interrupts: Where ctrl-C is recorded; the batches before it are kept.
        """
        if self.scorer.is_concurrent:
            return self.scorer.loop.run(self.score_async(batches))
        start, interrupts = perf_counter(), interrupts or Interrupts()
        together = [list(itertools.chain(*batches))] if self.scores_chunks else batches
        scored: list[list[ScoredRow]] = []
        with interrupts.allowed():
            for lines in together:
                scored.append(self.score(lines))
        finished = itertools.chain(*together[: len(scored)])
        chunk = self._chunk(scored, finished, start, into=into)
        chunk.batches, chunk.interrupted = len(batches), interrupts.requested
        return chunk

    async def score_async(self, batches: Sequence[list[Line]]) -> ScoredChunk:
        """Like a call, in the event loop of the scorer; the batches are scored concurrently."""
        start = perf_counter()
        scored = await asyncio.gather(*map(self.score_lines_async, batches))
        return self._chunk(scored, itertools.chain(*batches), start)

    def _chunk(
        self,
        scored: Sequence[list[ScoredRow]],
        lines: Iterable[Line],
        start: float,
        *,
        into: Summary | None = None,
    ) -> ScoredChunk:
        summary = self.new_summary(most=math.inf) if into is None else into
        for batch in scored:
            self.count(batch, summary)
        rows = [row for row, _ in itertools.chain(*scored)]
        failures = [service_failure(row) for row in rows]
        return ScoredChunk(
            encoded=b"".join(map(encode_row, rows)),
            rows=len(rows),
            read=sum(len(line) for _, line in lines),
            batches=len(scored),
            seconds=perf_counter() - start,
            summary=summary if into is None else None,
            failures=failures if any(failures) else (),
        )

    def score(self, lines: Sequence[Line]) -> list[ScoredRow]:
        """Score the rollouts of lines together."""
        rollouts = [self._read(line) for line in lines]
        return self._finished(rollouts, scorers.score_together(self.scorer, rollouts))

    async def score_lines_async(self, lines: Sequence[Line]) -> list[ScoredRow]:
        """Like `score`, in the event loop of the scorer."""
        rollouts = [self._read(line) for line in lines]
        return self._finished(rollouts, await scorers.score_together_async(self.scorer, rollouts))

    def _finished(
        self, rollouts: Sequence[Rollout | RolloutError], rows: list[ResultRow]
    ) -> list[ScoredRow]:
        self._add_credit(rollouts, rows)
        return [(row, self._part(each)) for each, row in zip(rollouts, rows, strict=True)]

    def start(self, lines: Sequence[Line]) -> Future[list[ScoredRow]]:
        """Begin to score the rollouts of lines concurrently; if they aren't, score them."""
        if self.scorer.is_concurrent:
            return self.scorer.loop.start(self.score_lines_async(lines))
        future: Future[list[ScoredRow]] = Future()
        future.set_result(self.score(lines))
        return future

    def score_rows(self, rows: Sequence[dict[str, Any]]) -> list[ResultRow]:
        """Score the rollouts of rows, those of a group together."""
        rollouts = [self._parse(Rollout.from_row, row) for row in rows]
        scored = scorers.score_together(self.scorer, rollouts)
        self._add_credit(rollouts, scored)
        return scored

    def _add_credit(
        self, rollouts: Sequence[Rollout | RolloutError], rows: Sequence[ResultRow]
    ) -> None:
        if self.credit is not None:
            pairs = zip(rollouts, rows, strict=True)
            self.credit.add([(each, row) for each, row in pairs if isinstance(each, Rollout)])

    def finished(self, rows: Sequence[ResultRow], lines: Sequence[Line]) -> list[ScoredRow]:
        """The rows of lines that an earlier run scored."""
        if self.job.by is None:
            return [(row, None) for row in rows]
        return [(row, self._part(self._read(line))) for row, line in zip(rows, lines, strict=True)]

    def is_row_of(self, row: ResultRow, line: Line) -> bool:
        """Whether a row of an earlier run has the id of the rollout of a line."""
        read = self._read(line)
        id = read.id if isinstance(read, Rollout) else self.scorer.failed(read)["id"]
        return bool(row["id"] == id) or row["id"] == str(id)

    def count(self, batch: Sequence[ScoredRow], summary: Summary) -> None:
        """Count the rows of a batch."""
        for row, part in batch:
            summary.add(row, part)
        if summary.groups is not None:
            # A line that can't be read is with a group but belongs to none.
            rows = [row for row, _ in batch]
            known = [row for row in rows if row["group"] is not None] or rows
            summary.groups.add(group_stats(known, credited=self.credit is not None))

    def _read(self, line: Line) -> Rollout | RolloutError:
        return self._parse(reading.parse_line, *line, number=line[0])

    def _parse(
        self, parse: Callable[..., Rollout], *given: Any, number: int | None = None
    ) -> Rollout | RolloutError:
        try:
            read = parse(*given, ground_truth=self.job.ground_truth)
            return scorers.unless_failed(read, self.job.score_failed, line=number)
        except RolloutError as error:
            return error

    def _part(self, rollout: Rollout | RolloutError) -> str | None:
        by = self.job.by
        if by is None:
            return None
        columns = rollout.columns if isinstance(rollout, Rollout) else rollout.row
        if not isinstance(columns, dict):
            return UNREADABLE
        return str(columns[by]) if by in columns else NO_VALUE
