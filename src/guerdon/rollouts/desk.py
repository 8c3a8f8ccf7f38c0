"""`Desk`: where lines of rollouts become lines of results, and are counted."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, Self

from guerdon.errors import RolloutError
from guerdon.functions.loading import load_reward
from guerdon.rollouts.files import Line, parse_line
from guerdon.rollouts.scoring import ResultRow, RolloutScorer
from guerdon.rollouts.summary import Summary, gates_of

__all__ = ["Desk", "Scored"]

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode

# The parts of a breakdown for rollouts without the column, and for lines that hold none.
NO_VALUE = "(none)"
UNREADABLE = "(unreadable)"


class Scored(NamedTuple):
    """What became of a line.

    Attributes:
        line: The line of the result.
        row: The same as a row.
        part: Which part of the breakdown it belongs to, if there is one.
    """

    line: bytes
    row: ResultRow
    part: str | None


class Desk:
    """A reward, with the summary of what it gave.

    Args:
        reward: The reward as ``module:name`` or ``file.py:name``.
        by: A column to break the summary down by.
        passing: The score from which on the summary counts a row as passed.

    Raises:
        SpecError: The reward can't be loaded.
    """

    def __init__(self, reward: str, by: str | None, passing: float | None) -> None:
        rubric = load_reward(reward)
        self.by = by
        self.scorer = RolloutScorer(rubric)
        self.fingerprint = self.scorer.fingerprint
        self.summary = Summary(tuple(gates_of(rubric)), passing)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self.scorer.__exit__(*error)

    def score(self, line: Line) -> Scored:
        """Score the rollout of a line."""
        try:
            rollout = parse_line(*line)
        except RolloutError as error:
            row, columns = self.scorer.failed(error), error.row
        else:
            row, columns = self.scorer.score(rollout), rollout.columns
        try:
            text = _encode(row)
        except (ValueError, RecursionError):
            # What Python reads and JSON can't hold, such as an id of 1e999.
            row = {**row, "id": str(row["id"]), "group": str(row["group"])}
            text = _encode(row)
        # A lone surrogate goes out as the escape that it came in as.
        encoded = text.encode("utf-8", "backslashreplace") + b"\n"
        return Scored(encoded, row, self._part(columns))

    def count(self, scored: Scored) -> None:
        """Count a row in the summary."""
        self.summary.add(scored.row, scored.part)

    def part_of(self, line: Line) -> str | None:
        """Which part of the breakdown a line belongs to."""
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
