"""Estimators: functions from a `StepBatch` to a `Credit`, by name."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Literal, TypeVar

import numpy as np

from guerdon._registry import Registry
from guerdon._validation import check_choice, check_number, shown
from guerdon.credit.batch import StepBatch
from guerdon.credit.columns import Floats, Integers, number, row_error
from guerdon.credit.credit import Credit
from guerdon.credit.statistics import Normalize, relative_to_group, varies
from guerdon.errors import CreditError, InvalidArgumentError

__all__ = [
    "ESTIMATORS",
    "discounted_returns",
    "dr_grpo",
    "estimator",
    "gae",
    "gdpo",
    "gigpo",
    "group_normalized_returns",
    "grpo",
    "hgpo",
    "mt_grpo",
    "pure",
    "reinforce_pp",
    "rloo",
    "rtmc",
    "state_differences",
    "turn_rloo",
]

EstimatorFunction = TypeVar("EstimatorFunction", bound=Callable[..., Credit])

ESTIMATORS: Registry[Callable[..., Credit]] = Registry(
    "estimator", "guerdon.estimators", error=InvalidArgumentError
)
"""Every estimator by its name; other packages add theirs as entry points."""


def estimator(
    name: str, *, needs: Collection[Literal["state", "action", "values", "components"]] = ()
) -> Callable[[EstimatorFunction], EstimatorFunction]:
    """Register an estimator, so that `apply_credit` and ``guerdon score --credit`` find it.

    Example:
        >>> from guerdon.credit import Credit, StepBatch, estimator, relative_to_group
        >>> @estimator("turn_rewards")
        ... def turn_rewards(batch: StepBatch, *, normalize: str = "mean") -> Credit:
        ...     step = relative_to_group(batch.rewards, batch.group, normalize=normalize)
        ...     return Credit.of(batch, step, step=step)
        >>> batch = StepBatch.from_arrays([1.0, 0.0], trajectory=["a", "b"], step=[0, 0])
        >>> turn_rewards(batch).advantage.tolist()
        [0.5, -0.5]

    Args:
        name: Its name.
        needs: What it reads of a batch beside rewards and scores: ``state``, ``action``,
            ``values``, ``components``.
    """

    def register(function: EstimatorFunction) -> EstimatorFunction:
        function.needs = frozenset(needs)  # type: ignore[attr-defined]
        ESTIMATORS.register(name, function)
        return function

    return register


def discounted_returns(batch: StepBatch, *, gamma: float = 1.0) -> Floats:
    """Return the discounted return from each row's step on, (N,); 0.0 for rows that don't count.

    R_t = r_t + γ R_{t+1} (equation 5 of GiGPO, arXiv 2505.10978). Where a trajectory has no base
    reward at all, its score is added at its last step.

    Example:
        >>> from guerdon.credit import StepBatch, discounted_returns
        >>> batch = StepBatch.from_arrays([0.0, 0.0, 1.0], trajectory=["a"] * 3, step=[0, 1, 2])
        >>> discounted_returns(batch, gamma=0.5).tolist()
        [0.25, 0.5, 1.0]

    Args:
        batch: The batch.
        gamma: The discount γ, in [0, 1].

    Raises:
        CreditError: ``gamma`` is out of range, or rewards are too large to be added.
    """
    returns = batch.returns(gamma)
    if not np.isfinite(returns).all():
        raise CreditError("rewards are too large to compute their sums")
    return batch.to_rows(returns)


# The outcome of a trajectory, the same at each of its steps ---------------------------------------


@estimator("grpo")
def grpo(batch: StepBatch, *, gamma: float = 1.0, normalize: Normalize = "mean_std") -> Credit:
    """Group Relative Policy Optimization: the score relative to its group's mean and deviation.

    A = (R − μ) / (σ + 1e-6), with the unbiased σ over the trajectories of the group
    (arXiv 2402.03300). A group of one, and equal scores, give 0.

    Example:
        >>> from guerdon.credit import StepBatch, grpo
        >>> batch = StepBatch.from_arrays([1.0, 0.0, 0.0], trajectory=["a", "b", "c"],
        ...                               step=[0, 0, 0])
        >>> grpo(batch).advantage.round(3).tolist()
        [1.155, -0.577, -0.577]

    Args:
        batch: The batch.
        gamma: The discount of ``returns``, in [0, 1]; the advantage doesn't depend on it.
        normalize: ``mean_std``, or ``mean`` for R − μ, which is `dr_grpo`.

    Returns:
        The advantages; ``episode`` is the same, ``step`` is 0.

    Raises:
        CreditError: An option is out of range, or numbers are too large.
    """
    advantage = relative_to_group(batch.scores, batch.group_of, normalize=normalize)
    return _of_trajectories(batch, advantage, gamma)


@estimator("dr_grpo")
def dr_grpo(batch: StepBatch, *, gamma: float = 1.0) -> Credit:
    """Dr. GRPO: the score relative to its group's mean.

    A = R − μ over the trajectories of the group (arXiv 2503.20783): without the deviation, a group
    that is almost always or almost never solved doesn't weigh more. A group of one gives 0.

    Example:
        >>> from guerdon.credit import StepBatch, dr_grpo
        >>> batch = StepBatch.from_arrays([1.0, 0.0, 0.0, 0.0], trajectory=list("abcd"),
        ...                               step=[0, 0, 0, 0])
        >>> dr_grpo(batch).advantage.tolist()
        [0.75, -0.25, -0.25, -0.25]

    Args:
        batch: The batch.
        gamma: The discount of ``returns``, in [0, 1]; the advantage doesn't depend on it.

    Returns:
        The advantages; ``episode`` is the same, ``step`` is 0.

    Raises:
        CreditError: ``gamma`` is out of range, or numbers are too large.
    """
    advantage = relative_to_group(batch.scores, batch.group_of, normalize="mean")
    return _of_trajectories(batch, advantage, gamma)


@estimator("rloo")
def rloo(batch: StepBatch, *, gamma: float = 1.0) -> Credit:
    """REINFORCE Leave-One-Out: the score relative to the mean of the others.

    A = R_i − mean of R_j over the j ≠ i of the group, which is n / (n − 1) · (R_i − μ)
    (arXiv 2402.14740). A group of one has no others and gives 0.

    Example:
        >>> from guerdon.credit import StepBatch, rloo
        >>> batch = StepBatch.from_arrays([3.0, 1.0, 2.0], trajectory=list("abc"), step=[0, 0, 0])
        >>> rloo(batch).advantage.tolist()
        [1.5, -1.5, 0.0]

    Args:
        batch: The batch.
        gamma: The discount of ``returns``, in [0, 1]; the advantage doesn't depend on it.

    Returns:
        The advantages; ``episode`` is the same, ``step`` is 0.

    Raises:
        CreditError: ``gamma`` is out of range, or numbers are too large.
    """
    return _of_trajectories(batch, _above_others(batch.scores, batch.group_of), gamma)


def _above_others(values: Floats, group: Integers) -> Floats:
    """Return how far each value is from the mean of the others of its group; 0 if it is alone."""
    amount = np.bincount(group)[group]
    with np.errstate(over="ignore"):
        deviation = relative_to_group(values, group, normalize="mean")
        return deviation * amount / np.maximum(amount - 1, 1)


@estimator("gdpo", needs=["components"])
def gdpo(
    batch: StepBatch,
    *,
    weights: Mapping[str, float],
    gamma: float = 1.0,
    normalize_batch: bool = True,
) -> Credit:
    """GDPO: each component of the score is normalized within its group before they are added.

    Different components can add up to the same score, which GRPO doesn't distinguish, and one with
    a large deviation hides the others. From arXiv 2601.05242, in the form of the code that
    its authors published::

        A_k = (c_k − mean of the group) / (σ + 1e-6), with the unbiased σ
        A   = Σ_k w_k A_k
        Â   = (A − mean of the batch) / (σ + 1e-6), over its trajectories

    The authors' code adds 1e-4 to σ, and reads a missing component as 0. Here a trajectory without
    a component takes no part in its mean and σ, and its A is the sum over those that it has: a
    missing component counts as neither good nor bad. A trajectory whose score isn't valid is
    masked as everywhere.

    Example:
        >>> from guerdon.credit import StepBatch, gdpo
        >>> batch = StepBatch.from_arrays(
        ...     [1.0, 1.0, 0.0, 2.0], trajectory=list("abcd"), step=[0] * 4,
        ...     components={"right": [1.0, 0.0, 0.0, 1.0], "brief": [0.0, 1.0, 0.0, 1.0]})
        >>> gdpo(batch, weights={"right": 2.0, "brief": 1.0}).advantage.round(3).tolist()
        [0.387, -0.387, -1.162, 1.162]

    Args:
        batch: A batch with ``components``.
        weights: The weight w_k of each component, a finite number, by name. Components without a
            weight don't count.
        gamma: The discount of ``returns``, in [0, 1]; the advantage doesn't depend on it.
        normalize_batch: Whether the advantages are Â; otherwise they are A, which doesn't depend
            on the other groups of the batch.

    Returns:
        The advantages; ``episode`` is the same, ``step`` is 0.

    Raises:
        CreditError: An option is out of range, a component with a weight is unknown, a trajectory
            has none of them, or numbers are too large.
    """
    if not isinstance(weights, Mapping):
        raise CreditError(
            f"`weights` must be a mapping from names to numbers, got {shown(weights)}"
        )
    unknown = sorted(weights.keys() - batch.components.keys())
    if unknown and len(batch.scores):
        raise CreditError(
            f"`weights` names {unknown}, which the batch doesn't have; its components are "
            f"{sorted(batch.components)}"
        )
    advantage, has_any = np.zeros(len(batch.scores)), np.zeros(len(batch.scores), np.bool_)
    for name in sorted(weights.keys() & batch.components.keys()):
        weight = check_number(f"weights[{name!r}]", weights[name], error=CreditError)
        has = ~np.isnan(batch.components[name])
        own = relative_to_group(batch.components[name][has], batch.group_of[has])
        advantage[has] += weight * own
        has_any |= has
    if not has_any.all():
        raise row_error(
            f"none of the components {sorted(weights)} for the trajectories that start",
            batch.rows[batch.starts[~has_any]],
            expected="give a weight to a component that every valid trajectory has, such as the "
            "gate that stopped the others",
        )
    if normalize_batch:
        advantage = relative_to_group(advantage, np.zeros(len(advantage), np.int64))
    return _of_trajectories(batch, advantage, gamma)


def _of_trajectories(batch: StepBatch, advantage: Floats, gamma: float) -> Credit:
    """Give every step its trajectory's advantage."""
    episode = advantage[batch.trajectory]
    return Credit.of(batch, episode, episode=episode, returns=batch.returns(gamma))


