"""`StepBatch`: the steps of a batch of trajectories, validated once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from guerdon._validation import check_integer, check_number
from guerdon.credit.columns import (
    Column,
    Floats,
    Integers,
    Numbered,
    PerTrajectory,
    listed,
    number,
    read_array,
    read_column,
    read_floats,
    read_ids,
    read_steps,
    row_error,
)
from guerdon.credit.states import group_similar, state_keys
from guerdon.errors import CreditError

__all__ = ["StepBatch"]

Scalar = TypeVar("Scalar", bound=np.generic)

# The number of earlier states that an anchor group may depend on.
MAX_HISTORY = 1_000


@dataclass(frozen=True, slots=True, eq=False)
class StepBatch:
    """M valid steps of T trajectories in G groups, which every estimator takes.

    `from_arrays` makes and validates one. The steps are sorted by group, trajectory and step, each
    by its id, so that no result depends on the order of the rows that were passed.

    Example:
        >>> from guerdon.credit import StepBatch
        >>> batch = StepBatch.from_arrays([0.0, 1.0, 0.0], trajectory=["b", "b", "a"],
        ...                               step=[0, 1, 0], group=["g", "g", "g"])
        >>> batch.trajectory_ids, batch.scores.tolist(), batch.returns(0.5).tolist()
        (('a', 'b'), [0.0, 1.0], [0.0, 0.5, 1.0])

    Attributes:
        size: N, the number of rows that were passed.
        rows: The row of each valid step, (M,).
        trajectory: The index of its trajectory, (M,), ascending.
        group: The index of its group, (M,), ascending.
        rewards: Its base reward, with the default where none was passed, (M,).
        is_rewarded: Whether a base reward was passed, (M,).
        state: The number of its state, (M,), counted over all groups in order of appearance: steps
            of one group in the same state have the same number. None if no states were passed.
        action: The number of its action, (M,), counted like states. None if none were passed.
        values: The critic's estimates, (M,). None if none were passed.
        starts: The index of the first step of each trajectory, (T,).
        lengths: Its number of steps, (T,).
        group_of: The index of its group, (T,), ascending.
        scores: Its episode score, (T,).
        components: The scores that its episode score consists of by name, each (T,); NaN where a
            trajectory has no such component.
        trajectory_ids: Its id, T of them.
        group_ids: The id of each group, G of them.
        has_groups: Whether group ids were passed; otherwise all trajectories are one group.
        state_keys: The state of each number in `state`, in a form that is hashable.
        masked: Why trajectories are not valid, by id.
        default_step_reward: The reward of a step without one.
    """

    size: int
    rows: Integers
    trajectory: Integers
    group: Integers
    rewards: Floats
    is_rewarded: NDArray[np.bool_]
    state: Integers | None
    action: Integers | None
    values: Floats | None
    starts: Integers
    lengths: Integers
    group_of: Integers
    scores: Floats
    components: Mapping[str, Floats]
    trajectory_ids: tuple[Any, ...]
    group_ids: tuple[Any, ...]
    has_groups: bool
    state_keys: tuple[Hashable, ...]
    masked: Mapping[Any, str]
    default_step_reward: float

    @classmethod
    def from_arrays(
        cls,
        rewards: ArrayLike,
        *,
        trajectory: Column,
        step: Column,
        group: Column | None = None,
        state: Column | None = None,
        action: Column | None = None,
        values: ArrayLike | None = None,
        episode_score: PerTrajectory | None = None,
        components: Mapping[str, PerTrajectory] | None = None,
        valid: PerTrajectory | None = None,
        default_step_reward: float = 0.0,
    ) -> StepBatch:
        """Make a batch of columns with one row for each step, in any order.

        Args:
            rewards: Base rewards, (N,); NaN or None for a step without one.
            trajectory: Trajectory ids, (N,), hashable, unique in the batch.
            step: Step ids, (N,), numbers that sort; gaps are allowed.
            group: Group ids, (N,), hashable; None makes all trajectories one group.
            state: The state in which each step was taken, (N,): text, numbers, None, bytes, arrays,
                lists, tuples, sets and mappings of these, or values that compare by content. 1, 1.0
                and True are different states, NaN is the same as NaN.
            action: What was done in each step, (N,), values of the same types.
            values: The critic's estimate of the return from each step on, (N,), finite.
            episode_score: Scores, (N,), or (T,) in the order of the trajectories' first rows, or a
                mapping from trajectory ids; None sums the rewards that were passed.
            components: The scores that the episode score consists of by name, in the same forms;
                NaN or None where a trajectory has no such component.
            valid: Booleans for whether a trajectory counts, in the same forms; None means all do.
                One invalid row makes its trajectory invalid.
            default_step_reward: The reward of a step without one.

        Raises:
            CreditError: The columns are invalid or inconsistent; ``rows`` lists the rows.
        """
        default = check_number("default_step_reward", default_step_reward, error=CreditError)
        given: dict[str, Any] = {"rewards": rewards, "trajectory": trajectory, "step": step}
        optional = {"group": group, "state": state, "action": action, "values": values}
        given |= {name: column for name, column in optional.items() if column is not None}
        columns = {name: read_column(column, name) for name, column in given.items()}
        size = _common_length(columns)
        base = read_floats(columns["rewards"], "rewards")
        trajectories = read_ids(columns["trajectory"], size, "trajectory")
        groups = read_ids(columns.get("group", [None] * size), size, "group")
        _check_one_group(trajectories, groups)
        place = groups.codes * len(trajectories.ids) + trajectories.codes
        order = _canonical_order(place, read_steps(columns["step"], "step"))
        masked = _masked(valid, trajectories)
        counts = np.ones(len(trajectories.ids), np.bool_)
        counts[list(masked)] = False
        rows = order[counts[trajectories.codes[order]]]
        base = base[rows]
        if np.isinf(base).any():
            raise row_error("`rewards` is infinite", rows[np.isinf(base)])
        is_rewarded = ~np.isnan(base)
        if episode_score is None:
            scores = _sums(base[is_rewarded], trajectories, rows[is_rewarded], counts)
        else:
            scores = _scores(episode_score, trajectories, counts)
        kept, starts, of_trajectory = np.unique(place[rows], return_index=True, return_inverse=True)
        group_codes, kept = np.divmod(kept, max(len(trajectories.ids), 1))
        used_groups, group_of = np.unique(group_codes, return_inverse=True)
        of_group = group_of[of_trajectory]
        codes, keys = _states(columns.get("state"), rows, of_group)
        actions, _ = _states(columns.get("action"), rows, of_group, "actions")
        return cls(
            size=size,
            rows=rows,
            trajectory=of_trajectory,
            group=of_group,
            rewards=np.where(is_rewarded, base, default),
            is_rewarded=is_rewarded,
            state=codes,
            action=actions,
            values=_values(columns.get("values"), rows),
            starts=starts,
            lengths=np.diff(starts, append=len(rows)),
            group_of=group_of,
            scores=scores[kept],
            components={
                name: _component(each, f"components[{name!r}]", trajectories, counts)[kept]
                for name, each in (components or {}).items()
            },
            trajectory_ids=tuple(trajectories.ids[code] for code in kept.tolist()),
            group_ids=tuple(groups.ids[code] for code in used_groups.tolist()),
            has_groups=group is not None,
            state_keys=keys,
            masked={trajectories.ids[code]: why for code, why in masked.items()},
            default_step_reward=default,
        )

    @property
    def turn(self) -> Integers:
        """The position of each step in its trajectory, (M,), from 0."""
        turns: Integers = np.arange(len(self.rows)) - self.starts[self.trajectory]
        return turns

    def has_rewards(self) -> NDArray[np.bool_]:
        """Return whether a trajectory has any base reward, (T,)."""
        return np.bincount(self.trajectory, self.is_rewarded, len(self.starts)) > 0

    def rewards_and_scores(self) -> Floats:
        """Return the rewards, (M,), where trajectories without any end with their score."""
        rewards = self.rewards.copy()
        last = self.starts + self.lengths - 1
        without = ~self.has_rewards()
        with np.errstate(over="ignore"):
            rewards[last[without]] += self.scores[without]
        return rewards

    def returns(self, gamma: float = 1.0, rewards: Floats | None = None) -> Floats:
        """Return R_t = r_t + γ R_{t+1}, (M,).

        Args:
            gamma: The discount γ, in [0, 1].
            rewards: r, (M,); None takes `rewards_and_scores`.

        Raises:
            CreditError: ``gamma`` is out of range.
        """
        gamma = check_number("gamma", gamma, low=0, high=1, error=CreditError)
        rewards = self.rewards_and_scores() if rewards is None else rewards
        with np.errstate(over="ignore", invalid="ignore"):
            return self.backwards(rewards, lambda reward, later: reward + gamma * later)

    def backwards(self, values: Floats, combine: Callable[[Floats, Floats], Floats]) -> Floats:
        """Accumulate values over every trajectory from its end, (M,).

        Args:
            values: A value for each step, (M,).
            combine: Returns the results of some steps from their values and the results of the
                steps after them. The result of a last step is its value.
        """
        results = values.copy()
        longest_first = np.argsort(-self.lengths, kind="stable")
        last = (self.starts + self.lengths - 1)[longest_first]
        # The number of trajectories with more than 0, 1, … steps.
        longer = len(last) - np.cumsum(np.bincount(self.lengths)) if len(last) else ()
        for back, active in enumerate(longer[1:-1], start=1):
            steps = last[:active] - back
            results[steps] = combine(values[steps], results[steps + 1])
        return results

    def anchors(self, *, history: int = 0, similarity: float | None = None) -> Iterator[Integers]:
        """Yield the number of each step's anchor group, (M,), by more and more of its history.

        An anchor group is the steps of a group that are in the same state; at depth k, those whose
        k states before are the same too, or as many as there are. Groups are numbered in order of
        appearance.

        Args:
            history: The largest depth, in [0, 1000]; the depths 0, 1, … ``history`` are yielded.
            similarity: None compares states for equality. Otherwise states are texts, and each
                joins the first group whose first text has at least this ratio, in (0, 1], by
                ``difflib.SequenceMatcher(None, first, text, autojunk=False)``.

        Raises:
            CreditError: An argument is out of range, the batch has no states, or ``similarity`` is
                given and a state is not text.
        """
        history = check_integer("history", history, low=0, high=MAX_HISTORY, error=CreditError)
        if self.state is None:
            raise CreditError("the batch has no states to compare; pass `state` when you make it")
        anchor = state = self.state if similarity is None else self._similar(self.state, similarity)
        yield anchor
        longest = int(self.lengths.max(initial=1))
        for depth in range(1, history + 1):
            if depth < longest:
                earlier = np.arange(len(state)) - depth
                is_inside = earlier >= self.starts[self.trajectory]
                before = np.where(is_inside, state[np.maximum(earlier, 0)], -1)
                pairs = anchor * (len(state) + 1) + before + 1
                anchor = number(pairs.tolist(), len(pairs)).codes
            yield anchor

    def _similar(self, state: Integers, similarity: float) -> Integers:
        check_number("similarity", similarity, low=0, high=1, low_open=True, error=CreditError)
        _, first = np.unique(state, return_index=True)
        wrong = [key for key, value in enumerate(self.state_keys) if type(value) is not str]
        if wrong:
            raise row_error(
                "`state` is not text",
                self.rows[np.isin(state, wrong)],
                expected="`similarity` compares text alone",
            )
        codes = np.empty(len(first), np.int64)
        for start, end in _runs(self.group[first]):
            texts: Any = self.state_keys[start:end]
            codes[start:end] = group_similar(texts, similarity) + start
        merged = codes[state]
        return number(merged.tolist(), len(merged)).codes

    def to_rows(self, values: NDArray[Scalar], fill: Any = 0) -> NDArray[Scalar]:
        """Return values of the valid steps, (M,), in the order of the rows, (N,)."""
        placed = np.full(self.size, fill, values.dtype)
        placed[self.rows] = values
        return placed


# The parts of `StepBatch.from_arrays` ------------------------------------------------------------


def _common_length(columns: Mapping[str, Column]) -> int:
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        listing = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise CreditError(
            f"columns must have one entry for each row, but lengths differ: {listing}"
        )
    return lengths["rewards"]


def _runs(codes: Integers) -> Iterable[tuple[int, int]]:
    """The start and end of each run of equal codes."""
    return pairwise([*np.flatnonzero(np.diff(codes, prepend=-1)).tolist(), len(codes)])


def _check_one_group(trajectories: Numbered, groups: Numbered) -> None:
    codes, group_of = trajectories.codes, groups.codes[trajectories.first_rows()]
    wrong = np.flatnonzero(groups.codes != group_of[codes])
    if len(wrong):
        one, other = codes[wrong[0]], groups.codes[wrong[0]]
        raise row_error(
            f"trajectory {trajectories.ids[one]!r} of group {groups.ids[group_of[one]]!r} is in "
            f"group {groups.ids[other]!r}",
            wrong,
            expected="trajectory ids must be unique in the batch, such as (group, number)",
        )


def _canonical_order(place: Integers, step: NDArray[Any]) -> Integers:
    """Sort the rows by group and trajectory, which `place` numbers, and by step."""
    order: Integers = np.lexsort((step, place))
    place, step = place[order], step[order]
    repeated = (place[1:] == place[:-1]) & (step[1:] == step[:-1])
    if repeated.any():
        raise row_error("a step of a trajectory is repeated", order[1:][repeated])
    return order


def _by_row(given: PerTrajectory, name: str, trajectories: Numbered) -> Column:
    """Read an argument with an entry for each row, for each trajectory or by id; (N,)."""
    codes, ids = trajectories.codes, trajectories.ids
    if isinstance(given, Mapping):
        missing = [one for one in ids if one not in given]
        if missing:
            raise CreditError(
                f"`{name}` lacks the trajectories {listed(map(repr, missing), len(missing))}"
            )
        return [given[ids[code]] for code in codes.tolist()]
    entries = read_column(given, name)
    if len(entries) == len(ids):  # in the order of their first rows
        place = np.argsort(np.argsort(trajectories.first_rows()))
        return [entries[index] for index in place[codes].tolist()]
    if len(entries) != len(codes):
        raise CreditError(
            f"`{name}` must have {len(codes)} entries (one for each row) or {len(ids)} (one for "
            f"each trajectory), got {len(entries)}"
        )
    return entries


def _masked(valid: PerTrajectory | None, trajectories: Numbered) -> dict[int, str]:
    """The codes of the invalid trajectories, and why they are invalid."""
    if valid is None:
        return {}
    array = read_array(_by_row(valid, "valid", trajectories), "valid")
    if array.ndim != 1 or not np.isin(array, (0, 1)).all():
        raise CreditError("`valid` must contain booleans")
    rows: dict[int, list[int]] = defaultdict(list)
    for row in np.flatnonzero(array == 0).tolist():
        rows[int(trajectories.codes[row])].append(row)
    return {
        code: f"marked invalid in row{'s' * (len(some) > 1)} {listed(some, len(some))}"
        for code, some in rows.items()
    }


def _scores(given: PerTrajectory, trajectories: Numbered, counts: NDArray[np.bool_]) -> Floats:
    """The score of each trajectory, (T,); that of an invalid one may be anything."""
    scores = _numbers(given, "episode_score", trajectories, counts)
    _check_trajectories(
        ~np.isfinite(scores) & counts, trajectories, "`episode_score` is not finite"
    )
    return scores


def _component(
    given: PerTrajectory, name: str, trajectories: Numbered, counts: NDArray[np.bool_]
) -> Floats:
    """A component of each trajectory's score, (T,); NaN where it has none."""
    scores = _numbers(given, name, trajectories, counts)
    _check_trajectories(np.isinf(scores) & counts, trajectories, f"`{name}` is infinite")
    return scores


