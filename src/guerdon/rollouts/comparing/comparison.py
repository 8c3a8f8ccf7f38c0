"""`Comparison`: what two rewards gave for the same rollouts, side by side."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from numbers import Real
from typing import Any

from guerdon.errors import InvalidArgumentError
from guerdon.rollouts.comparing.group_comparison import GroupComparison, GroupTally
from guerdon.rollouts.comparing.movement import Movement, MovementTally
from guerdon.rollouts.comparing.telling import told_id
from guerdon.rollouts.scoring.rows import ResultRow
from guerdon.rollouts.scoring.summary import MAX_PARTS, OTHERS, Summary

__all__ = ["Comparison", "ComparisonTally", "RowMove", "compare_rows"]

# Characters of an error that are told.
MAX_TEXT = 500


@dataclass(frozen=True, slots=True)
class RowMove:
    """What became of one rollout.

    Attributes:
        id: The rollout's.
        group: The rollout's.
        before: Its score before; None where it is invalid.
        after: Its score after; None where it is invalid.
        components_before: Its components before, by dotted name.
        components_after: Its components after.
        error: What failed, where it is valid in one only.
    """

    id: Any
    group: Any
    before: float | None
    after: float | None
    components_before: Mapping[str, float]
    components_after: Mapping[str, float]
    error: str | None = None

    @property
    def difference(self) -> float | None:
        """The score after less the score before; None where one is missing."""
        if self.before is None or self.after is None:
            return None
        found = self.after - self.before
        return found if math.isfinite(found) else None

    def to_dict(self) -> dict[str, Any]:
        """The row as JSON can hold it."""
        told = {
            "id": self.id,
            "group": self.group,
            "before": self.before,
            "after": self.after,
            "difference": self.difference,
            "components_before": dict(self.components_before),
            "components_after": dict(self.components_after),
        }
        return told if self.error is None else told | {"error": self.error}


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two rewards gave for the same rollouts.

    A rollout that has no valid score with one of them is counted as that, and is neither a
    difference nor part of a ranking.

    Example:
        >>> from guerdon import NumericAnswer, Rollout, compare_rewards
        >>> rollouts = [Rollout.from_row({"id": text, "group": "g", "ground_truth": "42",
        ...     "messages": [{"role": "assistant", "content": text}]}) for text in ("42", "43")]
        >>> found = compare_rewards(NumericAnswer(), NumericAnswer(tolerance=1.0), rollouts)
        >>> found.comparison.movement.mean, found.comparison.groups.pairs.ties_made
        (0.5, 1)

    Attributes:
        before: The summary of all rows of the reward before.
        after: The same of the reward after.
        movement: How the scores moved.
        only_before: How many rollouts are valid before only: their scores are lost.
        only_after: How many are valid after only: their scores are won.
        neither: How many are valid in neither.
        components: Of each component its movement, over the rollouts that are valid in both and
            have it in both; of a component that only one reward has, ``both`` is 0.
        moved: The rollouts whose scores moved most, the furthest first.
        lost: The first of those that are valid before only, with what failed.
        won: The first of those that are valid after only, with what failed before.
        groups: How the rankings within groups changed; None where no rollout has a group.
        parts: The movement for each value of a column.
    """

    before: Summary
    after: Summary
    movement: Movement
    only_before: int
    only_after: int
    neither: int
    components: dict[str, Movement]
    moved: tuple[RowMove, ...]
    lost: tuple[RowMove, ...]
    won: tuple[RowMove, ...]
    groups: GroupComparison | None
    parts: dict[str, Movement]

    @property
    def rows(self) -> int:
        """How many rollouts there are."""
        return self.movement.rows

    @property
    def failed(self) -> int:
        """How many have no valid score before or after."""
        return self.only_before + self.only_after + self.neither

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON can hold it."""
        told: dict[str, Any] = {
            **self.movement.to_dict(),
            "valid_before_only": self.only_before,
            "valid_after_only": self.only_after,
            "valid_in_neither": self.neither,
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "components": {name: each.to_dict() for name, each in self.components.items()},
            "moved": [each.to_dict() for each in self.moved],
            "lost": [each.to_dict() for each in self.lost],
            "won": [each.to_dict() for each in self.won],
        }
        if self.groups is not None:
            told["groups"] = self.groups.to_dict()
        if self.parts:
            told["by"] = {name: each.to_dict() for name, each in self.parts.items()}
        return told


def compare_rows(
    before: Iterable[ResultRow],
    after: Iterable[ResultRow],
    *,
    parts: Iterable[str | None] | None = None,
    top: int = 10,
) -> Comparison:
    """Compare the rows that two rewards gave for the same rollouts, in the same order.

    Example:
        >>> from guerdon import Rollout, score_rollouts, as_rubric
        >>> rollouts = [Rollout.from_row({"id": each, "group": "g", "messages": [
        ...     {"role": "assistant", "content": each}]}) for each in ("a", "bb")]
        >>> long = as_rubric(lambda action, observation: float(len(action.content)))
        >>> short = as_rubric(lambda action, observation: 1.0 / len(action.content))
        >>> found = compare_rows(score_rollouts(long, rollouts), score_rollouts(short, rollouts))
        >>> found.movement.mean, found.moved[0].id, found.groups.pairs.flipped
        (-0.75, 'bb', 1)

    Args:
        before: The rows of one reward, each read once.
        after: Those of the other.
        parts: To which part of a breakdown each belongs.
        top: How many rollouts, and flipped pairs, are told one by one, from 0.

    Raises:
        InvalidArgumentError: The rows aren't of the same rollouts, or a score is no finite number.
    """
    tally = ComparisonTally(top=top)
    rows = zip(before, after, strict=True)
    try:
        for (one, other), part in zip(rows, repeat(None) if parts is None else parts, strict=False):
            tally.add(one, other, part=part)
    except ValueError as error:
        if isinstance(error, InvalidArgumentError) or not str(error).startswith("zip()"):
            raise
        raise InvalidArgumentError(
            f"after row {tally.rows} one has rows and the other none; both are of the same rollouts"
        ) from None
    return tally.result()


@dataclass(slots=True)
class ComparisonTally:
    """Collects rows of the same rollouts, before and after, in bounded memory.

    Of each rollout it keeps the difference, and where it has a group its id (200 characters of
    it) and two scores; components only of those that are told one by one.

    Attributes:
        top: How many rollouts, and flipped pairs, are told one by one, from 0.
        before: The summary of the rows before; not to be counted in by others.
        after: The same of the rows after.
    """

    top: int = 10
    before: Summary = field(default_factory=Summary)
    after: Summary = field(default_factory=Summary)
    rows: int = 0
    _only: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("lost", "won", "no"), 0))
    _movement: MovementTally = field(default_factory=lambda: MovementTally(keeps=True))
    _components: dict[str, MovementTally] = field(default_factory=dict)
    _moved: list[tuple[float, int, RowMove]] = field(default_factory=list)
    _lost: list[RowMove] = field(default_factory=list)
    _won: list[RowMove] = field(default_factory=list)
    _groups: GroupTally = field(default_factory=GroupTally)
    _parts: dict[str, MovementTally] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.top, bool) or not isinstance(self.top, int) or self.top < 0:
            raise InvalidArgumentError(f"top is {self.top!r:.80}; it takes an int from 0 on")

    def add(self, before: ResultRow, after: ResultRow, *, part: str | None = None) -> None:
        """Add a rollout.

        Args:
            before: Its row before.
            after: Its row after.
            part: Which part of a breakdown it belongs to.

        Raises:
            InvalidArgumentError: They aren't of one rollout, or a score is no finite number.
        """
        self._check(before, after)
        self.rows += 1
        self.before.add(before)
        self.after.add(after)
        one, other = before["score"], after["score"]
        scores = None if one is None or other is None else (one, other)
        self._movement.add(scores)
        self._groups.add(before["group"], before["id"], scores)
        if part is not None:
            self._part(part).add(scores)
        if scores is not None:
            self._add_components(before["components"], after["components"])
            self._add_move(before, after, abs(scores[1] - scores[0]))
        else:
            self._add_failure(before, after)

    def result(self) -> Comparison:
        """The comparison of what there is so far."""
        return Comparison(
            self.before,
            self.after,
            self._movement.result(),
            self._only["lost"],
            self._only["won"],
            self._only["no"],
            {name: each.result() for name, each in self._components.items()},
            tuple(move for *_, move in sorted(self._moved, reverse=True)),
            tuple(self._lost),
            tuple(self._won),
            self._groups.result(top=self.top),
            {name: each.result() for name, each in self._parts.items()},
        )

    def _check(self, before: ResultRow, after: ResultRow) -> None:
        for name in ("id", "group"):
            if repr(before[name]) != repr(after[name]):
                raise InvalidArgumentError(
                    f"row {self.rows + 1} has the {name} {before[name]!r:.80} before and "
                    f"{after[name]!r:.80} after; both are of the same rollouts, in the same order"
                )
        for when, row in (("before", before), ("after", after)):
            score = row["score"]
            if score is not None and not _is_finite(score):
                raise InvalidArgumentError(
                    f"row {self.rows + 1} has the score {score!r:.80} {when}; it takes a finite "
                    "number, or None where it is invalid"
                )

    def _add_components(self, before: Mapping[str, float], after: Mapping[str, float]) -> None:
        for name in {**before, **after}:
            tally = self._components.get(name)
            if tally is None:
                tally = self._components[name] = MovementTally()
            tally.add((before[name], after[name]) if name in before and name in after else None)

    def _add_move(self, before: ResultRow, after: ResultRow, distance: float) -> None:
        """Keep a rollout while it is among those that moved furthest, earlier ones first."""
        full = len(self._moved) >= self.top
        if not self.top or not distance or (full and distance <= self._moved[0][0]):
            return
        push = heapq.heapreplace if full else heapq.heappush
        push(self._moved, (distance, -self.rows, _move(before, after)))

    def _add_failure(self, before: ResultRow, after: ResultRow) -> None:
        which = "won" if before["score"] is None else "lost"
        if before["score"] is None and after["score"] is None:
            self._only["no"] += 1
            return
        self._only[which] += 1
        kept = self._won if which == "won" else self._lost
        if len(kept) < self.top:
            failed = before if which == "won" else after
            kept.append(_move(before, after, (failed["error"] or "it is invalid")[:MAX_TEXT]))

    def _part(self, name: str) -> MovementTally:
        if name not in self._parts and len(self._parts) >= MAX_PARTS:
            name = OTHERS
        return self._parts.setdefault(name, MovementTally())


def _is_finite(score: Any) -> bool:
    try:
        number = isinstance(score, Real) and not isinstance(score, bool)
        return number and math.isfinite(score)
    except OverflowError:  # an int beyond every float
        return False


def _move(before: ResultRow, after: ResultRow, error: str | None = None) -> RowMove:
    return RowMove(
        told_id(before["id"]),
        told_id(before["group"]),
        before["score"],
        after["score"],
        before["components"],
        after["components"],
        error,
    )
