"""`GroupComparison`: how the rollouts of a group rank, before and after."""

from __future__ import annotations

import hashlib
import heapq
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Any

from guerdon.rollouts.comparing.ranking import PairCounts, count_pairs
from guerdon.rollouts.comparing.telling import told_id
from guerdon.rollouts.keys import group_key
from guerdon.rollouts.scoring.summary import Mean

__all__ = ["Flip", "GroupComparison", "GroupMove", "GroupTally"]

# How many groups are told one by one, and of each how many of its best rollouts.
MAX_GROUPS = 100
MAX_BEST = 5

# In a group with more rollouts, only those that are neighbours by their score before are looked at
# for examples; the counts are exact all the same.
MAX_COMBINED = 200

# Characters of a group's key from which on its digest is kept.
MAX_KEY = 64


@dataclass(frozen=True, slots=True)
class Flip:
    """Two rollouts of a group that changed places.

    Attributes:
        group: The group.
        better_before: The id of the one that was better before.
        better_after: The id of the one that is better after.
        before: Their scores before, in this order.
        after: Their scores after, in this order.
    """

    group: Any
    better_before: Any
    better_after: Any
    before: tuple[float, float]
    after: tuple[float, float]

    @property
    def clarity(self) -> float:
        """The smaller of the two gaps between them."""
        return min(self.before[0] - self.before[1], self.after[1] - self.after[0])

    def to_dict(self) -> dict[str, Any]:
        """The pair as JSON can hold it."""
        return {
            "group": self.group,
            "better_before": self.better_before,
            "better_after": self.better_after,
            "before": list(self.before),
            "after": list(self.after),
        }


@dataclass(frozen=True, slots=True)
class GroupMove:
    """How the ranking within one group changed, among the rollouts that are valid in both.

    Attributes:
        group: The group.
        rows: How many rollouts it has.
        both: How many of them are valid in both.
        pairs: What became of their pairs.
        best_before: The ids of those with the highest score before, the first 5.
        best_after: The ids of those with the highest score after, the first 5.
        best: ``same``, ``changed`` where none that was best still is, or ``tied`` where a tie at
            the top was made or broken.
    """

    group: Any
    rows: int
    both: int
    pairs: PairCounts
    best_before: tuple[Any, ...]
    best_after: tuple[Any, ...]
    best: str

    def to_dict(self) -> dict[str, Any]:
        """The group as JSON can hold it."""
        return {
            "group": self.group,
            "rows": self.rows,
            "valid_in_both": self.both,
            **pairs_as_dict(self.pairs),
            "tau": self.pairs.tau,
            "best": self.best,
            "best_before": list(self.best_before),
            "best_after": list(self.best_after),
        }