# What followed a step -----------------------------------------------------------------------------


@estimator("reinforce_pp")
def reinforce_pp(batch: StepBatch, *, gamma: float = 1.0) -> Credit:
    """REINFORCE++: the return from the step on, whitened over the whole batch.

    A = (R_t − mean) / (σ + 1e-6) over all valid rows of the batch, with the unbiased σ
    (arXiv 2501.03262). Its numbers depend on what else is in the batch, beyond the group.

    Example:
        >>> from guerdon.credit import StepBatch, reinforce_pp
        >>> credit = reinforce_pp(StepBatch.from_arrays(
        ...     [0.0, 2.0, 0.0, 0.0], trajectory=list("aabb"), step=[0, 1, 0, 1]))
        >>> credit.returns.tolist(), credit.advantage.round(3).tolist()
        ([2.0, 2.0, 0.0, 0.0], [0.866, 0.866, -0.866, -0.866])

    Args:
        batch: The batch.
        gamma: The discount, in [0, 1].

    Returns:
        The advantages; ``step`` is the same, ``episode`` is 0.

    Raises:
        CreditError: ``gamma`` is out of range, or numbers are too large.
    """
    returns = batch.returns(gamma)
    advantage = relative_to_group(returns, np.zeros(len(returns), np.int64))
    return Credit.of(batch, advantage, step=advantage, returns=returns)


