"""`GroupComparison`: how the rollouts of a group rank before and after, and Kendall's τ_b."""

from __future__ import annotations

import hashlib
import heapq
import json
import math
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, field
from itertools import combinations, pairwise
from typing import Any

from guerdon.rollouts.json_forms import as_text, group_key

# How many groups are listed, and how many of the best rollouts of each.
MAX_GROUPS = 100
MAX_BEST = 5

# In a larger group, only neighbours by their score before are examples of flips; the counts are
# exact.
MAX_COMBINED = 200

# Characters of a group's key above which its digest is kept, and of an id that are kept.
MAX_KEY = 64
MAX_ID = 200


def brief(value: Any) -> Any:
    """An id or a group as JSON data; if it is long, the beginning of its text.

    Example:
        >>> brief(["q7", 1]), len(brief("x" * 1000))
        (['q7', 1], 201)
    """
    data = as_text(value)
    if data is None or type(data) in (bool, int, float):
        return data
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return data if len(text) <= MAX_ID else text[:MAX_ID] + "…"


@dataclass(frozen=True, slots=True)
class PairCounts:
    """How the order of the pairs in a group changed; each pair is counted once.

    Example:
        >>> count_pairs([0.1, 0.2, 0.3], [0.1, 0.3, 0.2])
        PairCounts(kept=2, flipped=1, ties_broken=0, ties_made=0, tied=0)

    Attributes:
        kept: The same one is better before and after.
        flipped: Another one is better after.
        ties_broken: Equal before only.
        ties_made: Equal after only.
        tied: Equal before and after.
    """

    kept: int = 0
    flipped: int = 0
    ties_broken: int = 0
    ties_made: int = 0
    tied: int = 0

    @property
    def pairs(self) -> int:
        """The number of pairs."""
        return self.kept + self.flipped + self.ties_broken + self.ties_made + self.tied

    @property
    def tau(self) -> float | None:
        """Kendall's τ_b, in [-1, 1]: 1 if the order is the same, -1 if it is reversed.

        With P pairs kept, Q flipped, X ties broken and Y ties made::

            τ_b = (P − Q) / √((P + Q + Y) (P + Q + X))

        None if all scores are equal before or after. M. G. Kendall, "The Treatment of Ties in
        Ranking Problems", Biometrika 33 (1945).
        """
        strict = self.kept + self.flipped
        before, after = strict + self.ties_made, strict + self.ties_broken
        if not before or not after:
            return None
        return (self.kept - self.flipped) / math.sqrt(before * after)


def count_pairs(before: Sequence[float], after: Sequence[float]) -> PairCounts:
    """Count how the order of every pair of rollouts changed, in O(n log n).

    The flipped pairs are the inversions that are left when the rollouts are sorted by their score
    before: W. R. Knight, "A Computer Method for Calculating Kendall's Tau with Ungrouped Data",
    Journal of the American Statistical Association 61 (1966).

    Example:
        >>> count_pairs([1.0, 1.0, 0.0], [0.5, 0.0, 0.5])
        PairCounts(kept=0, flipped=1, ties_broken=1, ties_made=1, tied=0)

    Args:
        before: The scores before, (n,), finite.
        after: The scores of the same rollouts after, (n,), finite.
    """
    together = sorted(zip(before, after, strict=True))
    pairs = _pairs(len(together))
    tied_before, tied_after, tied = _ties(before), _ties(after), _ties(together)
    flipped, _ = _inversions([score for _, score in together])
    return PairCounts(
        kept=pairs - tied_before - tied_after + tied - flipped,
        flipped=flipped,
        ties_broken=tied_before - tied,
        ties_made=tied_after - tied,
        tied=tied,
    )


def _pairs(count: int) -> int:
    return count * (count - 1) // 2


def _ties(values: Iterable[object]) -> int:
    return sum(map(_pairs, Counter(values).values()))


def _inversions(values: list[float]) -> tuple[int, list[float]]:
    """The number of pairs in the wrong order, and the values sorted."""
    if len(values) < 2:
        return 0, values
    half = len(values) // 2
    in_left, left = _inversions(values[:half])
    in_right, right = _inversions(values[half:])
    across = sum(len(left) - bisect_right(left, value) for value in right)
    return in_left + in_right + across, sorted(left + right)


