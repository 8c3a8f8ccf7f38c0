"""Outcome-gated credit: shaping counts among solved trajectories, and never decides by itself."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from guerdon._thresholds import TOLERANCE
from guerdon._validation import check_choice, check_number, shown
from guerdon.credit.columns import Floats, Integers, row_error
from guerdon.credit.statistics import EPSILON, deviations, relative_to_group, varies
from guerdon.errors import CreditError

if TYPE_CHECKING:
    from guerdon.credit.batch import StepBatch

__all__ = ["Outcome", "gate_on_outcome"]

Gate = Literal["success", "group", "none"]
Saturated = Literal["shape", "off"]


UNGATED = {
    "gdpo": "divides each component by its own deviation",
    "pure": "reads base rewards as process rewards",
    "state_differences": "reads base rewards as scores of states",
}
"""The estimators that an outcome can't gate, and why."""


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """Which trajectories of a batch solved their task.

    Example:
        >>> from guerdon.credit import StepBatch
        >>> batch = StepBatch.from_arrays([None] * 2, trajectory=["a", "b"], step=[0, 0],
        ...     episode_score=[1.0, 0.1], components={"right": [1.0, 0.0], "brief": [0.0, 0.1]})
        >>> batch.outcome.name, batch.outcome.is_guess, batch.outcome.solved.tolist()
        ('right', True, [True, False])

    Attributes:
        name: The component; None is the score itself.
        values: Its value for each trajectory, (T,).
        solved: Whether it is solved, (T,).
        is_guess: Whether nobody named it: it is the only component, or the score, that is 0 or 1
            everywhere. A guess changes no advantage.
        scale: What advantages are divided by in place of the deviation of the scores, (G,): the
            deviation of the outcome, or 1 where it doesn't vary. None for a guess.
        batch_scale: The same for all groups as one.
        zeroed: Whether a group has no advantages at all, (G,).
    """

    name: str | None
    values: Floats
    solved: NDArray[np.bool_]
    is_guess: bool = True
    scale: Floats | None = None
    batch_scale: float = 1.0
    zeroed: NDArray[np.bool_] | None = None


def guess_outcome(scores: Floats, components: Mapping[str, Floats]) -> Outcome | None:
    """Return the only component that is 0 or 1 everywhere, or without components the score."""
    candidates: list[tuple[str | None, Floats]] = [*components.items()] or [(None, scores)]
    binary = [(name, values) for name, values in candidates if np.isin(values, (0.0, 1.0)).all()]
    if len(binary) != 1:
        return None
    [(name, values)] = binary
    return Outcome(name, values, values == 1.0)


