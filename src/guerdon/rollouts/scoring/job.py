"""`Job`: a file of rollouts in, a file of result rows out, in bounded memory."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from guerdon.config.pipeline import is_pipeline_file
from guerdon.errors import InvalidArgumentError, RolloutError
from guerdon.rollouts.scoring.desk import Desk, Settings
from guerdon.rollouts.scoring.files import Line, name_of_file, open_file, parse_line
from guerdon.rollouts.scoring.formats import reader_of
from guerdon.rollouts.scoring.grouping import batches_of
from guerdon.rollouts.scoring.interrupts import Interrupts
from guerdon.rollouts.scoring.output import RowWriter, read_finished
from guerdon.rollouts.scoring.row_credit import CreditSettings
from guerdon.rollouts.scoring.rows import ResultRow
from guerdon.rollouts.scoring.sandboxing import SandboxSettings
from guerdon.rollouts.scoring.scorers import RolloutScorer
from guerdon.rollouts.scoring.summary import Summary
from guerdon.rollouts.scoring.threads import score_in_threads
from guerdon.rollouts.scoring.workers import score_in_workers
from guerdon.rubrics.composer import RubricComposer
from guerdon.rubrics.rubric import Rubric

__all__ = ["Job", "JobReport"]

FLUSH_SECONDS = 1.0


@dataclass(slots=True)
class JobReport:
    """How a run ended.

    Example:
        >>> report = JobReport(Summary(), "0123456789abcdef", seconds=2.0, scored=500)
        >>> report.scored / report.seconds, report.interrupted
        (250.0, False)

    Attributes:
        summary: Over all rows, those of an earlier run that was resumed included.
        fingerprint: The reward's.
        seconds: How long scoring took.
        scored: How many rows this run scored.
        resumed: How many an earlier run had finished.
        interrupted: Whether ctrl-C ended it; every finished row is written.
        sandbox: What was in force where the reward ran in a sandbox: ``level``, ``promise``,
            ``limits``, ``allow_read``.
    """

    summary: Summary
    fingerprint: str
    seconds: float = 0.0
    scored: int = 0
    resumed: int = 0
    interrupted: bool = False
    sandbox: dict[str, Any] | None = None


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
        reward: The reward as ``reward.yaml``, ``module:name`` or ``file.py:name``.
        out: The file for the result rows; ``-`` is standard output, None writes none.
        workers: How many processes score, at least 1. Each loads the reward itself; in a sandbox
            it is loaded once.
        resume: Go on after the rows that stand in `out`.
        by: A column to break the summary down by.
        passing: The score from which on the summary counts a row as passed.
        progress: Called now and then with how many rows are done and how many bytes are read.
        format: How the rollouts are written: ``jsonl``, or ``tau-bench``.
        parameters: What a reward function is given by name.
        credit: How credit is assigned; None assigns none. With credit, and with a reward function
            of batches, the rollouts of a group are scored together and stand together in the file.
        score_failed: Whether an episode that ended with an error (a row whose ``ended`` is
            ``error``) is scored all the same; else its row is invalid.
        sandbox: Where the reward runs, which is loaded nowhere else; None is this process.
        at: Where the schedules of a reward pipeline stand: the episode and the training step.
    """

    rollouts: str
    reward: str
    out: str | None = None
    workers: int = 1
    resume: bool = False
    by: str | None = None
    passing: float | None = None
    progress: Callable[[int, int], None] | None = None
    format: str = "jsonl"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    credit: CreditSettings | None = None
    score_failed: bool = False
    sandbox: SandboxSettings | None = None
    at: int | None = None
    _interrupts: Interrupts = field(default_factory=Interrupts, init=False, repr=False)
    _read: int = field(default=0, init=False, repr=False)
    _told: float = field(default=0.0, init=False, repr=False)

    def run(self) -> JobReport:
        """Score all rows; ctrl-C ends it early and keeps what is finished.

        Raises:
            LoadError: The reward can't be loaded.
            RewardConfigError: The file of a reward pipeline can't be meant.
            InvalidArgumentError: The arguments don't go together.
            RolloutError: There is no rollout to score. (Broken rows are rows of the result.)
            RolloutError: `out` was not made by this reward from these rollouts.
            ScoringError: The result can't be written.
            ScoringError: A worker process died.
            SandboxUnavailableError: The sandbox doesn't work on this machine.
        """
        self._check()
        settings = Settings(
            self.reward, self.by, self.passing, self.parameters, self.credit, self.score_failed,
            self.sandbox, self.at,
        )  # fmt: skip
        desk = Desk(settings, self.workers)
        self._check_order(desk)
        report = JobReport(desk.summary, desk.fingerprint, sandbox=desk.sandbox)
        with contextlib.ExitStack() as stack:
            stack.enter_context(desk)
            file = stack.enter_context(open_file(self.rollouts))
            lines = reader_of(self.format)
            batches = batches_of(file, self.rollouts, lines, together=desk.takes_groups)
            batches, size = self._pass_over_finished(batches, desk, report)
            writer = stack.enter_context(RowWriter(self.out, keep=size))
            if self.out == "-":  # what a reward prints may not get between the rows
                stack.enter_context(contextlib.redirect_stdout(sys.stderr))
            start = perf_counter()
            stack.enter_context(self._interrupts)
            try:
                for lines_out, rows, read in self._score(desk, settings, batches, report):
                    writer.write(lines_out)
                    report.scored += rows
                    self._tell(report, read, writer)
            except KeyboardInterrupt:
                report.interrupted = True
            report.interrupted |= self._interrupts.asked
            if self.progress is not None:
                self.progress(report.resumed + report.scored, self._read)
            report.seconds = perf_counter() - start
        if not report.summary.rows and not report.interrupted:
            raise RolloutError(f"{name_of_file(self.rollouts)} holds no rollouts: it is empty")
        return report

    def _check(self) -> None:
        if self.workers < 1:
            raise InvalidArgumentError(f"workers is {self.workers}; it takes at least 1")
        if self.resume and self.out in (None, "-"):
            raise InvalidArgumentError("resuming needs the file to go on with: --out FILE")
        if self.sandbox is not None and self.credit is not None and ":" in self.credit.state_key:
            raise InvalidArgumentError(
                f"the state key {self.credit.state_key} would run outside of the sandbox; beside "
                "a reward in a sandbox it takes 'last', 'last-K' or 'history'"
            )
        whole = is_pipeline_file(self.reward)
        reward = self.reward if whole else self.reward.rpartition(":")[0]
        inputs = {"rollouts": self.rollouts, "reward": reward}
        for what, path in inputs.items():
            there = self.out is not None and os.path.exists(self.out) and os.path.exists(path)
            if there and os.path.samefile(str(self.out), path):
                raise InvalidArgumentError(f"{self.out} is the file of the {what}")

    def _check_order(self, desk: Desk) -> None:
        """Refuse what would score a row by which rows came before it in the same process."""
        if self.workers == 1 and not self.resume:
            return
        names = _observing(desk.scorer.rubric) if isinstance(desk.scorer, RolloutScorer) else []
        if names:
            with desk:  # which is open
                option = "--workers over 1" if self.workers > 1 else "--resume"
                raise InvalidArgumentError(
                    f"{option} doesn't go with {self.reward}: it normalises {', '.join(names)} by "
                    "the scores seen before, so that rows would depend on how they are shared "
                    "out; declare a score_range, or use normalize: false"
                )

    def _pass_over_finished(
        self, batches: Iterator[list[Line]], desk: Desk, report: JobReport
    ) -> tuple[Iterator[list[Line]], int]:
        """Count the rows that stand in `out`, passing over their rollouts.

        Returns:
            What is left to score, and how many bytes of `out` to keep: no batch is kept in part.
        """
        if not self.resume or self.out is None:
            return batches, 0
        kept, rows = 0, read_finished(self.out, desk.fingerprint)
        last: tuple[ResultRow, Line] | None = None
        for lines in batches:
            finished = list(itertools.islice(rows, len(lines)))
            if len(finished) < len(lines):
                batches = itertools.chain([lines], batches)
                break
            desk.count(desk.finished([row for row, _ in finished], lines))
            report.resumed += len(lines)
            kept, last = finished[-1][1], (finished[-1][0], lines[-1])
        if next(rows, None) is not None:
            raise RolloutError(
                f"{self.out} has more rows than {name_of_file(self.rollouts)}, "
                f"which has {report.resumed}: it was made from other rollouts"
            )
        if last is not None and not _same(last[0]["id"], last[1]):
            raise RolloutError(
                f"row {report.resumed} of {self.out} is {last[0]['id']!r}, and that of "
                f"{name_of_file(self.rollouts)} is another: it was made from other rollouts"
            )
        return batches, kept

    def _score(
        self, desk: Desk, settings: Settings, batches: Iterator[list[Line]], report: JobReport
    ) -> Iterator[tuple[bytes, int, int]]:
        """Lines of the result, with how many there are and how many bytes were read for them."""
        if self.sandbox is not None:
            yield from self._score_in_sandbox(desk, batches)
            return
        if self.workers == 1:
            yield from self._score_here(desk, batches)
            return
        for chunk in score_in_workers(batches, self.workers, self._interrupts, settings):
            report.summary.merge(chunk.summary)
            yield chunk.lines, chunk.rows, chunk.read

    def _score_here(
        self, desk: Desk, batches: Iterator[list[Line]]
    ) -> Iterator[tuple[bytes, int, int]]:
        interrupts = self._interrupts
        while not interrupts.asked:
            interrupts.allowed = True
            lines = next(batches, None)
            scored = desk.score(lines) if lines is not None else None
            interrupts.allowed = False
            if lines is None or scored is None:
                return
            desk.count(scored)
            yield scored.lines, len(lines), sum(len(line) for _, line in lines)

    def _score_in_sandbox(
        self, desk: Desk, batches: Iterator[list[Line]]
    ) -> Iterator[tuple[bytes, int, int]]:
        for scored, lines in score_in_threads(
            batches, self.workers, score=desk.score, stop=desk.stop, interrupts=self._interrupts
        ):
            desk.count(scored)
            yield scored.lines, len(lines), sum(len(line) for _, line in lines)

    def _tell(self, report: JobReport, read: int, writer: RowWriter) -> None:
        """Now and then, write what is finished and say how far it is."""
        self._read += read
        now = perf_counter()
        if now - self._told > FLUSH_SECONDS:
            self._told = now
            writer.flush()
            if self.progress is not None:
                self.progress(report.resumed + report.scored, self._read)


def _observing(rubric: Rubric) -> list[str]:
    """The components that composers normalise by the scores seen so far."""
    return [
        f"{path}.{name}" if path else name
        for path, each in [("", rubric), *rubric.named_rubrics()]
        if isinstance(each, RubricComposer) and each.normalize
        for name, known in each.ranges().items()
        if known is None or known.source == "observed"
    ]


def _same(finished: Any, line: Line) -> bool:
    """Whether a finished row is that of a line."""
    try:
        found = parse_line(*line).id
    except RolloutError as error:
        found = error.row.get("id", line[0]) if isinstance(error.row, dict) else None
    return bool(finished == found) or finished == str(found)
