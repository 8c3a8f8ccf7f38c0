"""`Summary`: counts and means over result rows and their groups, in bounded memory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from guerdon._thresholds import is_zero, reaches
from guerdon.rollouts.scoring.result_rows import ResultRow

__all__ = ["Summary"]

# How many values of the column to break down by, and kinds of failures, are counted separately.
MAX_PARTS = 100
OTHERS = "(others)"

# How many groups are listed.
MAX_GROUPS = 100

# Characters of an error that are kept.
MAX_TEXT = 500


def bounded_name(name: str, counted: Collection[str], most: float | None = None) -> str:
    """The name under which something is counted, if there may be too many names."""
    limit = MAX_PARTS if most is None else most
    return name if name in counted or len(counted) < limit else OTHERS


@dataclass(slots=True)
class Mean:
    """A running mean.

    Attributes:
        total: The sum of the values.
        count: The number of values.
    """

    total: float = 0.0
    count: int = 0

    @property
    def value(self) -> float | None:
        """The mean; None without values, or if the sum overflows."""
        return self.total / self.count if self.count and math.isfinite(self.total) else None

    def add(self, total: float, count: int = 1) -> None:
        """Add values by their sum."""
        self.total += total
        self.count += count


# Groups ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupStats:
    """The statistics of one group.

    Attributes:
        group: The group; None for rollouts without one.
        rows: The number of its rollouts.
        scores: The valid scores.
        steps: How many steps have an advantage.
        shared_steps: How many of them share their state with another step of the group.
        anchors: The number of anchor groups of each size, from 1.
        dead_anchors: How many anchor groups of two or more have equal returns.
        uncredited: Whether no credit could be assigned.
    """

    group: Any
    rows: int
    scores: tuple[float, ...]
    steps: int = 0
    shared_steps: int = 0
    anchors: dict[int, int] = field(default_factory=dict)
    dead_anchors: int = 0
    uncredited: bool = False

    @property
    def dead(self) -> bool:
        """Whether two or more scores are all equal, so that there is nothing to learn from them."""
        return len(self.scores) > 1 and min(self.scores) == max(self.scores)

    @property
    def mean_score(self) -> float | None:
        """The mean of the valid scores."""
        if not self.scores:
            return None
        try:
            return math.fsum(self.scores) / len(self.scores)
        except OverflowError:  # only the sum overflows
            return math.fsum(score / len(self.scores) for score in self.scores)

    def to_dict(self) -> dict[str, Any]:
        """The statistics as JSON data."""
        names = ("group", "rows", "scores", "mean_score", "dead", "steps", "shared_steps")
        return {name: getattr(self, name) for name in names} | {"scores": list(self.scores)}


def group_stats(rows: Sequence[ResultRow], *, credited: bool) -> GroupStats:
    """The statistics of one group.

    Args:
        rows: The rows of the group.
        credited: Whether their steps should have advantages.
    """
    scores = tuple(row["score"] for row in rows if row["score"] is not None)
    steps = [
        step for row in rows for step in row.get("steps", ()) if step.get("advantage") is not None
    ]
    returns: dict[int, list[float]] = {}
    for step in steps:
        if "anchor" in step:
            returns.setdefault(step["anchor"], []).append(step["return_to_go"])
    sizes = Counter(map(len, returns.values()))
    return GroupStats(
        rows[0]["group"],
        len(rows),
        scores,
        steps=len(steps),
        shared_steps=sum(size * count for size, count in sizes.items() if size > 1),
        anchors=dict(sorted(sizes.items())),
        dead_anchors=sum(len(each) > 1 and min(each) == max(each) for each in returns.values()),
        uncredited=credited and bool(scores) and not steps,
    )


@dataclass(slots=True)
class GroupSummary:
    """Counts over groups, in bounded memory.

    Example:
        >>> summary = GroupSummary()
        >>> summary.add(
        ...     GroupStats("q7", 2, (1.0, 1.0), steps=4, shared_steps=2, anchors={1: 2, 2: 1}))
        >>> summary.groups, summary.dead, summary.anchor_coverage
        (1, 1, 0.5)

    Attributes:
        groups: The number of groups.
        without: How many rollouts have no group.
        alone: How many groups have a single valid score, with nothing to compare it with.
        dead: How many groups have two or more scores, all equal.
        uncredited: How many groups got no credit.
        steps: How many steps have an advantage.
        shared_steps: How many of them share their state with another step of their group.
        anchors: The number of anchor groups of each size.
        dead_anchors: How many anchor groups of two or more have equal returns.
        first: The statistics of the first groups.
    """

    groups: int = 0
    without: int = 0
    alone: int = 0
    dead: int = 0
    uncredited: int = 0
    steps: int = 0
    shared_steps: int = 0
    anchors: Counter[int] = field(default_factory=Counter)
    dead_anchors: int = 0
    first: list[GroupStats] = field(default_factory=list)

    @property
    def anchor_coverage(self) -> float | None:
        """The share of the steps that share their state with another; None without steps."""
        return self.shared_steps / self.steps if self.steps else None

    def add(self, stats: GroupStats) -> None:
        """Count a group."""
        if stats.group is None:
            self.without += stats.rows
        else:
            self.groups += 1
            self.alone += len(stats.scores) == 1
            self.dead += stats.dead
            if len(self.first) < MAX_GROUPS:
                self.first.append(stats)
        self.uncredited += stats.uncredited
        self.steps += stats.steps
        self.shared_steps += stats.shared_steps
        self.anchors.update(stats.anchors)
        self.dead_anchors += stats.dead_anchors

    def merge(self, other: GroupSummary) -> None:
        """Add the counts of another summary."""
        for name in ("groups", "without", "alone", "dead", "uncredited", "steps", "shared_steps",
                     "dead_anchors"):  # fmt: skip
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.anchors.update(other.anchors)
        self.first = (self.first + other.first)[:MAX_GROUPS]

    def to_dict(self) -> dict[str, Any]:
        """The summary as JSON data."""
        return {
            "groups": self.groups,
            "rows_without_group": self.without,
            "groups_of_one": self.alone,
            "dead_groups": self.dead,
            "uncredited_groups": self.uncredited,
            "steps": self.steps,
            "anchor_coverage": self.anchor_coverage,
            "anchor_sizes": {str(size): count for size, count in sorted(self.anchors.items())},
            "dead_anchors": self.dead_anchors,
            "by_group": [stats.to_dict() for stats in self.first],
        }


# Rows --------------------------------------------------------------------------------------------


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
        passing: The score from which a row counts as passed; None counts none.
        groups: The summary of the groups; None if groups don't matter.
        rubrics: The names of the classes of rubrics by path.
        most: How many parts and kinds of failures there may be by name; None for `MAX_PARTS`. That
            of a chunk has no limit, or merging it would count others as "(others)" than counting
            its rows.
        rows: The number of rows.
        failed: How many rows have no valid score.
        zeros: How many valid rows have a score of 0.
        passed: How many valid rows passed.
        dealt_with: How many valid rows report a failure that the reward handled.
        noted: How many rows have a note.
        score: The mean of the valid scores.
        components: The mean of each component over the valid rows that have it.
        stopped: How many rows each gate stopped.
        failures: How many rows failed, by the name of the exception.
        first_failures: The first error of each kind.
        parts: The summary of each value of the column that the run is broken down by.
    """

    gates: tuple[str, ...] = ()
    passing: float | None = None
    groups: GroupSummary | None = None
    rubrics: Mapping[str, str] = field(default_factory=dict)
    most: float | None = None
    rows: int = 0
    failed: int = 0
    zeros: int = 0
    passed: int = 0
    dealt_with: int = 0
    noted: int = 0
    score: Mean = field(default_factory=Mean)
    components: dict[str, Mean] = field(default_factory=dict)
    stopped: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    first_failures: dict[str, str] = field(default_factory=dict)
    parts: dict[str, Summary] = field(default_factory=dict)

    @property
    def accuracy(self) -> float | None:
        """The share of the valid rows that passed; None without valid rows."""
        return self.passed / self.score.count if self.score.count else None

    def add(self, row: ResultRow, part: str | None = None) -> None:
        """Count a row, and count it for a part of the breakdown."""
        self.rows += 1
        self.noted += bool(row.get("notes"))
        score = row["score"]
        if score is None:
            self.failed += 1
            error = row["error"] or ""
            self._count_failures(kind_of_failure(error), 1, error[:MAX_TEXT])
        else:
            self.score.add(score)
            self.zeros += is_zero(score)
            self.dealt_with += row["error"] is not None
            if self.passing is not None:
                self.passed += reaches(score, self.passing)
            self._add_components(row["components"])
            for gate in row.get("stopped_by", ()):
                self.stopped[gate] += 1
        if part is not None:
            self._part(part).add(row)

    def _add_components(self, components: dict[str, float]) -> None:
        means = self.components
        for name, value in components.items():
            mean = means.get(name)
            if mean is None:
                mean = means[name] = Mean()
            mean.total += value  # inlined: this is the innermost loop of a run
            mean.count += 1

    def merge(self, other: Summary) -> None:
        """Add the counts of another summary."""
        for name in ("rows", "failed", "zeros", "passed", "dealt_with", "noted"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.score.add(other.score.total, other.score.count)
        for name, mean in other.components.items():
            self.components.setdefault(name, Mean()).add(mean.total, mean.count)
        self.stopped.update(other.stopped)
        for kind, count in other.failures.items():
            self._count_failures(kind, count, other.first_failures.get(kind, ""))
        for name, part in other.parts.items():
            self._part(name).merge(part)
        if self.groups is not None and other.groups is not None:
            self.groups.merge(other.groups)

    def to_dict(self) -> dict[str, Any]:
        """The summary as JSON data."""
        accuracy = {"passing": self.passing, "accuracy": self.accuracy}
        return {
            "rows": self.rows,
            "valid": self.rows - self.failed,
            "failed": self.failed,
            "zeros": self.zeros,
            "mean_score": self.score.value,
            **(accuracy if self.passing is not None else {}),
            "components": {
                name: {"mean": mean.value, "rows": mean.count}
                for name, mean in self.components.items()
            },
            **({"rubrics": dict(self.rubrics)} if self.rubrics else {}),
            "stopped": {gate: self.stopped[gate] for gate in self.gates},
            "failures": dict(self.failures),
            "first_failures": self.first_failures,
            "dealt_with": self.dealt_with,
            "noted": self.noted,
            **({"groups": self.groups.to_dict()} if self.groups is not None else {}),
            **({"by": {name: each.to_dict() for name, each in self.parts.items()}}
               if self.parts else {}),
        }  # fmt: skip

    def _part(self, name: str) -> Summary:
        name = bounded_name(name, self.parts, self.most)
        return self.parts.setdefault(name, Summary(self.gates, self.passing, most=self.most))

    def _count_failures(self, kind: str, count: int, first: str) -> None:
        kind = bounded_name(kind, self.failures, self.most)
        self.failures[kind] += count
        self.first_failures.setdefault(kind, first)


def kind_of_failure(error: str) -> str:
    """The name of the exception in the text of a row's error."""
    return next((part for part in error.split(": ") if part.isidentifier()), "unknown")