@estimator("group_normalized_returns")
def group_normalized_returns(
    batch: StepBatch, *, gamma: float = 1.0, normalize: Normalize = "mean_std"
) -> Credit:
    """The return from the step on, relative to all steps of its group.

    A = (R_t − μ) / (σ + 1e-6), R_t = r_t + γ R_{t+1}, with the mean and unbiased σ over all steps
    of all trajectories of the group, as Kevin trains on turns (arXiv 2507.11948).

    Example:
        >>> from guerdon.credit import StepBatch, group_normalized_returns
        >>> credit = group_normalized_returns(StepBatch.from_arrays(
        ...     [0.0, 1.0, 0.0, 0.0], trajectory=list("aabb"), step=[0, 1, 0, 1]))
        >>> credit.advantage.round(3).tolist()
        [0.866, 0.866, -0.866, -0.866]

    Args:
        batch: The batch.
        gamma: The discount, in [0, 1].
        normalize: ``mean_std``, or ``mean`` for R_t − μ.

    Returns:
        The advantages; ``step`` is the same, ``episode`` is 0.

    Raises:
        CreditError: An option is out of range, or numbers are too large.
    """
    returns = batch.returns(gamma)
    advantage = relative_to_group(returns, batch.group, normalize=normalize)
    return Credit.of(batch, advantage, step=advantage, returns=returns)


