"""`Desk`: where lines of rollouts become lines of results, and are counted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from guerdon.config.pipeline import is_pipeline_file, open_reward
from guerdon.errors import InvalidArgumentError, RolloutError
from guerdon.rollouts.json_forms import as_text
from guerdon.rollouts.scoring.files import Line, parse_line
from guerdon.rollouts.scoring.function_scorer import FunctionScorer
from guerdon.rollouts.scoring.group_summary import GroupSummary, facts_of
from guerdon.rollouts.scoring.row_credit import CreditSettings, RowCredit
from guerdon.rollouts.scoring.rows import ResultRow
from guerdon.rollouts.scoring.sandboxing import SandboxScorer, SandboxSettings
from guerdon.rollouts.scoring.scorers import RolloutScorer, failure_of, scorer_of
from guerdon.rollouts.scoring.summary import Summary, gates_of
from guerdon.rubrics.fingerprint import (
    fingerprint_of,
)
from guerdon.types.rollout import Rollout

__all__ = ["Desk", "Scored", "Settings"]

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode

# The parts of a breakdown for rollouts without the column, and for lines that hold none.
NO_VALUE = "(none)"
UNREADABLE = "(unreadable)"


@dataclass(frozen=True, slots=True)
class Settings:
    """What a desk needs to know; it can be sent to another process.

    Attributes:
        reward: The reward as ``reward.yaml``, ``module:name`` or ``file.py:name``.
        by: A column to break the summary down by.
        passing: The score from which on the summary counts a row as passed.
        parameters: What a reward function is given by name.
        credit: How credit is assigned; None assigns none.
        score_failed: Whether an episode that ended with an error is scored all the same.
        sandbox: Where the reward runs; None is this process.
        at: Where the schedules of a pipeline stand.
    """

    reward: str
    by: str | None = None
    passing: float | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    credit: CreditSettings | None = None
    score_failed: bool = False
    sandbox: SandboxSettings | None = None
    at: int | None = None


class Scored(NamedTuple):
    """What became of lines that were scored together.

    Attributes:
        lines: The lines of the result.
        rows: The same as rows.
        parts: Which part of the breakdown each belongs to, if there is one.
    """

    lines: bytes
    rows: list[ResultRow]
    parts: list[str | None]


class Desk:
    """A reward, with the summary of what it gave.

    Args:
        settings: Which reward, and what to do with it.
        workers: How many calls of a reward in a sandbox run at the same time.

    Raises:
        LoadError: The reward can't be loaded.
        InvalidArgumentError: The reward takes no such parameters, or there is no such credit.
        SandboxUnavailableError: The sandbox doesn't work on this machine.
    """

    def __init__(self, settings: Settings, workers: int = 1) -> None:
        self.by = settings.by
        self.score_failed = settings.score_failed
        # Before the scorer, which may open a sandbox: what raises from here on would leave it open.
        self.credit = RowCredit(settings.credit) if settings.credit is not None else None
        self._opened = ExitStack()
        self.scorer = _scorer(settings, workers, self._opened)
        self.takes_groups = self.scorer.takes_groups or self.credit is not None
        self.fingerprint = self.scorer.fingerprint
        if self.credit is not None:
            self.fingerprint = fingerprint_of(self.fingerprint, *self.credit.identity)
            self.scorer.fingerprint = self.fingerprint
        if settings.score_failed:
            self.fingerprint = fingerprint_of(self.fingerprint, "score failed")
            self.scorer.fingerprint = self.fingerprint
        groups = GroupSummary() if self.takes_groups else None
        self.summary = Summary(_gates(self.scorer), settings.passing, groups=groups)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        with self._opened:
            self.scorer.__exit__(None, None, None)

    @property
    def sandbox(self) -> dict[str, Any] | None:
        """What is in force where the reward runs in a sandbox, as JSON can hold it."""
        return self.scorer.described if isinstance(self.scorer, SandboxScorer) else None

    def stop(self) -> None:
        """End at once what a sandbox is scoring."""
        if isinstance(self.scorer, SandboxScorer):
            self.scorer.close()

    def score(self, lines: Sequence[Line]) -> Scored:
        """Score the rollouts of lines; where the reward takes groups, those of one group."""
        rows: list[ResultRow | None] = []
        parts: list[str | None] = []
        rollouts: list[Rollout] = []
        for line in lines:
            try:
                rollout = parse_line(*line)
                if rollout.failure is not None and not self.score_failed:
                    raise failure_of(rollout, line[0])
            except RolloutError as error:
                rows.append(self.scorer.failed(error))
                parts.append(self._part(error.row))
            else:
                rows.append(None)
                parts.append(self._part(rollout.columns))
                rollouts.append(rollout)
        scored = self.scorer.score_group(rollouts) if rollouts else []
        if self.credit is not None and scored:
            self.credit.add(rollouts, scored)
        found = iter(scored)
        complete = [next(found) if row is None else row for row in rows]
        return Scored(b"".join(map(_line, complete)), complete, parts)

    def count(self, scored: Scored) -> None:
        """Count rows in the summary."""
        for row, part in zip(scored.rows, scored.parts, strict=True):
            self.summary.add(row, part)
        if self.summary.groups is not None:
            # A line that can't be read stands with a group, and is of none.
            known = [row for row in scored.rows if row["group"] is not None] or scored.rows
            self.summary.groups.add(facts_of(known, credited=self.credit is not None))

    def finished(self, rows: list[ResultRow], lines: Iterable[Line]) -> Scored:
        """What an earlier run made of lines, to be counted."""
        parts: list[str | None] = [None] * len(rows)
        if self.by is not None:
            parts = [self._part_of(line) for line in lines]
        return Scored(b"", rows, parts)

    def _part_of(self, line: Line) -> str | None:
        try:
            return self._part(parse_line(*line).columns)
        except RolloutError as error:
            return self._part(error.row)

    def _part(self, columns: Any) -> str | None:
        if self.by is None:
            return None
        if not isinstance(columns, dict):
            return UNREADABLE
        return str(columns[self.by]) if self.by in columns else NO_VALUE


def _scorer(settings: Settings, workers: int, opened: ExitStack) -> RolloutScorer | FunctionScorer:
    parameters = dict(settings.parameters)
    if settings.sandbox is None:
        with ExitStack() as opening:
            reward = opening.enter_context(open_reward(settings.reward, at=settings.at))
            scorer = scorer_of(reward, parameters)
            opened.push(opening.pop_all())
        return scorer
    if is_pipeline_file(settings.reward):
        raise InvalidArgumentError(
            f"{settings.reward} is a reward pipeline, whose rubrics are loaded here; a sandbox "
            "takes a reward in code"
        )
    return SandboxScorer(settings.sandbox, settings.reward, parameters=parameters, workers=workers)


def _gates(scorer: RolloutScorer | FunctionScorer) -> tuple[str, ...]:
    return tuple(gates_of(scorer.rubric)) if isinstance(scorer, RolloutScorer) else ()


def _line(row: ResultRow) -> bytes:
    try:
        text = _encode(row)
    except Exception:  # also that of a class of somebody's own
        text = _encode({name: as_text(value) for name, value in row.items()})
    # A lone surrogate goes out as the escape that it came in as.
    return text.encode("utf-8", "backslashreplace") + b"\n"
