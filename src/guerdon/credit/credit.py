"""`Credit`: what every estimator gives, and `CreditDiagnostics`: what is to be known about it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from guerdon.credit.arguments import Floats, Integers, listed
from guerdon.credit.batch import Batch
from guerdon.credit.statistics import varies
from guerdon.errors import CreditError

__all__ = ["Credit", "CreditDiagnostics"]

ALONE = "No two steps share a state, so no step has an advantage of its own."
UNSEEN = (
    "Trajectories with a score whose base rewards are all 0, so that their returns don't see the "
    "score (give NaN for a step without a reward): {}."
)


@dataclass(frozen=True, slots=True, eq=False)
class CreditDiagnostics:
    """What a batch's advantages rest on, and what in it gives no signal.

    Example:
        >>> from guerdon.credit import gigpo
        >>> credit = gigpo([0.0, 1.0, 0.0, 0.0], group=["g"] * 4, trajectory=["a", "a", "b", "b"],
        ...                step=[0, 1, 0, 1], state=["start", "left", "start", "right"])
        >>> credit.diagnostics.anchor_coverage, credit.diagnostics.anchor_sizes.tolist()
        (0.5, [2, 1, 1])

    Attributes:
        anchor_coverage: The share of valid steps in anchor groups of two or more, in [0, 1].
        anchor_sizes: The size of each anchor group, by its number; empty where there are none.
        dead_anchors: How many anchor groups of two or more have equal returns throughout.
        dead_groups: The ids of the groups whose two or more valid trajectories score the same.
        singletons: The ids of the groups with one valid trajectory.
        masked: Why a trajectory doesn't count, by its id.
        notes: What a person should know, in sentences.
    """

    anchor_coverage: float
    anchor_sizes: Integers
    dead_anchors: int
    dead_groups: tuple[Any, ...]
    singletons: tuple[Any, ...]
    masked: dict[Any, str]
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Credit:
    """The advantage of each of N rows, with the parts that it consists of.

    Rows that don't count have 0.0 everywhere and False in ``mask``; parts that an estimator
    doesn't have are 0.0, or -1 in ``anchor``.

    Example:
        >>> from guerdon.credit import grpo
        >>> credit = grpo([1.0, 0.0, 5.0], group=["g"] * 3, trajectory=["a", "b", "c"],
        ...               step=[0, 0, 0], valid=[True, True, False])
        >>> credit.advantage.round(3).tolist(), credit.mask.tolist()
        ([0.707, -0.707, 0.0], [True, True, False])

    Attributes:
        advantage: What to train on, (N,).
        episode: The part that the whole trajectory has earned, (N,).
        step: The part that the step has earned, (N,).
        returns: The return from the step on, (N,).
        anchor: The number of the row's anchor group, (N,); groups are numbered as they appear in
            the order of group, trajectory and step.
        mask: Whether the row counts, (N,).
    """

    advantage: Floats
    episode: Floats
    step: Floats
    returns: Floats
    anchor: Integers
    mask: NDArray[np.bool_]
    _diagnose: Callable[[], CreditDiagnostics] = field(repr=False)

    @cached_property
    def diagnostics(self) -> CreditDiagnostics:
        """What the advantages rest on; computed when it is first asked for."""
        return self._diagnose()


def credit_of(
    batch: Batch,
    advantage: Floats,
    *,
    episode: Floats | None = None,
    step: Floats | None = None,
    returns: Floats | None = None,
    anchor: Integers | None = None,
) -> Credit:
    """A `Credit` from values of the valid rows.

    Raises:
        CreditError: A value became infinite on the way.
    """
    none, seen = np.zeros(len(batch.rows)), None if step is None else returns
    episode, step, returns = (none if part is None else part for part in (episode, step, returns))
    if not all(np.isfinite(part).all() for part in (advantage, episode, step, returns)):
        raise CreditError("rewards or scores are too large for their sums to be computed")
    return Credit(
        advantage=batch.spread(advantage),
        episode=batch.spread(episode),
        step=batch.spread(step),
        returns=batch.spread(returns),
        anchor=batch.spread(np.full(len(none), -1) if anchor is None else anchor, -1),
        mask=batch.spread(np.ones(len(none), np.bool_)),
        _diagnose=partial(diagnose, batch, seen, anchor),
    )


def diagnose(batch: Batch, returns: Floats | None, anchor: Integers | None) -> CreditDiagnostics:
    """Look for what gives no signal.

    Args:
        batch: The batch.
        returns: The return of each valid row; None where advantages don't depend on them.
        anchor: The anchor group of each valid row; None where there are none.
    """
    trajectories = np.bincount(batch.group_of, minlength=len(batch.group_ids)) * batch.grouped
    dead = np.flatnonzero(~varies(batch.score, batch.group_of) & (trajectories > 1))
    dead_groups = tuple(batch.group_ids[code] for code in dead)
    singletons = tuple(batch.group_ids[code] for code in np.flatnonzero(trajectories == 1))
    amount = np.bincount(() if anchor is None else anchor)
    shared = amount > 1
    dead_anchors = 0
    if anchor is not None and returns is not None:
        dead_anchors = int((shared & ~varies(returns, anchor)).sum())
    notes = [
        "" if batch.size else "The batch is empty.",
        _named("Trajectories that don't count: {}.", batch.masked),
        _named("Groups with one valid trajectory, which nothing compares with: {}.", singletons),
        _named("Groups whose trajectories all score the same: {}.", dead_groups),
        "" if returns is None else _named(UNSEEN, _unseen_scores(batch)),
        ALONE if len(amount) and not shared.any() else "",
    ]
    return CreditDiagnostics(
        anchor_coverage=float(amount[shared].sum() / max(amount.sum(), 1)),
        anchor_sizes=amount,
        dead_anchors=dead_anchors,
        dead_groups=dead_groups,
        singletons=singletons,
        masked=dict(batch.masked),
        notes=tuple(filter(None, notes)),
    )


def _named(note: str, ids: Collection[Any]) -> str:
    """A note with the first few ids; empty where there are none."""
    return note.format(listed(map(repr, ids), len(ids))) if len(ids) else ""


def _unseen_scores(batch: Batch) -> list[Any]:
    """The ids of trajectories with a score, but with base rewards of 0 alone."""
    zero = np.bincount(batch.trajectory, batch.given == 0, len(batch.starts))
    given = np.bincount(batch.trajectory, ~np.isnan(batch.given), len(batch.starts))
    unseen = (given > 0) & (given == zero) & (batch.score != 0)
    return [batch.trajectory_ids[code] for code in np.flatnonzero(unseen)]