@estimator("gae", needs=["values"])
def gae(batch: StepBatch, *, gamma: float = 1.0, lam: float = 1.0) -> Credit:
    """Generalized Advantage Estimation over the turns of a trajectory, with a critic's values.

    A_t = Σ_l (γλ)^l δ_{t+l},  δ_t = r_t + γ V_{t+1} − V_t  (arXiv 1506.02438, equation 16). After
    the last step V is 0: the episode has ended.

    Example:
        >>> from guerdon.credit import StepBatch, gae
        >>> credit = gae(StepBatch.from_arrays(
        ...     [0.0, 1.0], trajectory=["a", "a"], step=[0, 1], values=[0.5, 0.75]), lam=0.5)
        >>> credit.advantage.tolist(), credit.returns.tolist()
        ([0.375, 0.25], [0.875, 1.0])

    Args:
        batch: A batch with ``values``.
        gamma: The discount γ, in [0, 1].
        lam: λ, in [0, 1]: 0 relies on the critic, 1 on the rewards.

    Returns:
        The advantages; ``step`` is the same, ``episode`` is 0, and ``returns`` are A + V, the
        targets of the critic.

    Raises:
        CreditError: An option is out of range, the batch has no values, or numbers are too large.
    """
    gamma = check_number("gamma", gamma, low=0, high=1, error=CreditError)
    lam = check_number("lam", lam, low=0, high=1, error=CreditError)
    if batch.values is None:
        raise CreditError("gae needs the critic's estimates; pass `values` to StepBatch")
    rewards = batch.rewards_and_scores()
    with np.errstate(over="ignore", invalid="ignore"):
        expected = rewards + gamma * np.append(batch.values[1:], 0.0)
        last = batch.starts + batch.lengths - 1
        expected[last] = rewards[last]
        advantage = batch.returns(gamma * lam, expected - batch.values)
        returns = advantage + batch.values
    return Credit.of(batch, advantage, step=advantage, returns=returns)


@estimator("mt_grpo")
def mt_grpo(
    batch: StepBatch, *, gamma: float = 1.0, lam: float = 1.0, normalize: Normalize = "mean_std"
) -> Credit:
    """Multi-turn GRPO: a turn's own reward relative to the group's at that turn, plus the outcome.

    A_t = A_T + λ A_O (arXiv 2505.11821), where A_T = (r_t − μ_t) / (σ_t + 1e-6) over the n-th steps
    of the group's trajectories, and A_O = (R − μ) / (σ + 1e-6) over their scores.

    It is biased where the policy decides when to stop: only the trajectories that go on are
    compared at a late turn, and which those are depends on the actions before.

    Example:
        >>> from guerdon.credit import StepBatch, mt_grpo
        >>> credit = mt_grpo(StepBatch.from_arrays(
        ...     [1.0, 0.0, 0.0, 0.0], trajectory=list("aabb"), step=[0, 1, 0, 1],
        ...     episode_score={"a": 0.0, "b": 1.0}), lam=0.5)
        >>> credit.step.round(3).tolist(), credit.episode.round(3).tolist()
        ([0.707, 0.0, -0.707, 0.0], [-0.707, -0.707, 0.707, 0.707])

    Args:
        batch: The batch; the n-th step of a trajectory is its n-th turn.
        gamma: The discount of ``returns``, in [0, 1]; the advantage doesn't depend on it.
        lam: λ, 0 or more.
        normalize: ``mean_std``, or ``mean`` for differences from the means alone.

    Returns:
        The advantages; ``step`` is A_T and ``episode`` A_O.

    Raises:
        CreditError: An option is out of range, or numbers are too large.
    """
    lam = check_number("lam", lam, low=0, error=CreditError)
    by_turn = relative_to_group(batch.rewards, _turns(batch), normalize=normalize)
    outcome = relative_to_group(batch.scores, batch.group_of, normalize=normalize)[batch.trajectory]
    with np.errstate(over="ignore", invalid="ignore"):
        advantage = by_turn + lam * outcome
    return Credit.of(batch, advantage, episode=outcome, step=by_turn, returns=batch.returns(gamma))


def _turns(batch: StepBatch) -> Integers:
    """A number for the n-th steps of each group, (M,)."""
    longest = np.zeros(len(batch.group_ids), np.int64)
    np.maximum.at(longest, batch.group_of, batch.lengths)
    # The longest trajectories of the groups before, + n.
    return (np.cumsum(longest) - longest)[batch.group] + batch.turn


