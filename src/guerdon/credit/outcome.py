"""Relatives that credit a whole trajectory with its outcome, at every step the same."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from guerdon.credit.arguments import Column, Floats, PerTrajectory, choice, finite
from guerdon.credit.batch import Batch, read_batch
from guerdon.credit.credit import Credit, credit_of
from guerdon.credit.returns import returns_of
from guerdon.credit.statistics import NORMALIZE, Normalize, relative

__all__ = ["dr_grpo", "grpo", "reinforce_pp", "rloo"]


def grpo(
    rewards: ArrayLike,
    *,
    group: Column,
    trajectory: Column,
    step: Column,
    episode_score: PerTrajectory | None = None,
    gamma: float = 1.0,
    normalize: Normalize = "mean_std",
    valid: PerTrajectory | None = None,
    default_step_reward: float = 0.0,
) -> Credit:
    """Group Relative Policy Optimization: the score against its group's mean and deviation.

    A = (R − μ) / (σ + 1e-6), with the unbiased σ over the trajectories of the group
    (arXiv 2402.03300). A group of one, and equal scores, give 0.

    Example:
        >>> from guerdon.credit import grpo
        >>> credit = grpo([1.0, 0.0, 0.0], group=["g"] * 3, trajectory=["a", "b", "c"],
        ...               step=[0, 0, 0])
        >>> credit.advantage.round(3).tolist()
        [1.155, -0.577, -0.577]

    Args:
        rewards: Base rewards, (N,); NaN or None where none was given.
        group: Group ids, (N,), hashable.
        trajectory: Trajectory ids, (N,), hashable, unique in the batch.
        step: Step ids, (N,), numbers that sort.
        episode_score: Scores, (N,), one for each trajectory in the order of their first rows, or a
            mapping from trajectory ids; None: the sum of the rewards that were given.
        gamma: The discount of ``returns``, in [0, 1]; the advantage doesn't depend on it.
        normalize: ``mean_std``, or ``mean`` for R − μ, which is `dr_grpo`.
        valid: Booleans for whether a trajectory counts, in the same forms; None: all do.
        default_step_reward: What stands for a base reward that wasn't given, in ``returns``.

    Returns:
        The advantages; ``episode`` is the same, ``step`` is 0.

    Raises:
        CreditError: Something can't be meant; the rows are named.
    """
    gamma = finite(gamma, "gamma", low=0, high=1)
    choice(normalize, "normalize", *NORMALIZE)
    batch = read_batch(
        rewards,
        group=group,
        trajectory=trajectory,
        step=step,
        episode_score=episode_score,
        valid=valid,
        default_step_reward=default_step_reward,
    )
    return _of_episodes(batch, relative(batch.score, batch.group_of, normalize=normalize), gamma)


def dr_grpo(
    rewards: ArrayLike,
    *,
    group: Column,
    trajectory: Column,
    step: Column,
    episode_score: PerTrajectory | None = None,
    gamma: float = 1.0,
    valid: PerTrajectory | None = None,
    default_step_reward: float = 0.0,
) -> Credit:
    """Dr. GRPO: the score against its group's mean.

    A = R − μ over the trajectories of the group (arXiv 2503.20783): without the deviation, a group
    that is almost always or almost never solved doesn't weigh more. A group of one gives 0.

    Example:
        >>> from guerdon.credit import dr_grpo
        >>> credit = dr_grpo([1.0, 0.0, 0.0, 0.0], group=["g"] * 4, trajectory=list("abcd"),
        ...                  step=[0, 0, 0, 0])
        >>> credit.advantage.tolist()
        [0.75, -0.25, -0.25, -0.25]

    Args:
        rewards: Base rewards, (N,); NaN or None where none was given.
        group: Group ids, (N,), hashable.
        trajectory: Trajectory ids, (N,), hashable, unique in the batch.
        step: Step ids, (N,), numbers that sort.
        episode_score: Scores, as in `grpo`.
        gamma: The discount of ``returns``, in [0, 1]; the advantage doesn't depend on it.
        valid: Whether a trajectory counts, as in `grpo`.
        default_step_reward: What stands for a base reward that wasn't given, in ``returns``.

    Returns:
        The advantages; ``episode`` is the same, ``step`` is 0.

    Raises:
        CreditError: Something can't be meant; the rows are named.
    """
    gamma = finite(gamma, "gamma", low=0, high=1)
    batch = read_batch(
        rewards,
        group=group,
        trajectory=trajectory,
        step=step,
        episode_score=episode_score,
        valid=valid,
        default_step_reward=default_step_reward,
    )
    return _of_episodes(batch, relative(batch.score, batch.group_of, normalize="mean"), gamma)


def rloo(
    rewards: ArrayLike,
    *,
    group: Column,
    trajectory: Column,
    step: Column,
    episode_score: PerTrajectory | None = None,
    gamma: float = 1.0,
    valid: PerTrajectory | None = None,
    default_step_reward: float = 0.0,
) -> Credit:
    """REINFORCE Leave-One-Out: the score against the mean of the others.

    A = R_i − mean of R_j over the j ≠ i of the group, which is n / (n − 1) · (R_i − μ)
    (arXiv 2402.14740). A group of one has no others and gives 0.

    Example:
        >>> from guerdon.credit import rloo
        >>> credit = rloo([3.0, 1.0, 2.0], group=["g"] * 3, trajectory=list("abc"), step=[0, 0, 0])
        >>> credit.advantage.tolist()
        [1.5, -1.5, 0.0]

    Args:
        rewards: Base rewards, (N,); NaN or None where none was given.
        group: Group ids, (N,), hashable.
        trajectory: Trajectory ids, (N,), hashable, unique in the batch.
        step: Step ids, (N,), numbers that sort.
        episode_score: Scores, as in `grpo`.
        gamma: The discount of ``returns``, in [0, 1]; the advantage doesn't depend on it.
        valid: Whether a trajectory counts, as in `grpo`.
        default_step_reward: What stands for a base reward that wasn't given, in ``returns``.

    Returns:
        The advantages; ``episode`` is the same, ``step`` is 0.

    Raises:
        CreditError: Something can't be meant; the rows are named.
    """
    gamma = finite(gamma, "gamma", low=0, high=1)
    batch = read_batch(
        rewards,
        group=group,
        trajectory=trajectory,
        step=step,
        episode_score=episode_score,
        valid=valid,
        default_step_reward=default_step_reward,
    )
    amount = np.bincount(batch.group_of)[batch.group_of]
    deviation = relative(batch.score, batch.group_of, normalize="mean")
    with np.errstate(over="ignore"):
        return _of_episodes(batch, deviation * amount / np.maximum(amount - 1, 1), gamma)


def reinforce_pp(
    rewards: ArrayLike,
    *,
    trajectory: Column,
    step: Column,
    group: Column | None = None,
    episode_score: PerTrajectory | None = None,
    gamma: float = 1.0,
    valid: PerTrajectory | None = None,
    default_step_reward: float = 0.0,
) -> Credit:
    """REINFORCE++: the return from the step on, whitened over the whole batch.

    A = (R_t − mean) / (σ + 1e-6) over all valid rows of the batch, with the unbiased σ
    (arXiv 2501.03262). Its numbers depend on what else is in the batch, beyond the group.

    Example:
        >>> from guerdon.credit import reinforce_pp
        >>> credit = reinforce_pp([0.0, 2.0, 0.0, 0.0], trajectory=list("aabb"), step=[0, 1, 0, 1])
        >>> credit.returns.tolist(), credit.advantage.round(3).tolist()
        ([2.0, 2.0, 0.0, 0.0], [0.866, 0.866, -0.866, -0.866])

    Args:
        rewards: Base rewards, (N,); NaN or None where none was given.
        trajectory: Trajectory ids, (N,), hashable, unique in the batch.
        step: Step ids, (N,), numbers that sort.
        group: Group ids, (N,), for the diagnostics; None: all are one group.
        episode_score: Scores, as in `grpo`; added at the last step of a trajectory without rewards.
        gamma: The discount, in [0, 1].
        valid: Whether a trajectory counts, as in `grpo`.
        default_step_reward: What stands for a base reward that wasn't given.

    Returns:
        The advantages; ``step`` is the same, ``episode`` is 0.

    Raises:
        CreditError: Something can't be meant; the rows are named.
    """
    gamma = finite(gamma, "gamma", low=0, high=1)
    batch = read_batch(
        rewards,
        group=group,
        trajectory=trajectory,
        step=step,
        episode_score=episode_score,
        valid=valid,
        default_step_reward=default_step_reward,
    )
    returns = returns_of(batch, batch.rewards(), gamma)
    advantage = relative(returns, np.zeros(len(returns), np.int64))
    return credit_of(batch, advantage, step=advantage, returns=returns)


def _of_episodes(batch: Batch, by_trajectory: Floats, gamma: float) -> Credit:
    """Every step has its trajectory's advantage."""
    episode = by_trajectory[batch.trajectory]
    returns = returns_of(batch, batch.rewards(), gamma)
    return credit_of(batch, episode, episode=episode, returns=returns)