@dataclass(frozen=True, slots=True)
class GroupComparison:
    """How the rankings within groups changed.

    Only rollouts that are valid in both are ranked, and only against others of their group.

    Attributes:
        groups: How many groups there are.
        compared: How many have two or more rollouts that are valid in both.
        alone: How many rollouts have no group.
        pairs: What became of the pairs, over all groups.
        with_flips: How many groups have a pair that flipped.
        tau: The mean of Kendall's τ_b over the groups that have one; None where none has.
        with_tau: How many have one: those whose scores aren't all equal before or after.
        best_changed: In how many groups none of the best before is among the best after.
        best_tied: In how many the best are others, since a tie at the top was made or broken.
        dead_before: In how many all scores are equal before, so that methods that normalise
            within a group learn nothing from them.
        dead_after: In how many they are equal after.
        moved: The groups with the most flipped pairs, up to 100; those without any aren't told.
        flips: The clearest of the pairs that flipped, by the smaller of their two gaps.
    """

    groups: int
    compared: int
    alone: int
    pairs: PairCounts
    with_flips: int
    tau: float | None
    with_tau: int
    best_changed: int
    best_tied: int
    dead_before: int
    dead_after: int
    moved: tuple[GroupMove, ...] = ()
    flips: tuple[Flip, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The groups as JSON can hold them."""
        return {
            "groups": self.groups,
            "compared": self.compared,
            "rows_without_group": self.alone,
            **pairs_as_dict(self.pairs),
            "with_flips": self.with_flips,
            "mean_tau": self.tau,
            "with_tau": self.with_tau,
            "best_changed": self.best_changed,
            "best_tied": self.best_tied,
            "dead_before": self.dead_before,
            "dead_after": self.dead_after,
            "moved": [each.to_dict() for each in self.moved],
            "flips": [each.to_dict() for each in self.flips],
        }


def pairs_as_dict(counts: PairCounts) -> dict[str, int]:
    """The counts as JSON can hold them."""
    return {
        "pairs": counts.pairs,
        "kept": counts.kept,
        "flipped": counts.flipped,
        "ties_broken": counts.ties_broken,
        "ties_made": counts.ties_made,
        "tied": counts.tied,
    }


@dataclass(slots=True)
class _Group:
    """What is kept of a group: of each rollout that is valid in both, its id and two scores."""

    name: Any
    rows: int = 0
    ids: list[Any] = field(default_factory=list)
    before: array[float] = field(default_factory=lambda: array("d"))
    after: array[float] = field(default_factory=lambda: array("d"))

    def best(self, scores: array[float]) -> list[int]:
        highest = max(scores)
        return [place for place, score in enumerate(scores) if score == highest]

    def move(self) -> GroupMove:
        before, after = self.best(self.before), self.best(self.after)
        best = "same"
        if before != after:
            best = "tied" if set(before) & set(after) else "changed"
        return GroupMove(
            self.name,
            self.rows,
            len(self.ids),
            count_pairs(self.before, self.after),
            tuple(self.ids[place] for place in before[:MAX_BEST]),
            tuple(self.ids[place] for place in after[:MAX_BEST]),
            best,
        )

    def flips(self) -> Iterator[Flip]:
        order = sorted(zip(self.before, self.after, self.ids, strict=True), key=lambda e: e[:2])
        pairs = combinations(order, 2) if len(order) <= MAX_COMBINED else pairwise(order)
        for worse, better in pairs:
            if worse[0] < better[0] and worse[1] > better[1]:
                yield Flip(
                    self.name, better[2], worse[2], (better[0], worse[0]), (better[1], worse[1])
                )


class GroupTally:
    """Collects rollouts by their group; those of a group may stand anywhere."""

    def __init__(self) -> None:
        self._groups: dict[Any, _Group] = {}
        self._alone = 0

    def add(self, group: Any, found: Any, scores: tuple[float, float] | None) -> None:
        """Add a rollout.

        Args:
            group: Its group; None where it has none.
            found: Its id.
            scores: Before and after; None where it isn't valid in both.
        """
        if group is None:
            self._alone += 1
            return
        key = _key(group)
        kept = self._groups.get(key)
        if kept is None:
            kept = self._groups[key] = _Group(told_id(group))
        kept.rows += 1
        if scores is not None:
            kept.ids.append(told_id(found))
            kept.before.append(scores[0])
            kept.after.append(scores[1])

    def result(self, *, top: int) -> GroupComparison | None:
        """The comparison; None where no rollout has a group.

        Args:
            top: How many flipped pairs are told.
        """
        if not self._groups:
            return None
        ranked = [group for group in self._groups.values() if len(group.ids) > 1]
        moves = [group.move() for group in ranked]
        taus = Mean()
        for tau in (move.pairs.tau for move in moves):
            if tau is not None:
                taus.total += tau
                taus.count += 1
        flipped = [(move, group) for move, group in zip(moves, ranked, strict=True)
                   if move.pairs.flipped]  # fmt: skip
        return GroupComparison(
            groups=len(self._groups),
            compared=len(moves),
            alone=self._alone,
            pairs=_total(move.pairs for move in moves),
            with_flips=len(flipped),
            tau=taus.value,
            with_tau=taus.count,
            best_changed=sum(move.best == "changed" for move in moves),
            best_tied=sum(move.best == "tied" for move in moves),
            dead_before=sum(min(group.before) == max(group.before) for group in ranked),
            dead_after=sum(min(group.after) == max(group.after) for group in ranked),
            moved=_most(MAX_GROUPS, (move for move, _ in flipped)),
            flips=tuple(
                heapq.nlargest(
                    top,
                    (flip for _, group in flipped for flip in group.flips()),
                    key=lambda flip: flip.clarity,
                )
            ),
        )


def _most(count: int, moves: Iterable[GroupMove]) -> tuple[GroupMove, ...]:
    return tuple(heapq.nlargest(count, moves, key=lambda move: move.pairs.flipped))


def _total(counts: Iterable[PairCounts]) -> PairCounts:
    return sum(counts, PairCounts())


def _key(group: Any) -> Any:
    key = str(group_key(group))
    if len(key) <= MAX_KEY:
        return key
    return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
