"""GiGPO: advantages from groups of trajectories, and groups of steps in the same state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from guerdon.credit.anchors import anchors_of, deeper
from guerdon.credit.arguments import (
    Column,
    Floats,
    Integers,
    PerTrajectory,
    choice,
    column,
    finite,
    whole,
)
from guerdon.credit.batch import Batch, read_batch
from guerdon.credit.credit import Credit, credit_of
from guerdon.credit.returns import returns_of
from guerdon.credit.statistics import NORMALIZE, Normalize, relative, varies
from guerdon.errors import CreditError

__all__ = ["gigpo", "hgpo"]

# How many states a key may look back at.
MAX_HISTORY = 1_000

EpisodeStats = Literal["trajectories", "rows"]
Joint = Literal["sum", "convex"]
Singleton = Literal["zero", "raw"]


def gigpo(
    rewards: ArrayLike,
    *,
    group: Column,
    trajectory: Column,
    step: Column,
    state: Column,
    episode_score: PerTrajectory | None = None,
    gamma: float = 1.0,
    omega: float = 1.0,
    normalize: Normalize = "mean_std",
    episode_stats: EpisodeStats = "trajectories",
    joint: Joint = "sum",
    singleton: Singleton = "zero",
    similarity: float | None = None,
    history: int = 0,
    valid: PerTrajectory | None = None,
    default_step_reward: float = 0.0,
) -> Credit:
    """Group-in-Group Policy Optimization: compare trajectories, and steps in the same state.

    The trajectories of a group started from the same task and state. Steps of a group in the same
    state, revisits included, are an anchor group G: there the policy chose differently, and what
    came of it is compared. From arXiv 2505.10978::

        R_t  = r_t + γ R_{t+1}                              (equation 5)
        A_E  = (R(τ) − mean of the group) / F               (3)
        A_S  = (R_t − mean of G) / F                        (7)
        A    = A_E + ω A_S                                  (8)
        F    = σ + 1e-6 with the unbiased σ, or 1

    A step alone in its anchor group has A_S = 0, and equal values give 0. Where a trajectory has no
    base reward at all, its score is added at its last step.

    Example:
        >>> from guerdon.credit import gigpo
        >>> credit = gigpo([0.0, 1.0, 0.0, 0.0], group=["task"] * 4, trajectory=[0, 0, 1, 1],
        ...                step=[0, 1, 0, 1], state=["start", "left", "start", "right"],
        ...                gamma=0.9, normalize="mean")
        >>> credit.returns.tolist(), credit.anchor.tolist()
        ([0.9, 1.0, 0.0, 0.0], [0, 1, 0, 2])
        >>> credit.episode.tolist(), credit.step.tolist()
        ([0.5, 0.5, -0.5, -0.5], [0.45, 0.0, -0.45, 0.0])
        >>> credit.advantage.tolist()
        [0.95, 0.5, -0.95, -0.5]

    Args:
        rewards: Base rewards, (N,); NaN or None where none was given.
        group: Group ids, (N,), hashable.
        trajectory: Trajectory ids, (N,), hashable, unique in the batch.
        step: Step ids, (N,), numbers that sort; they may have gaps.
        state: The state in which each step was taken, (N,): text, numbers, None, bytes, arrays,
            lists, tuples, sets and mappings of these, or values that compare by content. 1, 1.0
            and True are different states, NaN is the same as NaN.
        episode_score: Scores, (N,), one for each trajectory in the order of their first rows, or a
            mapping from trajectory ids; None: the sum of the rewards that were given.
        gamma: The discount γ, in [0, 1].
        omega: The weight ω of the step's advantage, 0 or more; in [0, 1] if ``joint="convex"``.
        normalize: ``mean_std``: F = σ + 1e-6. ``mean``: F = 1.
        episode_stats: ``trajectories``: the mean and σ of a group are those of its trajectories'
            scores, as in the paper. ``rows``: those of its rows' scores, as in the authors' code,
            where a longer trajectory weighs more.
        joint: ``sum``: A_E + ω A_S, as in the paper. ``convex``: ω A_E + (1 − ω) A_S.
        singleton: What A_E is where the group has one entry in its statistics: ``zero``, or ``raw``
            for the score itself, as in the authors' code.
        similarity: None: equal states are the same. Else texts whose ratio by ``difflib`` (without
            its junk heuristic) is at least that, in (0, 1]; each joins the first similar state
            of its group, in the order of trajectory and step.
        history: k ≥ 0: steps are in one anchor group if their last k states are the same too, or as
            many as there are.
        valid: Booleans for whether a trajectory counts, (N,), one for each trajectory, or by id;
            None: all do. One invalid row makes its trajectory invalid.
        default_step_reward: What stands for a base reward that wasn't given.

    Returns:
        The advantages with their parts, in the order of the rows.

    Raises:
        CreditError: Something can't be meant; the rows are named.
    """
    how = _Conventions(
        gamma, omega, normalize, episode_stats, joint, singleton, similarity, history
    )
    batch = read_batch(
        rewards,
        group=group,
        trajectory=trajectory,
        step=step,
        episode_score=episode_score,
        valid=valid,
        default_step_reward=default_step_reward,
        state=state,
    )
    returns = returns_of(batch, batch.rewards(), how.gamma)
    anchor = states = anchors_of(batch, column(state, "state"), how.similarity)
    longest = int(batch.lengths.max(initial=1))
    for depth in range(1, min(how.history + 1, longest)):  # nobody has a longer history
        anchor = deeper(batch, anchor, states, depth)
    by_step = relative(returns, anchor, normalize=normalize)
    return how.credit(batch, by_step, returns, anchor)


def hgpo(
    rewards: ArrayLike,
    *,
    group: Column,
    trajectory: Column,
    step: Column,
    state: Column,
    episode_score: PerTrajectory | None = None,
    gamma: float = 1.0,
    omega: float = 0.0,
    normalize: Normalize = "mean_std",
    episode_stats: EpisodeStats = "trajectories",
    joint: Joint = "convex",
    singleton: Singleton = "zero",
    similarity: float | None = None,
    history: int = 2,
    alpha: float = 1.0,
    valid: PerTrajectory | None = None,
    default_step_reward: float = 0.0,
) -> Credit:
    """Hierarchy-of-Groups Policy Optimization: anchor groups at every depth of history.

    A step belongs to one anchor group for each depth k = 0 … K, that of the steps whose state and
    k states before it (or as many as there are) are the same. The deeper the group, the more alike
    its prompts and the fewer its steps. From arXiv 2602.22817 (equations 3 to 7)::

        A_k = (R_t − mean of G_k) / F
        A_S = Σ_k w_k A_k,   w_k ∝ L^α,   L = k + 1

    The weights sum to 1 over the depths whose group has returns that differ: a step alone, or among
    equals, learns nothing at that depth, and the paper's experiments leave it out. A_S is the whole
    advantage there, which is ω = 0 in ω A_E + (1 − ω) A_S, the default. The groups here use
    the unbiased σ as `gigpo` does, and ``history=0`` has the step advantages of `gigpo`.

    Example:
        >>> from guerdon.credit import hgpo
        >>> credit = hgpo([0, 0, 1, 0, 0, 0, 0, 0, 0], group=["g"] * 9,
        ...               trajectory=["a", "a", "a", "b", "b", "b", "c", "c", "c"],
        ...               step=[0, 1, 2] * 3, state=["s", "x", "y", "s", "x", "z", "t", "x", "z"],
        ...               history=1, normalize="mean")
        >>> float(credit.step[1].round(3))  # 1/3 · (1 − 1/3) + 2/3 · (1 − 1/2)
        0.556

    Args:
        rewards: Base rewards, (N,); NaN or None where none was given.
        group: Group ids, (N,), hashable.
        trajectory: Trajectory ids, (N,), hashable, unique in the batch.
        step: Step ids, (N,), numbers that sort; they may have gaps.
        state: The state in which each step was taken, (N,), as in `gigpo`.
        episode_score: Scores, as in `gigpo`.
        gamma: The discount γ, in [0, 1].
        omega: As in `gigpo`; with ``joint="convex"`` the weight of A_E, in [0, 1].
        normalize: ``mean_std``: F = σ + 1e-6. ``mean``: F = 1.
        episode_stats: As in `gigpo`.
        joint: As in `gigpo`.
        singleton: As in `gigpo`.
        similarity: As in `gigpo`.
        history: K, the number of states to look back at most, 0 or more.
        alpha: α ≥ 0: how much more a deeper group weighs; 0 weighs all the same.
        valid: Whether a trajectory counts, as in `gigpo`.
        default_step_reward: What stands for a base reward that wasn't given.

    Returns:
        The advantages with their parts; ``anchor`` is the group by the state alone.

    Raises:
        CreditError: Something can't be meant; the rows are named.
    """
    how = _Conventions(
        gamma, omega, normalize, episode_stats, joint, singleton, similarity, history
    )
    alpha = finite(alpha, "alpha", low=0)
    batch = read_batch(
        rewards,
        group=group,
        trajectory=trajectory,
        step=step,
        episode_score=episode_score,
        valid=valid,
        default_step_reward=default_step_reward,
        state=state,
    )
    returns = returns_of(batch, batch.rewards(), how.gamma)
    anchor = states = anchors_of(batch, column(state, "state"), how.similarity)
    total, weights = np.zeros(len(states)), np.zeros(len(states))
    for depth in range(how.history + 1):
        anchor = deeper(batch, anchor, states, depth) if depth else states
        # Relative to the deepest, so that no power overflows.
        weight = ((depth + 1) / (how.history + 1)) ** alpha * varies(returns, anchor)[anchor]
        total += weight * relative(returns, anchor, normalize=normalize)
        weights += weight
    by_step = np.divide(total, weights, out=np.zeros(len(states)), where=weights > 0)
    return how.credit(batch, by_step, returns, states)


@dataclass(frozen=True, slots=True)
class _Conventions:
    """The options of `gigpo`, checked."""

    gamma: float
    omega: float
    normalize: str
    episode_stats: str
    joint: str
    singleton: str
    similarity: float | None
    history: int

    def __post_init__(self) -> None:
        choice(self.normalize, "normalize", *NORMALIZE)
        choice(self.episode_stats, "episode_stats", "trajectories", "rows")
        choice(self.joint, "joint", "sum", "convex")
        choice(self.singleton, "singleton", "zero", "raw")
        finite(self.gamma, "gamma", low=0, high=1)
        finite(self.omega, "omega", low=0, high=1 if self.joint == "convex" else np.inf)
        whole(self.history, "history", high=MAX_HISTORY)
        if self.similarity is not None:
            finite(self.similarity, "similarity", low=0, high=1)
            if self.similarity == 0:
                raise CreditError(
                    "similarity is 0, at which all texts are similar; (0, 1] is needed"
                )

    def credit(self, batch: Batch, by_step: Floats, returns: Floats, anchor: Integers) -> Credit:
        """A, A_E and A_S."""
        episode = self.episode(batch)
        of_episode, of_step = (1.0, self.omega)
        if self.joint == "convex":
            of_episode, of_step = self.omega, 1.0 - self.omega
        with np.errstate(over="ignore", invalid="ignore"):
            advantage = of_episode * episode + of_step * by_step
        return credit_of(
            batch, advantage, episode=episode, step=by_step, returns=returns, anchor=anchor
        )

    def episode(self, batch: Batch) -> Floats:
        """A_E of each valid row, (M,)."""
        scores, groups = batch.score, batch.group_of
        if self.episode_stats == "rows":
            scores, groups = scores[batch.trajectory], batch.group
        advantage = relative(scores, groups, normalize=self.normalize)
        if self.singleton == "raw":
            alone = np.bincount(groups)[groups] == 1 if len(groups) else np.zeros(0, np.bool_)
            advantage = np.where(alone, scores, advantage)
        return advantage if self.episode_stats == "rows" else advantage[batch.trajectory]