def gate_on_outcome(
    batch: StepBatch,
    outcome: str,
    *,
    weights: Mapping[str, float] | None = None,
    progress: Collection[str] = (),
    gate: Gate = "success",
    saturated: Saturated = "shape",
    solved: float | None = None,
) -> StepBatch:
    r"""Return a batch whose scores compare outcomes first, for any estimator.

    With o the outcome, s = 1 if it is solved, h_k = w_k c_k the weighted other components, and F
    the deviation of o in the group, or 1 where o doesn't vary, estimators that compare scores
    give::

        A = (o − mean) / F + Σ s (h_k − mean over the solved) / F + Σ (h_k − mean) / F
                             k gated                              k in ``progress``

    In a group that nobody solved, gated components give exactly 0; failures of a group tie; where
    all solve the task, components count with their weights. The advantages of a group add up to 0.
    Without other components it is the estimator on the outcome. The deviation of the total would
    let whatever is left decide where the outcome doesn't vary, however small its weight.

    Base rewards of trajectories that aren't solved don't count.

    Example:
        >>> from guerdon.credit import StepBatch, gate_on_outcome, grpo
        >>> batch = StepBatch.from_arrays(
        ...     [None] * 4, trajectory=list("abcd"), step=[0] * 4, group=list("ggff"),
        ...     episode_score=[1.1, 0.2, 0.1, 0.3],
        ...     components={"right": [1.0, 0.0, 0.0, 0.0], "brief": [0.1, 0.2, 0.1, 0.3]})
        >>> grpo(gate_on_outcome(batch, "right")).advantage.round(3).tolist()
        [0.707, -0.707, 0.0, 0.0]

    Args:
        batch: A batch with ``components``.
        outcome: The component that says whether the task is solved.
        weights: The weight of each component, by name; others don't count. None takes what the
            score contains beside the outcome as one gated component.
        progress: Components that count in all trajectories, such as the share of tests passed.
        gate: ``success``: other components count among the solved. ``group``: a group whose outcome
            doesn't vary has no advantages at all. ``none``: other components count everywhere,
            divided by F.
        saturated: ``shape``: components count where all trajectories are solved; ``off``: they
            don't.
        solved: The outcome from which on the task is solved; None: 1, for an outcome in [0, 1].

    Raises:
        CreditError: The outcome isn't a component, isn't finite or isn't in [0, 1] without
            ``solved``, or an option is invalid.
    """
    check_choice("gate", gate, get_args(Gate), error=CreditError)
    check_choice("saturated", saturated, get_args(Saturated), error=CreditError)
    if not len(batch.scores):
        return batch
    weight = _weights(batch, {outcome, *progress}, weights)
    values, group = batch.components[outcome], batch.group_of
    is_solved = _solved(batch, values, outcome, solved)
    total = weight[outcome] * values
    parts = {name: one * batch.components[name] for name, one in weight.items() if name != outcome}
    if weights is None:
        parts[""] = batch.scores - total - sum(map(np.nan_to_num, parts.values()))
    does_vary = varies(total, group)
    counts = is_solved | (gate == "none")
    if saturated == "off":
        counts = counts & (does_vary | ~_all(is_solved, group))[group]
    scores = total.copy()
    for name, part in parts.items():
        scores += _centred(part, group, counts | (name in progress))
    return replace(
        batch,
        scores=scores,
        rewards=np.where(counts[batch.trajectory], batch.rewards, 0.0),
        # Base rewards that add up to the scores contain them; the scores are others now.
        outcome_reward="rest" if batch.outcome_reward == "none" else batch.outcome_reward,
        outcome=Outcome(
            outcome,
            values,
            is_solved,
            is_guess=False,
            scale=_scale(total, group),
            batch_scale=float(_scale(total, np.zeros_like(group))[0]),
            zeroed=~does_vary if gate == "group" else None,
        ),
    )


def _scale(values: Floats, group: Integers) -> Floats:
    """What advantages of each group are divided by: σ + 1e-6, or 1 where values are equal, (G,)."""
    return np.where(varies(values, group), deviations(values, group) + EPSILON, 1.0)


def _weights(
    batch: StepBatch, names: set[str], weights: Mapping[str, float] | None
) -> dict[str, float]:
    """The weight of each component that counts by itself, in the order of the batch."""
    if weights is not None and not isinstance(weights, Mapping):
        raise CreditError(
            f"`weights` must be a mapping from names to numbers, got {shown(weights)}"
        )
    weights = weights or {}
    unknown = sorted((names | weights.keys()) - batch.components.keys(), key=str)
    if unknown:
        raise CreditError(
            f"{shown(unknown[0])} is no component of the batch; its components are "
            f"{', '.join(sorted(batch.components)) or 'none'}"
        )
    return {
        name: check_number(f"weights[{name!r}]", weights.get(name, 1.0), error=CreditError)
        for name in batch.components
        if name in names or name in weights
    }


def _solved(batch: StepBatch, values: Floats, name: str, solved: float | None) -> NDArray[np.bool_]:
    """Whether each trajectory solved its task, (T,)."""
    if solved is not None:
        check_number("solved", solved, error=CreditError)
    is_wrong = np.isnan(values)
    problem, expected = f"the outcome {name!r} is missing", "mark such trajectories invalid"
    if not is_wrong.any() and solved is None:
        is_wrong = (values < -TOLERANCE) | (values > 1 + TOLERANCE)
        problem = f"the outcome {name!r} isn't in [0, 1]"
        expected = "pass `solved`, the value from which on the task is solved"
    if is_wrong.any():
        rows = batch.rows[batch.starts[is_wrong]]
        raise row_error(f"{problem} for the trajectories that start", rows, expected=expected)
    is_solved: NDArray[np.bool_] = values >= (1.0 if solved is None else solved) - TOLERANCE
    return is_solved


def _all(condition: NDArray[np.bool_], group: Integers) -> NDArray[np.bool_]:
    """Whether a condition holds for all trajectories of each group, (G,)."""
    without: NDArray[np.bool_] = np.bincount(group, ~condition) == 0
    return without


def _centred(values: Floats, group: Integers, counts: NDArray[np.bool_]) -> Floats:
    """How far values are from the mean of those in their group that count; 0 for all others."""
    result = np.zeros(len(values))
    has = counts & ~np.isnan(values)
    result[has] = relative_to_group(values[has], group[has], normalize="mean")
    return result
