"""Relatives that credit each step with what followed it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from guerdon.credit.arguments import (
    Column,
    Integers,
    PerTrajectory,
    choice,
    column,
    finite,
    floats,
    refused,
)
from guerdon.credit.batch import Batch, read_batch
from guerdon.credit.credit import Credit, credit_of
from guerdon.credit.returns import returns_of
from guerdon.credit.statistics import NORMALIZE, Normalize, relative

__all__ = ["gae", "group_normalized_returns", "mt_grpo", "pure"]


def group_normalized_returns(
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
    """The return from the step on, against all steps of its group.

    A = (R_t − μ) / (σ + 1e-6), R_t = r_t + γ R_{t+1}, with the mean and unbiased σ over all steps
    of all trajectories of the group, as Kevin trains on turns (arXiv 2507.11948).

    Example:
        >>> from guerdon.credit import group_normalized_returns
        >>> credit = group_normalized_returns(
        ...     [0.0, 1.0, 0.0, 0.0], group=["g"] * 4, trajectory=list("aabb"), step=[0, 1, 0, 1])
        >>> credit.advantage.round(3).tolist()
        [0.866, 0.866, -0.866, -0.866]

    Args:
        rewards: Base rewards, (N,); NaN or None where none was given.
        group: Group ids, (N,), hashable.
        trajectory: Trajectory ids, (N,), hashable, unique in the batch.
        step: Step ids, (N,), numbers that sort.
        episode_score: Scores, (N,), one for each trajectory in the order of their first rows, or a
            mapping from trajectory ids; None: the sum of the rewards that were given.
        gamma: The discount, in [0, 1].
        normalize: ``mean_std``, or ``mean`` for R_t − μ.
        valid: Booleans for whether a trajectory counts, in the same forms; None: all do.
        default_step_reward: What stands for a base reward that wasn't given.

    Returns:
        The advantages; ``step`` is the same, ``episode`` is 0.

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
    returns = returns_of(batch, batch.rewards(), gamma)
    advantage = relative(returns, batch.group, normalize=normalize)
    return credit_of(batch, advantage, step=advantage, returns=returns)


def gae(
    rewards: ArrayLike,
    *,
    trajectory: Column,
    step: Column,
    values: ArrayLike,
    group: Column | None = None,
    episode_score: PerTrajectory | None = None,
    gamma: float = 1.0,
    lam: float = 1.0,
    valid: PerTrajectory | None = None,
    default_step_reward: float = 0.0,
) -> Credit:
    """Generalized Advantage Estimation over the turns of a trajectory, with a critic's values.

    A_t = Σ_l (γλ)^l δ_{t+l},  δ_t = r_t + γ V_{t+1} − V_t  (arXiv 1506.02438, equation 16). After
    the last step V is 0: the episode has ended.

    Example:
        >>> from guerdon.credit import gae
        >>> credit = gae([0.0, 1.0], trajectory=["a", "a"], step=[0, 1], values=[0.5, 0.75],
        ...              lam=0.5)
        >>> credit.advantage.tolist(), credit.returns.tolist()
        ([0.375, 0.25], [0.875, 1.0])

    Args:
        rewards: Base rewards, (N,); NaN or None where none was given.
        trajectory: Trajectory ids, (N,), hashable, unique in the batch.
        step: Step ids, (N,), numbers that sort.
        values: What the critic expects from the step's state on, (N,).
        group: Group ids, (N,), for the diagnostics; None: all are one group.
        episode_score: Scores, as in `group_normalized_returns`; added at the last step of a
            trajectory without rewards.
        gamma: The discount γ, in [0, 1].
        lam: λ, in [0, 1]: 0 trusts the critic, 1 what has happened.
        valid: Whether a trajectory counts, as in `group_normalized_returns`.
        default_step_reward: What stands for a base reward that wasn't given.

    Returns:
        The advantages; ``step`` is the same, ``episode`` is 0, and ``returns`` are A + V, what the
        critic learns from.

    Raises:
        CreditError: Something can't be meant; the rows are named.
    """
    gamma = finite(gamma, "gamma", low=0, high=1)
    lam = finite(lam, "lam", low=0, high=1)
    batch = read_batch(
        rewards,
        group=group,
        trajectory=trajectory,
        step=step,
        episode_score=episode_score,
        valid=valid,
        default_step_reward=default_step_reward,
        values=values,
    )
    value = floats(column(values, "values"), "values")[batch.rows]
    wrong = batch.rows[~np.isfinite(value)]
    if len(wrong):
        raise refused("values are not finite", wrong, accepted="each valid row needs a number")
    rewards_ = batch.rewards()
    with np.errstate(over="ignore", invalid="ignore"):
        # r_t + γ V_{t+1}, and r_t at the last step; then δ_t.
        reached = rewards_ + gamma * np.append(value[1:], 0.0)
        last = batch.starts + batch.lengths - 1
        reached[last] = rewards_[last]
        advantage = returns_of(batch, reached - value, gamma * lam)
        returns = advantage + value
    return credit_of(batch, advantage, step=advantage, returns=returns)


