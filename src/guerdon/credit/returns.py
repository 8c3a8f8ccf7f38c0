"""The discounted return of each step."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from guerdon.credit.arguments import Column, Floats, PerTrajectory, finite
from guerdon.credit.batch import Batch, read_batch
from guerdon.errors import CreditError

__all__ = ["discounted_returns"]


def returns_of(batch: Batch, rewards: Floats, gamma: float) -> Floats:
    """R_t = r_t + γ R_{t+1} of the valid rows, (M,)."""
    with np.errstate(over="ignore", invalid="ignore"):
        return batch.backwards(rewards, lambda reward, later: reward + gamma * later)


def discounted_returns(
    rewards: ArrayLike,
    *,
    trajectory: Column,
    step: Column,
    gamma: float = 1.0,
    episode_score: PerTrajectory | None = None,
    valid: PerTrajectory | None = None,
    default_step_reward: float = 0.0,
) -> Floats:
    """The discounted return from each step on.

    R_t = r_t + γ R_{t+1} (equation 5 of GiGPO, arXiv 2505.10978), in the order of the step ids,
    whatever the order of the rows. Where a trajectory has no base reward at all, its score is added
    at its last step.

    Example:
        >>> from guerdon.credit import discounted_returns
        >>> discounted_returns([0.0, 0.0, 1.0], trajectory=["a", "a", "a"], step=[0, 1, 2],
        ...                    gamma=0.5).tolist()
        [0.25, 0.5, 1.0]

    Args:
        rewards: Base rewards, (N,); NaN or None where none was given.
        trajectory: Trajectory ids, (N,), hashable.
        step: Step ids, (N,), numbers that sort; they may have gaps.
        gamma: The discount, in [0, 1].
        episode_score: Scores, (N,), one for each trajectory in the order of their first rows, or a
            mapping from trajectory ids; None: the sum of the rewards that were given.
        valid: Booleans for whether a trajectory counts, in the same forms; None: all do.
        default_step_reward: What stands for a base reward that wasn't given.

    Returns:
        The returns, (N,); 0.0 for rows that don't count.

    Raises:
        CreditError: Something can't be meant; the rows are named.
    """
    gamma = finite(gamma, "gamma", low=0, high=1)
    batch = read_batch(
        rewards,
        group=None,
        trajectory=trajectory,
        step=step,
        episode_score=episode_score,
        valid=valid,
        default_step_reward=default_step_reward,
    )
    returns = returns_of(batch, batch.rewards(), gamma)
    if not np.isfinite(returns).all():
        raise CreditError("rewards are too large for their sums to be computed")
    spread: Floats = batch.spread(returns)
    return spread
