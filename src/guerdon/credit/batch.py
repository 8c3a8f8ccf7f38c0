"""`Batch`: the valid rows of a batch in canonical order, with everything about them checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from guerdon.credit.arguments import (
    Floats,
    Integers,
    PerTrajectory,
    Column,
    as_array,
    column,
    finite,
    floats,
    listed,
    numbers,
    refused,
    same_lengths,
)
from guerdon.credit.keys import ids_of, ranks
from guerdon.errors import CreditError

__all__ = ["Batch"]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """M valid rows of N, in T valid trajectories of G groups, in canonical order.

    The canonical order is by group, then trajectory, then step; it depends on the ids and not on
    the order of the rows, so that no number depends on that order either, to the last bit.

    Attributes:
        size: N, the number of rows that were given.
        rows: The row number of each valid row, (M,).
        trajectory: The number of its trajectory, (M,), ascending.
        group: The number of its group, (M,), ascending.
        starts: Where each trajectory starts, (T,).
        lengths: How many steps it has, (T,).
        group_of: The number of its group, (T,), ascending.
        given: The base rewards, NaN where none was given, (M,).
        default: What stands for a base reward that wasn't given.
        score: The episode score of each trajectory, (T,).
        grouped: Whether groups were given; else all is one.
        group_ids: The ids of the groups, G of them.
        trajectory_ids: The ids of the trajectories, T of them.
        masked: The ids of the trajectories that don't count, and why.
    """

    size: int
    rows: Integers
    trajectory: Integers
    group: Integers
    starts: Integers
    lengths: Integers
    group_of: Integers
    given: Floats
    default: float
    score: Floats
    grouped: bool
    group_ids: tuple[Any, ...]
    trajectory_ids: tuple[Any, ...]
    masked: dict[Any, str]

    def step_rewards(self) -> Floats:
        """The base rewards, with the default where none was given, (M,)."""
        return np.where(np.isnan(self.given), self.default, self.given)

    def rewards(self) -> Floats:
        """The step rewards; a trajectory without any base reward has its score added at its end."""
        rewards = self.step_rewards()
        bare = ~self.rewarded()
        with np.errstate(over="ignore"):
            rewards[(self.starts + self.lengths - 1)[bare]] += self.score[bare]
        return rewards

    def rewarded(self) -> NDArray[np.bool_]:
        """Whether a trajectory has any base reward, (T,)."""
        given = np.bincount(self.trajectory, ~np.isnan(self.given), len(self.starts))
        return given > 0

    def backwards(self, values: Floats, combine: Callable[[Floats, Floats], Floats]) -> Floats:
        """Run through every trajectory from its end.

        Args:
            values: One for each valid row, (M,).
            combine: Takes the values of some rows and the results of those that follow them, and
                gives the results; the result of a last step is its value.
        """
        results = values.copy()
        longest_first = np.argsort(-self.lengths, kind="stable")
        last = (self.starts + self.lengths - 1)[longest_first]
        # How many trajectories have more than that many steps.
        more = len(last) - np.cumsum(np.bincount(self.lengths)) if len(last) else ()
        for back, active in enumerate(more[1:-1], start=1):
            rows = last[:active] - back
            results[rows] = combine(values[rows], results[rows + 1])
        return results

    def spread(self, values: NDArray[Any], missing: Any = 0) -> NDArray[Any]:
        """Values of the valid rows at their places among all rows, (N,)."""
        placed = np.full(self.size, missing, values.dtype)
        placed[self.rows] = values
        return placed


def read_batch(
    rewards: ArrayLike,
    *,
    group: Column | None,
    trajectory: Column,
    step: Column,
    episode_score: PerTrajectory | None,
    valid: PerTrajectory | None,
    default_step_reward: float = 0.0,
    **others: Any,
) -> Batch:
    """Check the arguments that all estimators share, and put the valid rows in canonical order.

    Args:
        rewards: Base rewards, (N,); NaN where none was given.
        group: Group ids, (N,); None: all are one group.
        trajectory: Trajectory ids, (N,).
        step: Step ids, (N,), numbers.
        episode_score: Scores, (N,), one for each trajectory, or by id; None: the sum of rewards.
        valid: Whether a trajectory counts, (N,), one for each trajectory, or by id; None: all do.
        default_step_reward: What stands for a reward that wasn't given.
        **others: Other columns, whose length must agree.

    Raises:
        CreditError: Something can't be meant.
    """
    default = finite(default_step_reward, "default_step_reward")
    columns = {"rewards": column(rewards, "rewards")}
    if group is not None:
        columns["group"] = column(group, "group")
    columns |= {"trajectory": column(trajectory, "trajectory"), "step": column(step, "step")}
    size = same_lengths(columns | {name: column(given, name) for name, given in others.items()})
    given = floats(columns["rewards"], "rewards")
    steps = numbers(columns["step"], "step")
    codes, trajectory_ids = ids_of(columns["trajectory"], size, "trajectory")
    groups, group_ids = ids_of(columns.get("group", [None] * size), size, "group")
    first = _first_rows(codes, len(trajectory_ids))
    _no_trajectory_in_two_groups(codes, groups, first, (trajectory_ids, group_ids))
    place = np.empty(len(first), np.int64)
    place[np.lexsort((ranks(trajectory_ids), ranks(group_ids)[groups[first]]))] = np.arange(
        len(first)
    )
    order = _sorted_rows(place[codes], steps)
    _no_step_twice(codes[order], steps[order], order)
    reader = _PerTrajectory(size, codes, trajectory_ids, first)
    masked = reader.masked(valid)
    counts = np.ones(len(first), np.bool_)
    counts[list(masked)] = False
    rows = order[counts[codes[order]]]
    _rewards_are_finite(given, rows)
    begins = _changes(codes[rows])
    kept, group_of = codes[rows][begins], groups[rows][begins]
    group_numbers = np.cumsum(_changes(group_of)) - 1
    trajectory_numbers = np.cumsum(begins) - 1
    starts = np.flatnonzero(begins)
    return Batch(
        size=size,
        rows=rows,
        trajectory=trajectory_numbers,
        group=group_numbers[trajectory_numbers],
        starts=starts,
        lengths=np.diff(starts, append=len(rows)),
        group_of=group_numbers,
        given=given[rows],
        default=default,
        score=reader.scores(episode_score, given, counts)[kept],
        grouped=group is not None,
        group_ids=tuple(group_ids[code] for code in group_of[_changes(group_of)].tolist()),
        trajectory_ids=tuple(trajectory_ids[code] for code in kept.tolist()),
        masked={trajectory_ids[code]: why for code, why in masked.items()},
    )


@dataclass(frozen=True, slots=True)
class _PerTrajectory:
    """Reads what is given for every row, for every trajectory, or by trajectory id."""

    size: int
    code: Integers
    ids: list[Any]
    first: Integers

    def values(self, given: PerTrajectory, name: str) -> tuple[Column, bool]:
        """What was given as a column, and whether it is one of rows and not of trajectories."""
        if isinstance(given, Mapping):
            missing = [one for one in self.ids if one not in given]
            if missing:
                raise CreditError(
                    f"{name} lacks the trajectories "
                    f"{listed(map(repr, missing), len(missing))}; each needs an entry"
                )
            return [given[one] for one in self.ids], False
        values = column(given, name)
        if len(values) not in (self.size, len(self.ids)):
            raise CreditError(
                f"{name} has {len(values)} entries; {self.size} (one for each row) or "
                f"{len(self.ids)} (one for each trajectory) are needed"
            )
        return values, len(values) == self.size

    def masked(self, valid: PerTrajectory | None) -> dict[int, str]:
        """Which trajectories don't count, and why."""
        if valid is None:
            return {}
        values, by_row = self.values(valid, "valid")
        array = as_array(values, "valid")
        if array.ndim != 1 or not np.isin(array, (0, 1)).all():
            raise CreditError("valid holds something else than booleans; True or False are needed")
        wrong = np.flatnonzero(array == 0)
        if not by_row or self.size == len(self.ids):
            return {int(code): "marked invalid" for code in (self.code[wrong] if by_row else wrong)}
        rows: dict[int, list[int]] = {}
        for row in wrong.tolist():
            rows.setdefault(int(self.code[row]), []).append(row)
        return {
            code: f"marked invalid in row{'s' * (len(some) > 1)} {listed(some, len(some))}"
            for code, some in rows.items()
        }

    def scores(
        self, given: PerTrajectory | None, rewards: Floats, counts: NDArray[np.bool_]
    ) -> Floats:
        """The score of each trajectory; those of invalid ones may be anything."""
        if given is None:
            return self._sums(rewards, counts)
        values, by_row = self.values(given, "episode_score")
        scores = floats(values, "episode_score")
        if by_row:
            alike = (scores == scores[self.first][self.code]) | np.isnan(scores)
            alike &= np.isnan(scores) == np.isnan(scores[self.first])[self.code]
            wrong = np.flatnonzero(~alike & counts[self.code])
            if len(wrong):
                raise refused(
                    "episode_score differs within a trajectory",
                    wrong,
                    accepted="all rows of a trajectory have its one score",
                )
            scores = scores[self.first]
        bad = np.flatnonzero(~np.isfinite(scores) & counts)
        if len(bad):
            named = listed((repr(self.ids[code]) for code in bad), len(bad))
            raise refused(
                f"episode_score is not finite for the trajectories {named}, which start",
                self.first[bad],
                accepted="a valid trajectory needs a finite score; mark it invalid if it has none",
            )
        return scores

    def _sums(self, rewards: Floats, counts: NDArray[np.bool_]) -> Floats:
        has = ~np.isnan(rewards)
        none = np.bincount(self.code, has, len(self.ids)) == 0
        bad = np.flatnonzero(none & counts)
        if len(bad):
            named = listed((repr(self.ids[code]) for code in bad), len(bad))
            raise refused(
                f"neither a reward nor an episode_score for the trajectories {named}, which start",
                self.first[bad],
                accepted="give one of the two, or mark the trajectory invalid",
            )
        summed = np.bincount(self.code, np.where(has, rewards, 0.0), len(self.ids))
        return summed.astype(np.float64)  # without a row they are integers