@estimator("turn_rloo")
def turn_rloo(batch: StepBatch, *, gamma: float = 1.0) -> Credit:
    """Turn-level leave-one-out: the return from a turn on, relative to the others at that turn.

    A_t = R_t − b_t, where R_t = r_t + γ R_{t+1}, and b_t is the mean of R_t over the *other*
    trajectories of the group that reached the turn; if none did, the mean of their returns at
    their last turns. A group of one gives 0.

    For γ = 1 the gradient Σ_t ∇ log π(a_t | h_t) A_t is unbiased, also where the policy decides
    when to stop. The history h_t, which is there before a_t, decides whether a trajectory reaches
    turn t. b_t depends on t and on other trajectories alone, and they are independent of this one.
    So the expectation of ∇ log π(a_t | h_t) b_t given h_t is 0, whatever selected the others. Two
    things matter: the mean leaves out the own return, and a trajectory that is alone at a turn has
    a baseline. With the mean over all n_t that reached the turn, as in `mt_grpo`, A_t has a factor
    (n_t − 1) / n_t, which is 0 for n_t = 1. It differs from turn to turn: turns that few
    trajectories reach count too little.

    The derivation is ours; for one turn, b_t is the baseline of RLOO (arXiv 2402.14740). The loss
    must add up the turns: a mean over the tokens of each trajectory brings a bias of its own.

    Example:
        >>> from guerdon.credit import StepBatch, turn_rloo
        >>> batch = StepBatch.from_arrays(
        ...     [0.0, 4.0, 1.0, 0.0, 2.0], trajectory=list("aabcc"), step=[0, 1, 0, 0, 1])
        >>> turn_rloo(batch).advantage.tolist()  # 4 − (1 + 2)/2, 4 − 2, 1 − (4 + 2)/2, …
        [2.5, 2.0, -2.0, -0.5, -2.0]

    Args:
        batch: The batch; the n-th step of a trajectory is its n-th turn.
        gamma: The discount γ, in [0, 1].

    Returns:
        The advantages; ``step`` is the same, ``episode`` is 0.

    Raises:
        CreditError: ``gamma`` is out of range, or numbers are too large.
    """
    returns, turns = batch.returns(gamma), _turns(batch)
    last = returns[batch.starts + batch.lengths - 1]
    with np.errstate(over="ignore", invalid="ignore"):
        # For a step that no other reached: R_t − the mean of the others' last returns.
        lone = returns + (_above_others(last, batch.group_of) - last)[batch.trajectory]
        advantage = np.where(np.bincount(turns)[turns] > 1, _above_others(returns, turns), lone)
    advantage[np.bincount(batch.group_of)[batch.group] == 1] = 0.0
    return Credit.of(batch, advantage, step=advantage, returns=returns)


@estimator("state_differences")
def state_differences(batch: StepBatch, *, gamma: float = 1.0) -> Credit:
    """The credit of a turn is how much it changed the score of the state.

    The base reward of a step is here the score Φ of the state that the step led to, such as an
    evaluation of the position, or a judge's estimate of the progress::

        A_t = γ Φ_t − Φ_{t−1}

    This is the term of potential-based shaping, F(s, a, s') = γ Φ(s') − Φ(s) (Ng, Harada and
    Russell, ICML 1999). TRACE (arXiv 2607.13988) rewards turns by differences of the scores that a
    reference model gives to states. With γ = 1 the advantages of a trajectory add up to Φ_T − Φ_0:
    a turn gets nothing for a good state in which it started. Of what comes later, it gets what Φ
    predicts; if Φ is the value of the policy, the expectation of A_t is the advantage function.

    - The state after the last step has the episode score if that step has no base reward. Pass
      ``episode_score`` then: its default is the sum of the base rewards.
    - A state without a score lies on the straight line between those before and after it: the
      steps in between share the difference equally.
    - Φ_0, the score of the state that a group starts from, is the mean of the *other* trajectories'
      first scores; in a group of one, its own first score.

    Example:
        >>> from guerdon.credit import StepBatch, state_differences
        >>> batch = StepBatch.from_arrays(
        ...     [0.5, None, 1.0, 0.25, 0.0], trajectory=list("aaabb"), step=[0, 1, 2, 0, 1])
        >>> state_differences(batch).advantage.tolist()
        [0.25, 0.25, 0.25, -0.25, -0.25]

    Args:
        batch: A batch whose base rewards are scores of states.
        gamma: The discount γ, in [0, 1].

    Returns:
        The advantages; ``step`` is the same, ``episode`` is 0, and ``returns`` are
        A_t + γ A_{t+1} + …

    Raises:
        CreditError: ``gamma`` is out of range, or numbers are too large.
    """
    gamma = check_number("gamma", gamma, low=0, high=1, error=CreditError)
    scores, is_known = batch.rewards.copy(), batch.is_rewarded.copy()
    last = batch.starts + batch.lengths - 1
    scores[last] = np.where(is_known[last], scores[last], batch.scores)
    is_known[last] = True
    known = np.flatnonzero(is_known)
    first = scores[known[np.searchsorted(known, batch.starts)]]
    # The states in a row: of each trajectory the initial one, and those after its steps.
    place = np.arange(len(scores)) + batch.trajectory + 1
    places = np.append(batch.starts + np.arange(len(first)), place[known])
    with np.errstate(over="ignore", invalid="ignore"):
        initial = first - _above_others(first, batch.group_of)
        order, values = np.argsort(places), np.append(initial, scores[known])
        if len(values):
            after, before = (
                np.interp(at, places[order], values[order]) for at in (place, place - 1)
            )
            scores = gamma * after - before
    return Credit.of(batch, scores, step=scores, returns=batch.returns(gamma, scores))


