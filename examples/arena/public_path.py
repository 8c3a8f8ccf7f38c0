"""A training loop as a user writes it: pool, worker, aligner, `apply_credit`, policy gradient.

`guerdon.arena.train` plays in tables and is a hundred times as fast. Both take the same updates on
the same seed, which a test shows for every method.

    python -m examples.arena.public_path --world lock --method gigpo
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from guerdon import EnvPool, EvaluateResult, RLDataAligner, RLRolloutWorker, StepOutput
from guerdon.arena import METHODS, WORLDS, Method, Model, WorldEnvironment
from guerdon.arena.chance import uniform
from guerdon.arena.episodes import episode_seeds
from guerdon.arena.exact import exact_values, uniform_policy
from guerdon.arena.learners import softmax
from guerdon.credit import ESTIMATORS
from guerdon.rollouts import AlignedRollout, PolicyOutput, RolloutRecord, apply_credit

Floats = NDArray[np.float64]


class TablePolicy:
    """Draws the actions of one episode from a table of probabilities.

    Args:
        model: The model of the world.
        table: π(a|s), (S, A).
        seed: The seed of the episode.
        values: The critic's value of each state, (S,).
    """

    def __init__(self, model: Model, table: Floats, seed: int, values: Floats) -> None:
        self._actions, self._seed, self._values = model.world.actions, seed, values
        self._chosen = np.cumsum(table, -1)
        self._chosen[..., -1] = 1.0

    async def get_action(
        self, observation: Any, available_tools_specs: Any = None, *, turn: int = 0
    ) -> PolicyOutput:
        """Draw an action for the state that the observation names."""
        number = int((uniform(self._seed, 2 * turn) >= self._chosen[observation.state]).sum())
        value = float(self._values[observation.state])
        return PolicyOutput({"action": self._actions[number]}, value_estimate=value)


class PoolSlot:
    """A slot of a pool as an environment, which `RLRolloutWorker` plays."""

    def __init__(self, pool: EnvPool, slot: int) -> None:
        self._pool, self._slot = pool, slot

    async def reset(self, seed: int | None = None, **kwargs: Any) -> Any:
        """Begin an episode."""
        return (await self._pool.reset_batch([seed], [self._slot]))[0]

    async def step(self, action: Any) -> Any:
        """Take an action."""
        actions = [action if slot == self._slot else None for slot in range(self._pool.n)]
        return (await self._pool.step_batch(actions))[self._slot]


@dataclass
class Update:
    """An update of the policy.

    Attributes:
        rollouts: The aligned rollouts with their advantages.
        logits: The policy after it, (S, A).
    """

    rollouts: list[AlignedRollout]
    logits: Floats


class PublicTrainer:
    """Trains a table of logits with the credit of one method.

    Args:
        model: The model of the world.
        method: The method, which must be a registered estimator.
        seed: The seed of the run.
        learning_rate: The step size.
        groups: The number of groups of an update.
        group_size: The number of episodes of a group.
        critic_rate: How far the critic moves in an update.
        state_key: What makes two steps the same state; see `apply_credit`.
    """

    def __init__(
        self,
        model: Model,
        method: Method,
        *,
        seed: int,
        learning_rate: float,
        groups: int = 4,
        group_size: int = 8,
        critic_rate: float = 0.3,
        state_key: Any = "last",
    ) -> None:
        self.model, self.method, self.seed, self.rate = model, method, seed, learning_rate
        self.episodes, self.group_size = groups * group_size, group_size
        self.critic_rate, self.state_key = critic_rate, state_key
        self.estimator = next(
            name for name in ESTIMATORS.names() if ESTIMATORS[name] is method.estimate
        )
        self.logits = np.zeros(model.next.shape[:2])
        self.critic = np.zeros(len(model.states))
        self.updates = 0

    async def update(self, pool: EnvPool) -> Update:
        """Play a batch of episodes in the slots of a pool, and train on it."""
        records = await self._play(pool)
        results = [self._score(record) for record in records]
        steps = {record.id: record.steps for record in records}
        aligned = RLDataAligner(strict=True).align_data_for_rl_processing(
            results, steps, list(steps)
        )
        apply_credit(
            aligned,
            self.estimator,
            state_key=self.state_key,
            **self.method.options_for(self.model),
        )
        self._ascend(aligned.rollouts)
        if self.method.needs_critic:
            self._train_critic(aligned.rollouts)
        self.updates += 1
        return Update(aligned.rollouts, self.logits)

    async def _play(self, pool: EnvPool) -> list[RolloutRecord]:
        table = softmax(self.logits)
        seeds = episode_seeds(self.seed, self.updates, self.episodes).tolist()
        playing = []
        for number, seed in enumerate(seeds):
            worker = RLRolloutWorker(
                PoolSlot(pool, number),
                TablePolicy(self.model, table, seed, self.critic),
                max_steps=self.model.horizon,
            )
            group = {"group": number // self.group_size}
            playing.append(worker.run(group, seed=seed, rollout_id=f"{number:05}"))
        return await asyncio.gather(*playing)

    def _score(self, record: RolloutRecord) -> EvaluateResult:
        """Return the score of an episode, its components, and the base reward of each step."""
        rewards = np.array(record.env_rewards, np.float64)
        counts = dict.fromkeys(self.model.weights, 0.0)
        for step in record.steps:
            components = step.step_info["env_metadata"]["reward_components"]
            for name in counts:
                counts[name] += components[name]
        base = self._base_rewards(record, rewards)
        return EvaluateResult(
            score=float(rewards.sum()),
            metrics=counts,
            step_outputs=[
                StepOutput(step_index=turn, base_reward=reward)
                for turn, reward in enumerate(base.tolist())
            ],
        )

    def _base_rewards(self, record: RolloutRecord, rewards: Floats) -> Floats:
        """Return the rewards, or what a judge expects who knows the uniform policy alone."""
        if self.method.rewards == "world":
            return rewards
        values = exact_values(self.model, uniform_policy(self.model)).v
        to_come = [values[turn, _state(step)] for turn, step in enumerate(record.steps)]
        total = np.cumsum(rewards)
        before, after = total - rewards + to_come, total + np.append(to_come[1:], 0.0)
        base: Floats = after if self.method.rewards == "score" else after - before
        return base

    def _ascend(self, rollouts: Sequence[AlignedRollout]) -> None:
        rows = [
            (_state(step), self._action(step), step.advantage or 0.0)
            for rollout in rollouts
            for step in rollout.steps
        ]
        scale = np.sqrt(np.mean([advantage**2 for *_, advantage in rows])) or 1.0
        table, gradient = softmax(self.logits), np.zeros_like(self.logits)
        for state, action, advantage in rows:
            gradient[state] -= table[state] * advantage / scale
            gradient[state, action] += advantage / scale
        self.logits = self.logits + self.rate * gradient / len(rollouts)

    def _action(self, step: Any) -> int:
        return list(self.model.world.actions).index(step.action_taken["action"])

    def _train_critic(self, rollouts: Sequence[AlignedRollout]) -> None:
        errors: dict[int, list[float]] = {}
        for step in (step for rollout in rollouts for step in rollout.steps):
            target = (step.return_to_go or 0.0) - self.critic[_state(step)]
            errors.setdefault(_state(step), []).append(target)
        for state, of_state in errors.items():
            self.critic[state] += self.critic_rate * np.mean(of_state)


def _state(step: Any) -> int:
    return int(step.observation_data["state"])


async def main() -> None:
    """Train on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", default="lock")
    parser.add_argument("--method", default="gigpo")
    parser.add_argument("--updates", type=int, default=40)
    parser.add_argument("--learning-rate", type=float, default=4.0)
    chosen = parser.parse_args()
    model = Model.of(WORLDS[chosen.world]())
    trainer = PublicTrainer(
        model, METHODS[chosen.method], seed=1, learning_rate=chosen.learning_rate
    )
    async with EnvPool(partial(WorldEnvironment, model), n=trainer.episodes) as pool:
        for number in range(chosen.updates):
            if number % 10 == 0:
                value = exact_values(model, softmax(trainer.logits)).value
                print(f"update {number}: expected return {value:.3f}")
            await trainer.update(pool)
    print(f"after {chosen.updates}: {exact_values(model, softmax(trainer.logits)).value:.3f}")


if __name__ == "__main__":
    asyncio.run(main())
