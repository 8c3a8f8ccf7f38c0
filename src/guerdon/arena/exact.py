"""Exact values, advantages and gradients of policies in a `Model`, by dynamic programming.

Every function takes one policy of shape (S, A) or many of shape (…, S, A), and returns results with
the same leading axes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from guerdon.arena.model import Model

__all__ = [
    "ExactValues",
    "exact_gradient",
    "exact_values",
    "occupancy",
    "optimal_policy",
    "optimal_value",
    "uniform_policy",
]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class ExactValues:
    """The values of a policy at each step of an episode, which is cut off after H steps.

    Attributes:
        q: Q_t(s, a), the expected return after an action in step t, (…, H, S, A).
        v: V_t(s) = Σ_a π(a|s) Q_t(s, a), (…, H, S).
    """

    q: Floats
    v: Floats

    @property
    def advantage(self) -> Floats:
        """A_t(s, a) = Q_t(s, a) − V_t(s), (…, H, S, A)."""
        return self.q - self.v[..., None]

    @property
    def value(self) -> Floats:
        """The expected return of an episode, (…)."""
        value: Floats = self.v[..., 0, 0]
        return value


def uniform_policy(model: Model) -> Floats:
    """Return the policy that takes every action equally often, (S, A)."""
    states, actions = model.next.shape[:2]
    return np.full((states, actions), 1 / actions)


def exact_values(model: Model, policy: Floats) -> ExactValues:
    """Return the values of a policy, by backward induction.

    Q_t(s, a) = E[r + V_{t+1}(s') (1 − done)],  V_t(s) = Σ_a π(a|s) Q_t(s, a),  V_H = 0.

    Example:
        >>> from guerdon.arena import Crossroads, Model, exact_values, uniform_policy
        >>> model = Model.of(Crossroads())
        >>> values = exact_values(model, uniform_policy(model))
        >>> float(values.value), values.advantage[0, 0].tolist()
        (0.5, [0.25, -0.25])

    Args:
        model: The model.
        policy: π(a|s), (…, S, A); rows add up to 1.
    """
    q = _backwards(model, policy)
    return ExactValues(q, (q * policy[..., None, :, :]).sum(-1))


def _backwards(model: Model, policy: Floats | None) -> Floats:
    """Return Q_t(s, a), (…, H, S, A); None takes the best action everywhere."""
    # The states come first: gathering whole rows is fastest.
    table = None if policy is None else np.moveaxis(policy, (-2, -1), (0, 1))
    leading = () if table is None else table.shape[2:]
    going_on = model.probability * ~model.done
    expected = model.expected_reward.reshape(*model.next.shape[:2], *(1 for _ in leading))
    q = np.empty((model.horizon, *model.next.shape[:2], *leading))
    later = np.zeros((len(model.states), *leading))
    for step in reversed(range(model.horizon)):
        q[step] = expected
        for place in range(model.next.shape[2]):
            weight = going_on[:, :, place].reshape(expected.shape)
            q[step] += weight * later[model.next[:, :, place]]
        later = q[step].max(1) if table is None else (q[step] * table).sum(1)
    return np.moveaxis(q, (0, 1, 2), (-3, -2, -1))


def optimal_policy(model: Model) -> Floats:
    """Return the best action of each step and state as a policy, (H, S, A); ties are shared."""
    q = _backwards(model, None)
    best = q >= q.max(-1, keepdims=True) - 1e-12
    policy: Floats = best / best.sum(-1, keepdims=True)
    return policy


def optimal_value(model: Model) -> float:
    """Return the highest expected return of any policy, which may depend on the step."""
    return float(_backwards(model, None)[0, 0].max())


def occupancy(model: Model, policy: Floats) -> Floats:
    """Return the probability that step t is taken in state s, (…, H, S)."""
    states, actions, places = model.next.shape
    flat = policy.reshape(-1, states, actions)
    visits = np.zeros((len(flat), model.horizon, states))
    visits[:, 0, 0] = 1.0
    going_on = model.probability * ~model.done
    rows = np.arange(len(flat))[:, None] * states
    for step in range(1, model.horizon):
        taken = visits[:, step - 1, :, None] * flat
        after = np.zeros(len(flat) * states)
        for place in range(places):
            mass = taken * going_on[:, :, place]
            target = rows[:, :, None] + model.next[:, :, place]
            after += np.bincount(target.ravel(), mass.ravel(), len(after))
        visits[:, step] = after.reshape(len(flat), states)
    return visits.reshape(*policy.shape[:-2], model.horizon, states)


def exact_gradient(model: Model, policy: Floats) -> Floats:
    """Return the gradient of the expected return by the logits of a softmax policy, (…, S, A).

    ∂J/∂θ(s, a) = Σ_t d_t(s) π(a|s) A_t(s, a), with the probability d_t(s) that step t is taken in
    s: the policy gradient theorem (Sutton et al., NIPS 1999).

    Args:
        model: The model.
        policy: π(a|s), (…, S, A).
    """
    weighted = occupancy(model, policy)[..., None] * exact_values(model, policy).advantage
    gradient: Floats = policy * weighted.sum(-3)
    return gradient