@estimator("pure")
def pure(batch: StepBatch) -> Credit:
    """PURE: the advantage of a step is the lowest process reward from it on.

    A_t = min of r_t, r_{t+1}, … (arXiv 2504.15275), where a sum would reward many steps that look
    good. It has no baseline: subtract one, or use process rewards around 0.

    A step without a reward takes no part in the minimum; where no step from it on has one, the
    minimum is ``default_step_reward``.

    Example:
        >>> from guerdon.credit import StepBatch, pure
        >>> batch = StepBatch.from_arrays([0.9, 0.2, 0.7], trajectory=["a"] * 3, step=[0, 1, 2])
        >>> pure(batch).advantage.tolist()
        [0.2, 0.2, 0.7]

    Args:
        batch: A batch with a base reward in each valid trajectory.

    Returns:
        The advantages; ``step`` and ``returns`` are the same, ``episode`` is 0.

    Raises:
        CreditError: A trajectory has no process reward.
    """
    without = batch.rows[batch.starts[~batch.has_rewards()]]
    if len(without):
        raise row_error("no process reward for the trajectories that start", without)
    worst = batch.backwards(np.where(batch.is_rewarded, batch.rewards, np.nan), np.fmin)
    worst = np.where(np.isnan(worst), batch.default_step_reward, worst)
    return Credit.of(batch, worst, step=worst, returns=worst)


# Steps in the same state --------------------------------------------------------------------------

EpisodeStats = Literal["trajectories", "rows"]
Joint = Literal["sum", "convex"]
Singleton = Literal["zero", "raw"]