def _first_rows(codes: Integers, count: int) -> Integers:
    first = np.empty(count, np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)  # the last assignment stays
    return first


def _changes(codes: Integers) -> NDArray[np.bool_]:
    """Where a run of equal codes begins."""
    changes: NDArray[np.bool_] = np.diff(codes, prepend=-1) != 0
    return changes


def _no_trajectory_in_two_groups(
    codes: Integers, groups: Integers, first: Integers, ids: tuple[list[Any], list[Any]]
) -> None:
    expected = groups[first][codes]
    wrong = np.flatnonzero(groups != expected)
    if len(wrong):
        trajectory_ids, group_ids = ids
        row = wrong[0]
        raise refused(
            f"trajectory {trajectory_ids[codes[row]]!r} of group {group_ids[expected[row]]!r} is in "
            f"another group, {group_ids[groups[row]]!r},",
            wrong,
            accepted="trajectory ids must be unique in the batch, such as (group, number)",
        )


def _sorted_rows(place: Integers, step: NDArray[Any]) -> Integers:
    """Row numbers by the place of the trajectory, then by step."""
    rises = place[1:] > place[:-1]
    rises |= (place[1:] == place[:-1]) & (step[1:] > step[:-1])
    return np.arange(len(step)) if rises.all() else np.lexsort((step, place))


def _no_step_twice(codes: Integers, step: NDArray[Any], rows: Integers) -> None:
    again = (codes[1:] == codes[:-1]) & (step[1:] == step[:-1])
    if again.any():
        raise refused(
            "the same step of the same trajectory again",
            rows[1:][again],
            accepted="each step of a trajectory has one row",
        )


def _rewards_are_finite(given: Floats, rows: Integers) -> None:
    wrong = rows[np.isinf(given[rows])]
    if len(wrong):
        raise refused(
            "rewards are infinite", wrong, accepted="finite numbers, or NaN where none was given"
        )
