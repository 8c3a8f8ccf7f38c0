"""`Batch`: the valid rows of a batch in canonical order, with everything about them checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from guerdon.credit.arguments import (
    Column,
    Floats,
    Integers,
    PerTrajectory,
    column,
    finite,
    floats,
    numbers,
    refused,
    same_lengths,
)
from guerdon.credit.keys import Numbered, ids_of, ranks
from guerdon.credit.per_trajectory import TrajectoryReader

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
    trajectories = ids_of(columns["trajectory"], size, "trajectory")
    groups = ids_of(columns.get("group", [None] * size), size, "group")
    order = _canonical_order(trajectories, groups, numbers(columns["step"], "step"))
    reader = TrajectoryReader(size, trajectories)
    masked = reader.masked(valid)
    counts = np.ones(len(trajectories.ids), np.bool_)
    counts[list(masked)] = False
    rows = order[counts[trajectories.codes[order]]]
    _rewards_are_finite(given, rows)
    if episode_score is None:
        score = reader.sums(given, rows, counts)
    else:
        score = reader.scores(episode_score, counts)
    begins = _changes(trajectories.codes[rows])
    number, starts = np.cumsum(begins) - 1, np.flatnonzero(begins)
    kept, group_of = trajectories.codes[rows[starts]], groups.codes[rows[starts]]
    group_number = np.cumsum(_changes(group_of)) - 1
    return Batch(
        size=size,
        rows=rows,
        trajectory=number,
        group=group_number[number],
        starts=starts,
        lengths=np.diff(starts, append=len(rows)),
        group_of=group_number,
        given=given[rows],
        default=default,
        score=score[kept],
        grouped=group is not None,
        group_ids=tuple(groups.ids[code] for code in group_of[_changes(group_of)].tolist()),
        trajectory_ids=tuple(trajectories.ids[code] for code in kept.tolist()),
        masked={trajectories.ids[code]: why for code, why in masked.items()},
    )


def _changes(codes: Integers) -> NDArray[np.bool_]:
    """Where a run of equal codes begins."""
    changes: NDArray[np.bool_] = np.diff(codes, prepend=-1) != 0
    return changes


def _canonical_order(trajectories: Numbered, groups: Numbered, step: NDArray[Any]) -> Integers:
    """Row numbers by group, trajectory and step.

    Raises:
        CreditError: A trajectory is in two groups, or has a step twice.
    """
    codes, first = trajectories.codes, trajectories.first_rows()
    group_of = groups.codes[first]
    _no_trajectory_in_two_groups(trajectories, groups, group_of[codes])
    sequence = np.lexsort((ranks(trajectories.ids), ranks(groups.ids)[group_of]))
    place = np.empty(len(first), np.int64)
    place[sequence] = np.arange(len(first))
    place = place[codes]
    rises = place[1:] > place[:-1]
    rises |= (place[1:] == place[:-1]) & (step[1:] > step[:-1])
    if rises.all():
        return np.arange(len(step))
    order: Integers = np.lexsort((step, place))
    codes, step = codes[order], step[order]
    again = (codes[1:] == codes[:-1]) & (step[1:] == step[:-1])
    if again.any():
        raise refused(
            "the same step of the same trajectory again",
            order[1:][again],
            accepted="each step of a trajectory has one row",
        )
    return order


def _no_trajectory_in_two_groups(
    trajectories: Numbered, groups: Numbered, expected: Integers
) -> None:
    wrong = np.flatnonzero(groups.codes != expected)
    if len(wrong):
        row = wrong[0]
        group, other = groups.ids[expected[row]], groups.ids[groups.codes[row]]
        raise refused(
            f"trajectory {trajectories.ids[trajectories.codes[row]]!r} of group {group!r} is in "
            f"another group, {other!r},",
            wrong,
            accepted="trajectory ids must be unique in the batch, such as (group, number)",
        )


def _rewards_are_finite(given: Floats, rows: Integers) -> None:
    wrong = rows[np.isinf(given[rows])]
    if len(wrong):
        raise refused(
            "rewards are infinite", wrong, accepted="finite numbers, or NaN where none was given"
        )
