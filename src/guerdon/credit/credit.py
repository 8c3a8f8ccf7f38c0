"""`Credit`: the result of every estimator, and `CreditDiagnostics`: what it is based on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from guerdon.credit.batch import StepBatch
from guerdon.credit.columns import Floats, Integers, listed
from guerdon.credit.statistics import varies
from guerdon.errors import CreditError

__all__ = ["Credit", "CreditDiagnostics"]

NO_SHARED_STATE = "No two steps share a state, so no step has a step advantage."
UNSEEN_SCORES = (
    "Trajectories with a score whose base rewards are all 0, so that their returns don't include "
    "the score (use NaN for a step without a reward): {}."
)


@dataclass(frozen=True, slots=True, eq=False)
class CreditDiagnostics:
    """What a batch's advantages are based on, and what in it gives no signal.

    Example:
        >>> from guerdon.credit import StepBatch, gigpo
        >>> batch = StepBatch.from_arrays([0.0, 1.0, 0.0, 0.0], trajectory=["a", "a", "b", "b"],
        ...                               step=[0, 1, 0, 1], state=["s", "t", "s", "u"])
        >>> diagnostics = gigpo(batch).diagnostics
        >>> diagnostics.anchor_coverage, diagnostics.anchor_sizes.tolist()
        (0.5, [2, 1, 1])

    Attributes:
        anchor_coverage: The share of valid steps in anchor groups of two or more, in [0, 1].
        anchor_sizes: The size of each anchor group, by its number; empty without anchor groups.
        dead_anchors: The number of anchor groups of two or more whose returns are all equal.
        dead_groups: The ids of the groups of two or more valid trajectories with equal scores.
        singletons: The ids of the groups with one valid trajectory.
        masked: Why a trajectory doesn't count, by its id.
        notes: The same in sentences.
    """

    anchor_coverage: float
    anchor_sizes: Integers
    dead_anchors: int
    dead_groups: tuple[Any, ...]
    singletons: tuple[Any, ...]
    masked: Mapping[Any, str]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Credit:
    """The advantage of each of N rows, with the parts that it consists of.

    Rows that don't count have 0.0 everywhere and False in ``mask``; parts that an estimator
    doesn't have are 0.0, or -1 in ``anchor``.

    Example:
        >>> from guerdon.credit import StepBatch, grpo
        >>> batch = StepBatch.from_arrays([1.0, 0.0, 5.0], trajectory=["a", "b", "c"],
        ...                               step=[0, 0, 0], valid=[True, True, False])
        >>> credit = grpo(batch)
        >>> credit.advantage.round(3).tolist(), credit.mask.tolist()
        ([0.707, -0.707, 0.0], [True, True, False])

    Attributes:
        advantage: What to train on, (N,).
        episode: The part that the whole trajectory earned, (N,).
        step: The part that the step earned, (N,).
        returns: The return from the step on, (N,).
        anchor: The number of the row's anchor group, (N,), counted in the order of group,
            trajectory and step.
        mask: Whether the row counts, (N,).
        diagnostics: What the advantages are based on.
    """

    advantage: Floats
    episode: Floats
    step: Floats
    returns: Floats
    anchor: Integers
    mask: NDArray[np.bool_]
    diagnostics: CreditDiagnostics

    @classmethod
    def of(
        cls,
        batch: StepBatch,
        advantage: Floats,
        *,
        episode: Floats | None = None,
        step: Floats | None = None,
        returns: Floats | None = None,
        anchor: Integers | None = None,
    ) -> Credit:
        """Make the result of an estimator from values of the valid steps, each (M,).

        Args:
            batch: The batch.
            advantage: What to train on.
            episode: The part that the whole trajectory earned.
            step: The part that the step earned.
            returns: The return from the step on.
            anchor: The number of the step's anchor group.

        Raises:
            CreditError: A value is not finite.
        """
        zeros = np.zeros(len(batch.rows))
        compared = None if step is None else returns
        episode, step, returns = (
            zeros if part is None else part for part in (episode, step, returns)
        )
        if not all(np.isfinite(part).all() for part in (advantage, episode, step, returns)):
            raise CreditError("rewards or scores are too large to compute their sums")
        return cls(
            advantage=batch.to_rows(advantage),
            episode=batch.to_rows(episode),
            step=batch.to_rows(step),
            returns=batch.to_rows(returns),
            anchor=batch.to_rows(np.full(len(zeros), -1) if anchor is None else anchor, -1),
            mask=batch.to_rows(np.ones(len(zeros), np.bool_)),
            diagnostics=_diagnose(batch, compared, anchor),
        )


def _diagnose(
    batch: StepBatch, returns: Floats | None, anchor: Integers | None
) -> CreditDiagnostics:
    """Find what gives no signal; ``returns`` is None if the advantages don't depend on them."""
    trajectories = np.bincount(batch.group_of, minlength=len(batch.group_ids)) * batch.has_groups
    dead = np.flatnonzero(~varies(batch.scores, batch.group_of) & (trajectories > 1))
    dead_groups = tuple(batch.group_ids[code] for code in dead)
    singletons = tuple(batch.group_ids[code] for code in np.flatnonzero(trajectories == 1))
    sizes = np.bincount(() if anchor is None else anchor)
    shared = sizes > 1
    dead_anchors = 0
    if anchor is not None and returns is not None:
        dead_anchors = int((shared & ~varies(returns, anchor)).sum())
    notes = [
        "" if batch.size else "The batch is empty.",
        _note("Trajectories that don't count: {}.", batch.masked),
        _note("Groups with one valid trajectory and nothing to compare it with: {}.", singletons),
        _note("Groups whose trajectories all score the same: {}.", dead_groups),
        "" if returns is None else _note(UNSEEN_SCORES, _unseen_scores(batch)),
        NO_SHARED_STATE if len(sizes) and not shared.any() else "",
    ]
    return CreditDiagnostics(
        anchor_coverage=float(sizes[shared].sum() / max(sizes.sum(), 1)),
        anchor_sizes=sizes,
        dead_anchors=dead_anchors,
        dead_groups=dead_groups,
        singletons=singletons,
        masked=batch.masked,
        notes=tuple(filter(None, notes)),
    )


def _note(text: str, ids: Collection[Any]) -> str:
    return text.format(listed(map(repr, ids), len(ids))) if ids else ""


def _unseen_scores(batch: StepBatch) -> list[Any]:
    """The ids of trajectories with a score and with base rewards of 0 alone."""
    is_other = batch.is_rewarded & (batch.rewards != 0)
    others = np.bincount(batch.trajectory, is_other, len(batch.starts))
    unseen = batch.has_rewards() & (others == 0) & (batch.scores != 0)
    return [batch.trajectory_ids[code] for code in np.flatnonzero(unseen)]