def _numbers(
    given: PerTrajectory, name: str, trajectories: Numbered, counts: NDArray[np.bool_]
) -> Floats:
    """The number of each trajectory, (T,), which must be the same in all rows of a valid one."""
    by_row = read_floats(_by_row(given, name, trajectories), name)
    codes, numbers = trajectories.codes, by_row[trajectories.first_rows()]
    is_same = (by_row == numbers[codes]) | (np.isnan(by_row) & np.isnan(numbers)[codes])
    wrong = np.flatnonzero(~is_same & counts[codes])
    if len(wrong):
        raise row_error(f"`{name}` differs within a trajectory", wrong)
    return numbers


def _sums(
    rewards: Floats, trajectories: Numbered, rows: Integers, counts: NDArray[np.bool_]
) -> Floats:
    """The sum of the rewards of each trajectory, (T,), added in canonical order."""
    codes, total = trajectories.codes[rows], len(counts)
    _check_trajectories(
        (np.bincount(codes, minlength=total) == 0) & counts,
        trajectories,
        "neither a reward nor an `episode_score`",
    )
    return np.bincount(codes, rewards, total).astype(np.float64)


def _check_trajectories(wrong: NDArray[np.bool_], trajectories: Numbered, problem: str) -> None:
    codes = np.flatnonzero(wrong)
    if len(codes):
        ids = listed((repr(trajectories.ids[code]) for code in codes), len(codes))
        raise row_error(
            f"{problem} for the trajectories {ids}, which start",
            trajectories.first_rows()[codes],
            expected="mark trajectories without a score invalid",
        )


