"""(d) The weights of a served reward change while policies are trained on it.

A server in a process of its own, an `EnvPool` on its address, and ``POST /config`` at one update.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from examples.arena.public_path import PublicTrainer
from examples.shaping.curves import LOOP, RATE, Experiment, Floats, learn
from examples.shaping.worlds import Road
from guerdon import EnvClient, EnvPool, HTTPEnvClient, RewardPipeline
from guerdon.arena import METHODS, Model, exact_values
from guerdon.arena.learners import softmax

__all__ = ["CHANGE", "REWARD", "run", "train_served"]

HERE = Path(__file__).parent
REWARD = HERE / "live_config.yaml"
# Training that plays on a server takes its time.
SEEDS = range(100, 105)
UPDATES = 60
CHANGE_AT = 15
CHANGE = {"weights": {"left_town": 0.2, "right_town": 1.0}, "by": "examples.shaping"}


async def train_served(
    model: Model, *, seeds: Sequence[int], updates: int
) -> tuple[Floats, dict[str, Any]]:
    """Train a policy for each seed on one server, and change its reward for all of them.

    Args:
        model: The model of the served world, whose expected return is the measure.
        seeds: R seeds.
        updates: U.

    Returns:
        The curves, (R, U + 1), and the entry of the change in the server's audit log.
    """
    trainers = [
        PublicTrainer(model, METHODS["grpo"], seed=seed, learning_rate=RATE, groups=LOOP.groups)
        for seed in seeds
    ]
    curves = np.empty((len(trainers), updates + 1))
    world = f"{HERE / 'worlds.py'}:road"
    served: EnvClient[Any, Any, Any] = EnvClient.from_module(world, config=REWARD)
    async with served, HTTPEnvClient(served.base_url) as server:
        async with EnvPool(served.base_url, n=LOOP.episodes) as pool:
            for update in range(updates):
                if update == CHANGE_AT:
                    await server.update_config(CHANGE)
                for number, trainer in enumerate(trainers):
                    curves[number, update] = _value(trainer)
                    await trainer.update(pool)
        [change] = await server.get("/config/audit")
    curves[:, updates] = [_value(trainer) for trainer in trainers]
    return curves, change


def _value(trainer: PublicTrainer) -> float:
    return float(exact_values(trainer.model, softmax(trainer.logits)).value)


def run(*, seeds: Sequence[int] = SEEDS, updates: int = UPDATES) -> Experiment:
    """Compare the changed reward with the first one by how often policies reach the right town."""
    model = Model.of(Road())
    with RewardPipeline.of(REWARD) as pipeline:
        first = model.with_reward(pipeline.make())
    changed, _ = asyncio.run(train_served(model, seeds=seeds, updates=updates))
    curves = {
        "never changed": learn(model, first, updates=updates, seeds=seeds),
        f"changed at update {CHANGE_AT}": changed,
    }
    return Experiment("live_config", "episodes that reach the right town", curves)
