"""What a run over groups of rollouts gave: their scores, and what can be learnt from them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from guerdon.rollouts.scoring.rows import ResultRow

__all__ = ["GroupFacts", "GroupSummary", "facts_of"]

# How many groups are told one by one.
MAX_GROUPS = 100


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """What there is to tell of one group.

    Attributes:
        name: The group; None where a rollout has none.
        rows: How many rollouts it has.
        scores: The valid scores.
        steps: How many steps have an advantage.
        shared: How many of them share their state with another step of the group.
        anchors: How many anchor groups there are of each size, from one.
        dead_anchors: How many of two or more have the same return throughout.
        uncredited: Whether no credit could be assigned.
    """

    name: Any
    rows: int
    scores: tuple[float, ...]
    steps: int = 0
    shared: int = 0
    anchors: dict[int, int] = field(default_factory=dict)
    dead_anchors: int = 0
    uncredited: bool = False

    @property
    def is_dead(self) -> bool:
        """Whether two or more scores are all the same, so that nothing is learnt from them."""
        return len(self.scores) > 1 and min(self.scores) == max(self.scores)

    @property
    def mean(self) -> float | None:
        """The mean of the valid scores."""
        if not self.scores:
            return None
        try:
            return math.fsum(self.scores) / len(self.scores)
        except OverflowError:  # their sum is beyond every float, and their mean isn't
            return math.fsum(score / len(self.scores) for score in self.scores)


def facts_of(rows: Sequence[ResultRow], *, credited: bool) -> GroupFacts:
    """The facts of one group, from its rows.

    Args:
        rows: The rows.
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
    return GroupFacts(
        rows[0]["group"],
        len(rows),
        scores,
        steps=len(steps),
        shared=sum(size * count for size, count in sizes.items() if size > 1),
        anchors=dict(sorted(sizes.items())),
        dead_anchors=sum(len(each) > 1 and min(each) == max(each) for each in returns.values()),
        uncredited=credited and bool(scores) and not steps,
    )


@dataclass(slots=True)
class GroupSummary:
    """Counts over groups, in bounded memory.

    Example:
        >>> summary = GroupSummary()
        >>> summary.add(GroupFacts("q7", 2, (1.0, 1.0), steps=4, shared=2, anchors={1: 2, 2: 1}))
        >>> summary.groups, summary.dead, summary.anchor_coverage
        (1, 1, 0.5)

    Attributes:
        groups: How many groups there were.
        without: How many rollouts have no group.
        alone: How many groups have one valid score, which nothing compares with.
        dead: How many have two or more, all the same.
        steps: How many steps have an advantage.
        shared: How many of them share their state with another step of their group.
        anchors: How many anchor groups there are of each size.
        dead_anchors: How many of two or more have the same return throughout.
        uncredited: How many groups got no credit.
        first: The facts of the first groups.
    """

    groups: int = 0
    without: int = 0
    alone: int = 0
    dead: int = 0
    steps: int = 0
    shared: int = 0
    anchors: dict[int, int] = field(default_factory=dict)
    dead_anchors: int = 0
    uncredited: int = 0
    first: list[GroupFacts] = field(default_factory=list)

    @property
    def anchor_coverage(self) -> float | None:
        """The share of the steps that share their state with another; None without steps."""
        return self.shared / self.steps if self.steps else None

    def add(self, facts: GroupFacts) -> None:
        """Count a group."""
        if facts.name is None:
            self.without += facts.rows
        else:
            self.groups += 1
            self.alone += len(facts.scores) == 1
            self.dead += facts.is_dead
            if len(self.first) < MAX_GROUPS:
                self.first.append(facts)
        self.steps += facts.steps
        self.shared += facts.shared
        self.dead_anchors += facts.dead_anchors
        self.uncredited += facts.uncredited
        for size, count in facts.anchors.items():
            self.anchors[size] = self.anchors.get(size, 0) + count

    def merge(self, other: GroupSummary) -> None:
        """Count all that `other` has counted."""
        for name in ("groups", "without", "alone", "dead", "steps", "shared"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.dead_anchors += other.dead_anchors
        self.uncredited += other.uncredited
        for size, count in other.anchors.items():
            self.anchors[size] = self.anchors.get(size, 0) + count
        self.first = (self.first + other.first)[:MAX_GROUPS]

    def to_dict(self) -> dict[str, Any]:
        """The summary as JSON can hold it."""
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
            "by_group": [
                {
                    "group": facts.name,
                    "rows": facts.rows,
                    "scores": list(facts.scores),
                    "mean_score": facts.mean,
                    "dead": facts.is_dead,
                    "steps": facts.steps,
                    "shared_steps": facts.shared,
                }
                for facts in self.first
            ],
        }
