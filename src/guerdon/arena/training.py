"""`train`: one loop for all methods, so that the credit alone differs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Literal

import numpy as np

from guerdon._validation import check_choice, check_integer, check_number
from guerdon.arena.episodes import Episodes, episode_seeds, play
from guerdon.arena.exact import exact_values
from guerdon.arena.learners import Learner, NetworkLearner, TabularLearner, softmax
from guerdon.arena.methods import Method
from guerdon.arena.model import Floats, Integers, Model
from guerdon.errors import InvalidArgumentError

__all__ = ["Loop", "Training", "train"]

LEARNERS = {"tabular": TabularLearner, "network": NetworkLearner}


@dataclass(frozen=True, slots=True)
class Loop:
    """The parts of the loop that are the same for all methods.

    Example:
        >>> from guerdon.arena import Loop
        >>> Loop(groups=2).episodes
        16

    Attributes:
        groups: The number of groups of an update.
        group_size: The number of episodes of a group.
        learner: ``tabular``, a table of logits, or ``network``, a small network.
        scale: Whether advantages are divided by their root mean square in the batch, so that
            methods differ in the direction of an update and not in its size.
        clip: The ε of PPO's clipped objective, in (0, 1); None doesn't clip.
        epochs: How often a batch is used; more than 1 requires `clip`.
        critic_rate: How far the values of a tabular critic move to the mean return of a state in an
            update, in (0, 1].
    """

    groups: int = 4
    group_size: int = 8
    learner: Literal["tabular", "network"] = "tabular"
    scale: bool = True
    clip: float | None = None
    epochs: int = 1
    critic_rate: float = 0.3

    def __post_init__(self) -> None:
        check_integer("groups", self.groups, low=1)
        check_integer("group_size", self.group_size, low=1)
        check_choice("learner", self.learner, tuple(LEARNERS))
        check_integer("epochs", self.epochs, low=1)
        check_number("critic_rate", self.critic_rate, low=0, high=1, low_open=True)
        if self.clip is not None:
            check_number("clip", self.clip, low=0, high=1, low_open=True)
        elif self.epochs > 1:
            raise InvalidArgumentError(
                f"`clip` must be given if `epochs` is more than 1, got epochs={self.epochs}"
            )

    @property
    def episodes(self) -> int:
        """The number of episodes of an update."""
        return self.groups * self.group_size


@dataclass(frozen=True, slots=True, eq=False)
class Training:
    """How R policies learned in U updates.

    Attributes:
        returns: The exact expected return before each update and at the end, (R, U + 1).
        steps: The number of environment steps up to the end of each update, (R, U).
        coverage: The share of steps with an advantage other than 0 in each update, (R, U).
        policies: The policies at the end, (R, S, A).
        seconds: The time of an update of one policy.
    """

    returns: Floats
    steps: Integers
    coverage: Floats
    policies: Floats
    seconds: float


def train(
    model: Model,
    method: Method,
    *,
    seeds: Sequence[int],
    learning_rate: float | Sequence[float],
    updates: int,
    loop: Loop | None = None,
    reward: Callable[[int], Model] | None = None,
) -> Training:
    """Train R policies of one method, all in step; each has a seed and a learning rate of its own.

    A policy that is trained alone takes the same updates.

    Example:
        >>> from guerdon.arena import METHODS, Crossroads, Model, train
        >>> training = train(Model.of(Crossroads()), METHODS["grpo"], seeds=[1, 2],
        ...                  learning_rate=0.5, updates=40)
        >>> training.returns.shape, bool((training.returns[:, -1] > 0.8).all())
        ((2, 41), True)

    Args:
        model: The world, whose rewards are the measure.
        method: Computes the advantages.
        seeds: R seeds, each in [0, 2⁵³).
        learning_rate: The step size, or R of these.
        updates: U, at least 1.
        loop: The rest of the loop.
        reward: Returns the model whose rewards an update is trained on, by its number; by default
            the measure itself.

    Raises:
        CreditError: The estimator returned something else than finite advantages.
    """
    loop = loop or Loop()
    check_integer("updates", updates, low=1)
    seed = np.array(seeds, np.uint64)
    rates = np.broadcast_to(np.asarray(learning_rate, np.float64), seed.shape)
    learner: Learner = LEARNERS[loop.learner](model, seed)
    critic = np.zeros((len(seed), len(model.states)))
    returns = np.empty((len(seed), updates + 1))
    steps, coverage = np.zeros((len(seed), updates), np.int64), np.zeros((len(seed), updates))
    began = perf_counter()
    for update in range(updates):
        policies = softmax(learner.logits)
        returns[:, update] = exact_values(model, policies).value
        trained = model if reward is None else reward(update)
        episodes = play(trained, policies, episode_seeds(seed, update, loop.episodes))
        advantage = advantages(episodes, policies, method, critic, loop)
        steps[:, update] = np.bincount(episodes.run, minlength=len(seed))
        coverage[:, update] = np.bincount(episodes.run, advantage != 0) / steps[:, update]
        _ascend(learner, episodes, policies, advantage, rates, loop)
    policies = softmax(learner.logits)
    returns[:, updates] = exact_values(model, policies).value
    return Training(
        returns=returns,
        steps=np.cumsum(steps, 1),
        coverage=coverage,
        policies=policies,
        seconds=(perf_counter() - began) / (updates * len(seed)),
    )


def advantages(
    episodes: Episodes, policies: Floats, method: Method, critic: Floats, loop: Loop
) -> Floats:
    """Return the advantage of every step, (M,), and train the critic if the method has one."""
    model, run = episodes.model, episodes.run
    if method.estimate is None:
        exact = exact_values(model, policies).advantage
        return exact[run, episodes.turn, episodes.state, episodes.action]
    advantage, returns = np.empty(len(run)), np.empty(len(run))
    values = critic[run, episodes.state] if method.needs_critic else None
    rewards, bounds = method.base_rewards(episodes), episodes.run_bounds()
    for number in range(len(policies)):
        batch = episodes.batch(number, group_size=loop.group_size, rewards=rewards, values=values)
        credit = method.credit(batch, model)
        mine = slice(bounds[number], bounds[number + 1])
        advantage[mine], returns[mine] = credit.advantage, credit.returns
    if values is not None:
        place = run * critic.shape[1] + episodes.state
        visits = np.bincount(place, minlength=critic.size)
        error = np.bincount(place, returns - values, critic.size) / np.maximum(visits, 1)
        critic += loop.critic_rate * error.reshape(critic.shape)
    return advantage


def _ascend(
    learner: Learner,
    episodes: Episodes,
    policies: Floats,
    advantage: Floats,
    rates: Floats,
    loop: Loop,
) -> None:
    """Follow the gradient of the (clipped) objective, summed over steps, by episode."""
    run, state, action = episodes.run, episodes.state, episodes.action
    if loop.scale:
        advantage = scaled(advantage, episodes)
    for epoch in range(loop.epochs):
        current = softmax(learner.logits) if epoch else policies
        weight = advantage
        if loop.clip is not None:
            ratio = current[run, state, action] / policies[run, state, action]
            outside = np.where(advantage > 0, ratio > 1 + loop.clip, ratio < 1 - loop.clip)
            weight = np.where(outside, 0.0, ratio * advantage)
        learner.ascend(policy_gradient(current, episodes, weight), rates)


def scaled(advantage: Floats, episodes: Episodes) -> Floats:
    """Return advantages divided by their root mean square in the batch of each policy, (M,)."""
    run = episodes.run
    square = np.bincount(run, advantage**2) / np.bincount(run)
    result: Floats = advantage / np.sqrt(np.where(square > 0, square, 1.0))[run]
    return result


def policy_gradient(policies: Floats, episodes: Episodes, weight: Floats) -> Floats:
    """Return Σ w ∇ log π(a|s) over the steps of each policy, by episode, (R, S, A)."""
    runs, states, actions = policies.shape
    row = episodes.run * states + episodes.state
    taken = np.bincount(row * actions + episodes.action, weight, policies.size)
    visited = np.bincount(row, weight, runs * states)
    gradient = taken.reshape(policies.shape) - policies * visited.reshape(runs, states, 1)
    result: Floats = gradient / episodes.per_run
    return result
