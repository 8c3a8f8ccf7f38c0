"""`Summary`: what a run over many rollouts gave, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from guerdon.rollouts.scoring.group_summary import GroupSummary
from guerdon.rollouts.scoring.rows import ResultRow
from guerdon.rubrics.containers import Gate, Sequential
from guerdon.rubrics.rubric import Rubric

__all__ = ["Mean", "Summary", "gates_of"]

# How many values of the column to break down by, and kinds of failures, are told apart.
MAX_PARTS = 100
OTHERS = "(others)"

# Characters of an error that the summary tells.
MAX_TEXT = 500


@dataclass(slots=True)
class Mean:
    """A mean that grows.

    Attributes:
        total: The sum of the values.
        count: How many there were.
    """

    total: float = 0.0
    count: int = 0

    @property
    def value(self) -> float | None:
        """The mean; None of nothing, and where the sum is beyond every float."""
        return self.total / self.count if self.count and isfinite(self.total) else None


@dataclass(slots=True)
class Summary:
    """Counts and means over result rows.

    Example:
        >>> from guerdon import NumericAnswer, Rollout, score_rollouts
        >>> rollouts = [Rollout.from_row({"ground_truth": "42", "messages": [
        ...     {"role": "assistant", "content": text}]}) for text in ("A: 42", "A: 41")]
        >>> summary = Summary(passing=1.0)
        >>> for row in score_rollouts(NumericAnswer(), rollouts):
        ...     summary.add(row)
        >>> summary.rows, summary.zeros, summary.failed, summary.accuracy
        (2, 1, 0, 0.5)

    Attributes:
        gates: The paths of the rubrics that can stop an evaluation.
        passing: The score from which on a row counts as passed; None counts none.
        rows: How many rows there were.
        failed: How many of them have no valid score.
        zeros: How many have a valid score of 0.0.
        passed: How many have a valid score of at least `passing`.
        dealt_with: How many have a valid score beside a failure that the reward dealt with.
        score: The mean of the valid scores.
        components: The mean of each component, over the rows that have it.
        stopped: How many rows each gate stopped.
        failures: How many rows failed with each kind of error.
        first_failures: What the first of each kind says.
        parts: The same for each value of the column that the run is broken down by.
        noted: How many rows have a note.
        groups: Over the groups of the rollouts; None where groups don't matter.
    """

    gates: tuple[str, ...] = ()
    passing: float | None = None
    rows: int = 0
    failed: int = 0
    zeros: int = 0
    passed: int = 0
    dealt_with: int = 0
    score: Mean = field(default_factory=Mean)
    components: dict[str, Mean] = field(default_factory=dict)
    stopped: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    parts: dict[str, Summary] = field(default_factory=dict)
    noted: int = 0
    first_failures: dict[str, str] = field(default_factory=dict)
    groups: GroupSummary | None = None

    def add(self, row: ResultRow, part: str | None = None) -> None:
        """Count a row, and count it for `part`, if there is one."""
        self.rows += 1
        self.noted += bool(row.get("notes"))
        score = row["score"]
        if score is None:
            self.failed += 1
            kind = self._count(self.failures, _kind(row["error"]))
            self.first_failures.setdefault(kind, (row["error"] or "")[:MAX_TEXT])
        else:
            self.score.total += score
            self.score.count += 1
            self.zeros += score == 0.0
            self.dealt_with += row["error"] is not None
            if self.passing is not None:
                self.passed += score >= self.passing
            self._add_components(row["components"], score)
        if part is not None:
            self._part(part).add(row)

    def _add_components(self, components: dict[str, float], score: float) -> None:
        means = self.components
        for name, value in components.items():
            mean = means.get(name)
            if mean is None:
                mean = means[name] = Mean()
            mean.total += value
            mean.count += 1
        for gate in self.gates:
            if (components.get(gate) if gate else score) == 0.0:
                self.stopped[gate] = self.stopped.get(gate, 0) + 1

    def merge(self, other: Summary) -> None:
        """Count all that `other` has counted."""
        for name in ("rows", "failed", "zeros", "passed", "dealt_with", "noted"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        _merge_mean(self.score, other.score)
        for name, mean in other.components.items():
            _merge_mean(self.components.setdefault(name, Mean()), mean)
        for gate, count in other.stopped.items():
            self.stopped[gate] = self.stopped.get(gate, 0) + count
        for kind, count in other.failures.items():
            counted = self._count(self.failures, kind, count)
            self.first_failures.setdefault(counted, other.first_failures.get(kind, ""))
        for name, part in other.parts.items():
            self._part(name).merge(part)
        if self.groups is not None and other.groups is not None:
            self.groups.merge(other.groups)

    def empty(self) -> Summary:
        """A summary that counts the same and has counted nothing."""
        groups = None if self.groups is None else GroupSummary()
        return Summary(self.gates, self.passing, groups=groups)

    def to_dict(self) -> dict[str, Any]:
        """The summary as JSON can hold it."""
        out: dict[str, Any] = {
            "rows": self.rows,
            "valid": self.rows - self.failed,
            "failed": self.failed,
            "zeros": self.zeros,
            "mean_score": self.score.value,
        }
        if self.passing is not None:
            out |= {"passing": self.passing, "accuracy": self.accuracy}
        out |= {
            "components": {
                name: {"mean": mean.value, "rows": mean.count}
                for name, mean in self.components.items()
            },
            "stopped": {gate: self.stopped.get(gate, 0) for gate in self.gates},
            "failures": self.failures,
            "first_failures": self.first_failures,
            "dealt_with": self.dealt_with,
            "noted": self.noted,
        }
        if self.groups is not None:
            out["groups"] = self.groups.to_dict()
        if self.parts:
            out["by"] = {name: part.to_dict() for name, part in self.parts.items()}
        return out

    @property
    def accuracy(self) -> float | None:
        """The share of the valid rows that passed; None where there is none."""
        return self.passed / self.score.count if self.score.count else None

    def _part(self, name: str) -> Summary:
        if name not in self.parts and len(self.parts) >= MAX_PARTS:
            name = OTHERS
        return self.parts.setdefault(name, Summary(self.gates, self.passing))

    def _count(self, counts: dict[str, int], name: str, count: int = 1) -> str:
        """Count something by its name, and tell by which it was counted."""
        if name not in counts and len(counts) >= MAX_PARTS:
            name = OTHERS
        counts[name] = counts.get(name, 0) + count
        return name


def _merge_mean(mean: Mean, other: Mean) -> None:
    mean.total += other.total
    mean.count += other.count


def _kind(error: str | None) -> str:
    """The name of the exception in the text of a row's error."""
    for part in (error or "").split(": "):
        if part.isidentifier():
            return part
    return "unknown"


def gates_of(rubric: Rubric) -> Iterator[str]:
    """The paths of the rubrics that can stop an evaluation by scoring 0.

    Those are all `Gate` and, of a `Sequential`, all children but the last.
    """
    if isinstance(rubric, Gate):
        yield ""
    names = list(rubric._children)
    for name, child in rubric._children.items():
        stops = isinstance(rubric, Sequential) and name != names[-1]
        for path in dict.fromkeys([*([""] if stops else []), *gates_of(child)]):
            yield f"{name}.{path}" if path else name