def mt_grpo(
    rewards: ArrayLike,
    *,
    group: Column,
    trajectory: Column,
    step: Column,
    episode_score: PerTrajectory | None = None,
    gamma: float = 1.0,
    lam: float = 1.0,
    normalize: Normalize = "mean_std",
    valid: PerTrajectory | None = None,
    default_step_reward: float = 0.0,
) -> Credit:
    """Multi-turn GRPO: a turn's own reward against the group's at that turn, plus the outcome.

    A_t = A_T + λ A_O (arXiv 2505.11821), where A_T = (r_t − μ_t) / (σ_t + 1e-6) over the n-th steps
    of the group's trajectories, and A_O = (R − μ) / (σ + 1e-6) over their scores.

    It is biased where the policy decides when to stop: only the trajectories that go on are
    compared at a late turn, and which those are depends on the actions before.

    Example:
        >>> from guerdon.credit import mt_grpo
        >>> credit = mt_grpo([1.0, 0.0, 0.0, 0.0], group=["g"] * 4, trajectory=list("aabb"),
        ...                  step=[0, 1, 0, 1], episode_score={"a": 0.0, "b": 1.0}, lam=0.5)
        >>> credit.step.round(3).tolist(), credit.episode.round(3).tolist()
        ([0.707, 0.0, -0.707, 0.0], [-0.707, -0.707, 0.707, 0.707])

    Args:
        rewards: The reward of each turn, (N,); NaN or None where none was given.
        group: Group ids, (N,), hashable.
        trajectory: Trajectory ids, (N,), hashable, unique in the batch.
        step: Step ids, (N,), numbers that sort; the n-th step of a trajectory is its n-th turn.
        episode_score: The outcomes, as in `group_normalized_returns`; they are no turn's reward.
        gamma: The discount of ``returns``, in [0, 1]; the advantage doesn't depend on it.
        lam: λ, 0 or more.
        normalize: ``mean_std``, or ``mean`` for differences from the means alone.
        valid: Whether a trajectory counts, as in `group_normalized_returns`.
        default_step_reward: What stands for a turn's reward that wasn't given.

    Returns:
        The advantages; ``step`` is A_T and ``episode`` A_O.

    Raises:
        CreditError: Something can't be meant; the rows are named.
    """
    gamma = finite(gamma, "gamma", low=0, high=1)
    lam = finite(lam, "lam", low=0)
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
    by_turn = relative(batch.step_rewards(), _turns(batch), normalize=normalize)
    outcome = relative(batch.score, batch.group_of, normalize=normalize)[batch.trajectory]
    with np.errstate(over="ignore", invalid="ignore"):
        advantage = by_turn + lam * outcome
    returns = returns_of(batch, batch.rewards(), gamma)
    return credit_of(batch, advantage, episode=outcome, step=by_turn, returns=returns)


def _turns(batch: Batch) -> Integers:
    """A number for each group's n-th steps, for each valid row."""
    place = np.arange(len(batch.rows)) - batch.starts[batch.trajectory]
    longest = np.zeros(len(batch.group_ids), np.int64)
    np.maximum.at(longest, batch.group_of, batch.lengths)
    before = np.cumsum(longest) - longest
    turns: Integers = before[batch.group] + place
    return turns


def pure(
    rewards: ArrayLike,
    *,
    trajectory: Column,
    step: Column,
    group: Column | None = None,
    episode_score: PerTrajectory | None = None,
    valid: PerTrajectory | None = None,
    default_step_reward: float = 0.0,
) -> Credit:
    """PURE: a step is worth the worst process reward from it on.

    A_t = min of r_t, r_{t+1}, … (arXiv 2504.15275), where a sum would pay for many steps that look
    good. There is no baseline in it: subtract one, or give process rewards around 0.

    A step without a reward takes no part in the minimum; where none is given from a step on, there
    is ``default_step_reward``.

    Example:
        >>> from guerdon.credit import pure
        >>> credit = pure([0.9, 0.2, 0.7], trajectory=["a"] * 3, step=[0, 1, 2])
        >>> credit.advantage.tolist()
        [0.2, 0.2, 0.7]

    Args:
        rewards: Process rewards, (N,); NaN or None where none was given. Each valid trajectory
            needs one.
        trajectory: Trajectory ids, (N,), hashable, unique in the batch.
        step: Step ids, (N,), numbers that sort.
        group: Group ids, (N,), for the diagnostics; None: all are one group.
        episode_score: Scores, as in `group_normalized_returns`, for the diagnostics.
        valid: Whether a trajectory counts, as in `group_normalized_returns`.
        default_step_reward: The minimum where there is no reward from a step on.

    Returns:
        The advantages; ``step`` and ``returns`` are the same, ``episode`` is 0.

    Raises:
        CreditError: Something can't be meant, or a trajectory has no process reward.
    """
    batch = read_batch(
        rewards,
        group=group,
        trajectory=trajectory,
        step=step,
        episode_score=episode_score,
        valid=valid,
        default_step_reward=default_step_reward,
    )
    bare = batch.rows[batch.starts[~batch.rewarded()]]
    if len(bare):
        raise refused(
            "no process reward for the trajectories that start",
            bare,
            accepted="pure needs at least one in each valid trajectory",
        )
    worst = batch.backwards(batch.given, np.fmin)
    worst = np.where(np.isnan(worst), batch.default, worst)
    return credit_of(batch, worst, step=worst, returns=worst)