@estimator("gigpo", needs=["state"])
def gigpo(
    batch: StepBatch,
    *,
    gamma: float = 1.0,
    omega: float = 1.0,
    normalize: Normalize = "mean_std",
    episode_stats: EpisodeStats = "trajectories",
    joint: Joint = "sum",
    singleton: Singleton = "zero",
    similarity: float | None = None,
    history: int = 0,
) -> Credit:
    """Group-in-Group Policy Optimization: compare trajectories, and steps in the same state.

    The trajectories of a group started from the same task and state. Steps of a group in the same
    state, revisits included, are an anchor group G: the policy chose differently there, and the
    consequences are compared. From arXiv 2505.10978::

        R_t  = r_t + γ R_{t+1}                              (equation 5)
        A_E  = (R(τ) − mean of the group) / F               (3)
        A_S  = (R_t − mean of G) / F                        (7)
        A    = A_E + ω A_S                                  (8)
        F    = σ + 1e-6 with the unbiased σ, or 1

    A step alone in its anchor group has A_S = 0, and equal values give 0. Where a trajectory has no
    base reward at all, its score is added at its last step.

    Example:
        >>> from guerdon.credit import StepBatch, gigpo
        >>> batch = StepBatch.from_arrays(
        ...     [0.0, 1.0, 0.0, 0.0], trajectory=["a", "a", "b", "b"], step=[0, 1, 0, 1],
        ...     state=["hall", "left", "hall", "right"])
        >>> credit = gigpo(batch, gamma=0.9, normalize="mean")
        >>> credit.returns.tolist(), credit.anchor.tolist()
        ([0.9, 1.0, 0.0, 0.0], [0, 1, 0, 2])
        >>> credit.episode.tolist(), credit.step.tolist()
        ([0.5, 0.5, -0.5, -0.5], [0.45, 0.0, -0.45, 0.0])
        >>> credit.advantage.tolist()
        [0.95, 0.5, -0.95, -0.5]

    Args:
        batch: A batch with ``state``.
        gamma: The discount γ, in [0, 1].
        omega: The weight ω of the step's advantage, 0 or more; in [0, 1] if ``joint="convex"``.
        normalize: ``mean_std``: F = σ + 1e-6. ``mean``: F = 1.
        episode_stats: ``trajectories``: the mean and σ of a group are those of its trajectories'
            scores, as in the paper. ``rows``: those of its rows' scores, as in the authors' code,
            where a longer trajectory weighs more.
        joint: ``sum``: A_E + ω A_S, as in the paper. ``convex``: ω A_E + (1 − ω) A_S.
        singleton: A_E where the group has one entry in its statistics: ``zero``, or ``raw`` for the
            score itself, as in the authors' code.
        similarity: None: states are the same if they are equal. Otherwise the ratio from which on
            texts are the same state, in (0, 1]; see `StepBatch.anchors`.
        history: k, in [0, 1000]: the k states before must be the same too, or as many as there are.

    Returns:
        The advantages with their parts, in the order of the rows.

    Raises:
        CreditError: An option is out of range, the batch has no states, or numbers are too large.
    """
    anchor = deque(batch.anchors(history=history, similarity=similarity), maxlen=1).pop()
    returns = batch.returns(gamma)
    step = relative_to_group(returns, anchor, normalize=normalize)
    episode = _episode_advantage(batch, normalize, episode_stats, singleton)
    advantage = _joined(episode, step, omega, joint)
    return Credit.of(batch, advantage, episode=episode, step=step, returns=returns, anchor=anchor)