def _values(column: Column | None, rows: Integers) -> Floats | None:
    if column is None:
        return None
    values = read_floats(column, "values")[rows]
    wrong = rows[~np.isfinite(values)]
    if len(wrong):
        raise row_error("`values` is not finite", wrong)
    return values


def _states(
    column: Column | None, rows: Integers, group: Integers, name: str = "states"
) -> tuple[Integers | None, tuple[Hashable, ...]]:
    """Number the states of the valid rows; the same state in another group has another number."""
    if column is None:
        return None, ()
    states = column.tolist() if isinstance(column, np.ndarray) and column.ndim == 1 else column
    if not np.array_equal(rows, np.arange(len(states))):
        states = [states[row] for row in rows.tolist()]
    keys = state_keys(list(states), rows, name)
    codes, distinct = np.empty(len(keys), np.int64), list[Hashable]()
    try:
        for start, end in _runs(group):  # a table for each group: small tables are faster
            found = number(keys[start:end], end - start)
            codes[start:end] = found.codes + len(distinct)
            distinct += found.ids
    except Exception as error:  # raised by __eq__ of the state's class
        raise CreditError(
            f"{name} can't be compared: {type(error).__name__}: {error}; pass a key of your own, "
            "such as a string or a tuple of numbers"
        ) from error
    return codes, tuple(distinct)
