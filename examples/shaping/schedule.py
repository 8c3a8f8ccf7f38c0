"""(a) A shaping reward that a schedule fades out, beside none and one that never ends.

The reward is a file, and the rewards of an update are those of its rubrics at that training step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from examples.shaping.curves import SEEDS, Experiment, learn
from examples.shaping.worlds import Dials
from guerdon import RewardPipeline
from guerdon.arena import Model
from guerdon.config import RewardRuntime

__all__ = ["CHANGES", "REWARD", "rewards", "run"]

REWARD = Path(__file__).with_name("schedule.yaml")
UPDATES = 200
# What is compared, as changes of the file.
CHANGES: Mapping[str, Mapping[str, Any]] = {
    "no shaping": {"weights": {"click": 0.0}},
    "shaping that fades out": {},
    "shaping that never ends": {"schedules": {"click": None}},
}


def rewards(model: Model, change: Mapping[str, Any]) -> Callable[[int], Model]:
    """Return a function that returns the model with the rewards of an update, by its number.

    Args:
        model: The model of the world.
        change: A change of the file, as `RewardRuntime.update` takes it.
    """
    with RewardPipeline.of(REWARD) as pipeline:
        rubric = pipeline.make()
        runtime = RewardRuntime(pipeline.make(), config=pipeline.config)
    runtime.update(change)

    def reward(update: int) -> Model:
        runtime.update({"training_step": update})
        runtime.apply(rubric)
        return model.with_reward(rubric)

    return reward


def run(*, seeds: Sequence[int] = SEEDS, updates: int = UPDATES) -> Experiment:
    """Compare them by how often the lock opens."""
    model = Model.of(Dials())
    curves = {
        label: learn(model, rewards(model, change), updates=updates, seeds=seeds)
        for label, change in CHANGES.items()
    }
    return Experiment("schedule", "episodes in which the lock opens", curves)
