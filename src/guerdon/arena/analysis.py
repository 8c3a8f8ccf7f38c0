"""Estimators on frozen policies: how far from the exact gradient, and how noisy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from guerdon.arena.episodes import episode_seeds, play
from guerdon.arena.exact import (
    exact_gradient,
    exact_values,
    optimal_policy,
    optimal_value,
    uniform_policy,
)
from guerdon.arena.methods import Method
from guerdon.arena.model import Floats, Model
from guerdon.arena.training import Loop, advantages, policy_gradient, scaled

__all__ = ["Quality", "frozen_policy", "quality"]

# Batches that only train the critic of a method that has one.
WARM_UP = 20
# Policies that play at once.
RUNS = 20


@dataclass(frozen=True, slots=True)
class Quality:
    """An estimator on a frozen policy; NaN where the estimator gave no advantage to measure.

    Attributes:
        bias: The sine of the angle between the expected update and the exact gradient, in [0, 1]:
            0 if the estimator is right on average, up to a factor.
        variance: The variance of an update, relative to the square of the expected one.
        signal_to_noise: Its inverse.
        correlation: The correlation of the steps' advantages with the exact ones.
        coverage: The share of steps with an advantage other than 0.
    """

    bias: float
    variance: float
    signal_to_noise: float
    correlation: float
    coverage: float


def frozen_policy(model: Model, share: float) -> Floats:
    """Return a softmax policy whose return is a share of the optimum, (S, A).

    It mixes the uniform policy with one that takes the action of each state that is optimal at most
    steps: where there is time to waste, many actions are.

    Args:
        model: The model.
        share: 0 for the return of the uniform policy, towards 1 for the optimum.
    """
    uniform = uniform_policy(model)
    votes = optimal_policy(model).sum(0)
    best = (votes >= votes.max(-1, keepdims=True) - 1e-9).astype(np.float64)
    best /= best.sum(-1, keepdims=True)
    low, high = exact_values(model, uniform).value, optimal_value(model)
    wanted = low + share * (high - low)
    least, most = 0.0, 1.0
    for _ in range(50):
        middle = (least + most) / 2
        mixed = (1 - middle) * uniform + middle * best
        least, most = (
            (middle, most) if exact_values(model, mixed).value < wanted else (least, middle)
        )
    policy: Floats = (1 - least) * uniform + least * best
    return policy


def quality(
    model: Model, method: Method, policy: Floats, *, batches: int, seed: int, loop: Loop
) -> Quality:
    """Measure an estimator on a policy that doesn't learn.

    Args:
        model: The model.
        method: The method.
        policy: π(a|s), (S, A).
        batches: About how many batches to play.
        seed: Determines the episodes.
        loop: The size of a batch, and whether it is scaled.
    """
    seeds = np.arange(RUNS, dtype=np.uint64) + np.uint64(seed)
    policies = np.broadcast_to(policy, (RUNS, *policy.shape))
    exact = exact_values(model, policy).advantage
    critic = np.zeros((RUNS, len(model.states)))
    warm_up = WARM_UP if method.needs_critic else 0
    updates, pairs = [], []
    for number in range(warm_up + -(-batches // RUNS)):
        episodes = play(model, policies, episode_seeds(seeds, number, loop.episodes))
        advantage = advantages(episodes, policies, method, critic, loop)
        if number < warm_up:
            continue
        right = exact[episodes.turn, episodes.state, episodes.action]
        pairs.append((advantage, right))
        weight = scaled(advantage, episodes) if loop.scale else advantage
        updates.append(policy_gradient(policies, episodes, weight))
    advantage, right = (np.concatenate(each) for each in zip(*pairs, strict=True))
    found = np.concatenate(updates).reshape(-1, policy.size)
    return Quality(
        **_against(found, exact_gradient(model, policy).ravel()),
        correlation=_correlation(advantage, right),
        coverage=float((advantage != 0).mean()),
    )


def _against(updates: Floats, exact: Floats) -> Mapping[str, float]:
    """Compare updates, (N, P), with the exact gradient, (P,).

    The squared length of the mean of N updates exceeds that of the expected update by the variance
    divided by N, which is subtracted.
    """
    mean = updates.mean(0)
    variance = float(((updates - mean) ** 2).sum() / (len(updates) - 1))
    signal = max(float(mean @ mean) - variance / len(updates), 0.0)
    length = float(exact @ exact)
    if signal == 0 or length == 0:
        return {"bias": np.nan, "variance": np.nan, "signal_to_noise": 0.0}
    cosine = min(float(mean @ exact) / np.sqrt(signal * length), 1.0)
    return {
        "bias": float(np.sqrt(1 - cosine**2)) if cosine > 0 else 1.0,
        "variance": variance / signal,
        "signal_to_noise": signal / variance if variance else np.inf,
    }


def _correlation(found: Floats, right: Floats) -> float:
    if np.ptp(found) == 0 or np.ptp(right) == 0:
        return np.nan
    return float(np.corrcoef(found, right)[0, 1])