@estimator("hgpo", needs=["state"])
def hgpo(
    batch: StepBatch,
    *,
    gamma: float = 1.0,
    omega: float = 0.0,
    normalize: Normalize = "mean_std",
    episode_stats: EpisodeStats = "trajectories",
    joint: Joint = "convex",
    singleton: Singleton = "zero",
    similarity: float | None = None,
    history: int = 2,
    alpha: float = 1.0,
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
        >>> from guerdon.credit import StepBatch, hgpo
        >>> batch = StepBatch.from_arrays(
        ...     [0, 0, 1, 0, 0, 0, 0, 0, 0], trajectory=list("aaabbbccc"), step=[0, 1, 2] * 3,
        ...     state=["s", "x", "y", "s", "x", "z", "t", "x", "z"])
        >>> credit = hgpo(batch, history=1, normalize="mean")
        >>> float(credit.step[1].round(3))  # 1/3 · (1 − 1/3) + 2/3 · (1 − 1/2)
        0.556

    Args:
        batch: A batch with ``state``.
        gamma: The discount γ, in [0, 1].
        omega: As in `gigpo`; with ``joint="convex"`` the weight of A_E, in [0, 1].
        normalize: ``mean_std``: F = σ + 1e-6. ``mean``: F = 1.
        episode_stats: As in `gigpo`.
        joint: As in `gigpo`.
        singleton: As in `gigpo`.
        similarity: As in `gigpo`.
        history: K, the largest number of states to look back at, in [0, 1000].
        alpha: α ≥ 0: how much more a deeper group weighs; 0 weighs all the same.

    Returns:
        The advantages with their parts; ``anchor`` is the group by the state alone.

    Raises:
        CreditError: An option is out of range, the batch has no states, or numbers are too large.
    """
    alpha = check_number("alpha", alpha, low=0, error=CreditError)
    returns = batch.returns(gamma)
    total, weights = np.zeros(len(returns)), np.zeros(len(returns))
    state = np.empty(0, np.int64)
    for depth, anchor in enumerate(batch.anchors(history=history, similarity=similarity)):
        state = state if depth else anchor
        # Relative to the deepest, so that no power overflows.
        weight = ((depth + 1) / (history + 1)) ** alpha * varies(returns, anchor)[anchor]
        total += weight * relative_to_group(returns, anchor, normalize=normalize)
        weights += weight
    step = np.divide(total, weights, out=np.zeros(len(returns)), where=weights > 0)
    episode = _episode_advantage(batch, normalize, episode_stats, singleton)
    advantage = _joined(episode, step, omega, joint)
    return Credit.of(batch, advantage, episode=episode, step=step, returns=returns, anchor=state)


@estimator("rtmc", needs=["state", "action"])
def rtmc(batch: StepBatch, *, gamma: float = 1.0, prior: float = 2.0) -> Credit:
    """Rollout-Tree Monte Carlo: what an action led to in a state, relative to the state's value.

    The trajectories of a group are a tree of the states and actions that they share. Over the first
    visit of each trajectory to a state s and action a (arXiv 2604.11037)::

        R_t     = r_t + γ R_{t+1}
        Q(s, a) = mean of R_t over the N(s, a) visits
        V(s)    = Σ_a N(s, a) Q(s, a) / N(s),  N(s) = Σ_a N(s, a)
        V'(s)   = (N(s) V(s) + n V_0) / (N(s) + n),  V_0 = mean score of the group
        A       = Q(s, a) − V'(s)

    R, Q, V and A are as "Back to the Definition: Estimating Step-Level Advantages via Trajectory
    Graphs" quotes them from the paper in its appendix A.4; first visits and V', equation 11, are as
    a public implementation of it describes them, with n = 2 and γ = 0.99. The paper itself was not
    at hand. That implementation optionally divides by the deviation within a group; this doesn't.

    V_0 isn't discounted: with γ < 1, an early step that no other shares has A < 0 even if its
    trajectory has the mean score. With n = 0 such a step has A = 0.

    Example:
        >>> from guerdon.credit import StepBatch, rtmc
        >>> batch = StepBatch.from_arrays(
        ...     [1.0, 0.0, 1.0], trajectory=list("abc"), step=[0] * 3, state=["hall"] * 3,
        ...     action=["left", "left", "right"])
        >>> rtmc(batch).advantage.round(3).tolist()  # 1/2 − 2/3, the same, 1 − 2/3
        [-0.167, -0.167, 0.333]

    Args:
        batch: A batch with ``state`` and ``action``.
        gamma: The discount γ, in [0, 1].
        prior: n, 0 or more: how many visits with the return V_0 are added to each state.

    Returns:
        The advantages; ``step`` is the same, ``episode`` is 0. ``anchor`` is the state.

    Raises:
        CreditError: An option is out of range, the batch has no states or no actions, or numbers
            are too large.
    """
    prior = check_number("prior", prior, low=0, error=CreditError)
    returns, state = batch.returns(gamma), next(batch.anchors())
    if batch.action is None:
        raise CreditError("the batch has no actions to compare; pass `action` when you make it")
    pairs = number(zip(state.tolist(), batch.action.tolist(), strict=True), len(state)).codes
    _, first = np.unique(pairs * len(batch.starts) + batch.trajectory, return_index=True)
    with np.errstate(over="ignore", invalid="ignore"):
        quality = np.bincount(pairs[first], returns[first]) / np.bincount(pairs[first])
        mean = np.bincount(batch.group_of, batch.scores) / np.bincount(batch.group_of)
        total = np.bincount(state[first], returns[first])[state] + prior * mean[batch.group]
        value = total / (np.bincount(state[first])[state] + prior)
        advantage = quality[pairs] - value
    return Credit.of(batch, advantage, step=advantage, returns=returns, anchor=state)


def _episode_advantage(
    batch: StepBatch, normalize: Normalize, episode_stats: str, singleton: str
) -> Floats:
    """A_E of each step, (M,)."""
    check_choice("episode_stats", episode_stats, ("trajectories", "rows"), error=CreditError)
    check_choice("singleton", singleton, ("zero", "raw"), error=CreditError)
    scores, groups, trajectory = batch.scores, batch.group_of, batch.trajectory
    if episode_stats == "rows":
        scores, groups = scores[trajectory], batch.group
        trajectory = np.arange(len(trajectory))
    advantage = relative_to_group(scores, groups, normalize=normalize)
    if singleton == "raw":
        advantage = np.where(np.bincount(groups)[groups] == 1, scores, advantage)
    return advantage[trajectory]


def _joined(episode: Floats, step: Floats, omega: float, joint: str) -> Floats:
    check_choice("joint", joint, ("sum", "convex"), error=CreditError)
    is_sum = joint == "sum"
    omega = check_number("omega", omega, low=0, high=np.inf if is_sum else 1, error=CreditError)
    with np.errstate(over="ignore", invalid="ignore"):
        return episode + omega * step if is_sum else omega * episode + (1.0 - omega) * step