@dataclass(frozen=True, slots=True)
class Flip:
    """Two rollouts of a group whose order changed.

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


@dataclass(frozen=True, slots=True)
class GroupMove:
    """How the ranking within one group changed, among the rollouts with two valid scores.

    Attributes:
        group: The group.
        rows: The number of its rollouts.
        valid_in_both: How many of them have a valid score before and after.
        pairs: How the order of their pairs changed.
        tau: Kendall's τ_b.
        best: ``same``; ``changed`` if none of the best before is among the best after; ``tied`` if
            a tie for the best was made or broken.
        best_before: The ids of those with the highest score before, up to 5.
        best_after: The ids of those with the highest score after, up to 5.
    """

    group: Any
    rows: int
    valid_in_both: int
    pairs: PairCounts
    tau: float | None
    best: str
    best_before: tuple[Any, ...]
    best_after: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class GroupComparison:
    """How the rankings within groups changed.

    Only rollouts with a valid score before and after are ranked, within their group.

    Attributes:
        groups: The number of groups.
        compared: How many have two or more rollouts that are ranked.
        rows_without_group: How many rollouts have no group.
        pairs: How the order of the pairs changed, over all groups.
        with_flips: How many groups have a flipped pair.
        mean_tau: The mean of Kendall's τ_b over the groups that have one; None without any.
        with_tau: How many groups have one: their scores are neither all equal before nor after.
        best_changed: In how many groups none of the best before is among the best after.
        best_tied: In how many groups a tie for the best was made or broken.
        dead_before: In how many groups all scores are equal before, so that methods that normalize
            within a group learn nothing from them.
        dead_after: In how many groups all scores are equal after.
        moved: The groups with the most flipped pairs, up to 100; those without any aren't listed.
        flips: The clearest of the flipped pairs, by the smaller of their two gaps.
    """

    groups: int
    compared: int
    rows_without_group: int
    pairs: PairCounts
    with_flips: int
    mean_tau: float | None
    with_tau: int
    best_changed: int
    best_tied: int
    dead_before: int
    dead_after: int
    moved: tuple[GroupMove, ...] = ()
    flips: tuple[Flip, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The groups as JSON data; the counts of pairs are beside the others."""

        def flat(items: list[tuple[str, Any]]) -> dict[str, Any]:
            data: dict[str, Any] = {}
            for name, value in items:
                counts = {"pairs": sum(value.values()), **value} if name == "pairs" else None
                data |= counts or {name: value}
            return data

        return asdict(self, dict_factory=flat)


@dataclass(slots=True)
class _Group:
    """The ranked rollouts of a group: their ids and scores."""

    name: Any
    rows: int = 0
    ids: list[Any] = field(default_factory=list)
    before: array[float] = field(default_factory=lambda: array("d"))
    after: array[float] = field(default_factory=lambda: array("d"))

    def move(self) -> GroupMove:
        before, after = _places_of_best(self.before), _places_of_best(self.after)
        best = "same"
        if before != after:
            best = "tied" if set(before) & set(after) else "changed"
        pairs = count_pairs(self.before, self.after)
        ids = (tuple(self.ids[place] for place in each[:MAX_BEST]) for each in (before, after))
        return GroupMove(self.name, self.rows, len(self.ids), pairs, pairs.tau, best, *ids)

    def flips(self) -> Iterator[Flip]:
        order = sorted(zip(self.before, self.after, self.ids, strict=True), key=lambda e: e[:2])
        pairs = combinations(order, 2) if len(order) <= MAX_COMBINED else pairwise(order)
        for worse, better in pairs:
            if worse[0] < better[0] and worse[1] > better[1]:
                yield Flip(
                    self.name, better[2], worse[2], (better[0], worse[0]), (better[1], worse[1])
                )


def _places_of_best(scores: array[float]) -> list[int]:
    highest = max(scores)
    return [place for place, score in enumerate(scores) if score == highest]


class GroupRanks:
    """Collects the scores of rollouts by group; the rollouts of a group may be anywhere."""

    def __init__(self) -> None:
        self._groups: dict[Any, _Group] = {}
        self._without = 0

    def add(self, group: Any, id: Any, scores: tuple[float, float] | None) -> None:
        """Add a rollout.

        Args:
            group: Its group; None if it has none.
            id: Its id.
            scores: Its scores before and after; None if one of them isn't valid.
        """
        if group is None:
            self._without += 1
            return
        key: Any = str(group_key(group))
        if len(key) > MAX_KEY:
            key = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        kept = self._groups.get(key)
        if kept is None:
            kept = self._groups[key] = _Group(brief(group))
        kept.rows += 1
        if scores is not None:
            kept.ids.append(brief(id))
            kept.before.append(scores[0])
            kept.after.append(scores[1])

    def compare(self, *, top: int) -> GroupComparison | None:
        """The comparison; None if no rollout has a group.

        Args:
            top: How many flipped pairs are listed.
        """
        if not self._groups:
            return None
        ranked = [group for group in self._groups.values() if len(group.ids) > 1]
        moves = [group.move() for group in ranked]
        taus = [move.tau for move in moves if move.tau is not None]
        flipped = [move for move in moves if move.pairs.flipped]
        flips = (
            flip
            for group, move in zip(ranked, moves, strict=True)
            if move.pairs.flipped
            for flip in group.flips()
        )
        counts = zip(*(astuple(move.pairs) for move in moves), strict=True)
        return GroupComparison(
            groups=len(self._groups),
            compared=len(moves),
            rows_without_group=self._without,
            pairs=PairCounts(*map(sum, counts)),
            with_flips=len(flipped),
            mean_tau=sum(taus) / len(taus) if taus else None,
            with_tau=len(taus),
            best_changed=sum(move.best == "changed" for move in moves),
            best_tied=sum(move.best == "tied" for move in moves),
            dead_before=sum(min(group.before) == max(group.before) for group in ranked),
            dead_after=sum(min(group.after) == max(group.after) for group in ranked),
            moved=tuple(heapq.nlargest(MAX_GROUPS, flipped, key=lambda move: move.pairs.flipped)),
            flips=tuple(heapq.nlargest(top, flips, key=lambda flip: flip.clarity)),
        )
