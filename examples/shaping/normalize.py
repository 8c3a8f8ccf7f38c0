"""(e) One network learns two tasks whose rewards have different scales.

With and without `RewardNormalizer`, for RLOO, whose advantages keep the scale of the rewards, and
for GRPO, which divides them by the deviation of each task's scores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from examples.shaping.curves import SEEDS, Experiment, Floats
from examples.shaping.worlds import Tasks
from guerdon import RewardNormalizer, WeightedSum
from guerdon.arena import Event, Loop, Method, Model, train
from guerdon.credit import Credit, StepBatch, grpo, rloo

__all__ = ["TaskCredit", "run"]

UPDATES = 150
# All states share the network's weights, so that its steps are smaller than those of a table.
RATE = 0.05
LOOP = Loop(groups=2, learner="network")


class TaskCredit:
    """An estimator on episodes of several tasks: each task is a group.

    Args:
        model: The model of `Tasks`.
        estimate: The estimator, which reads scores.
        normalizer: Normalizes the scores of each task; None leaves them.
    """

    def __init__(
        self,
        model: Model,
        estimate: Callable[[StepBatch], Credit],
        normalizer: RewardNormalizer | None = None,
    ) -> None:
        states: Any = model.states
        self._tasks = np.array([task for task, _ in states])
        self._estimate, self._normalizer = estimate, normalizer

    def __call__(self, batch: StepBatch) -> Credit:
        """Return the credit of a batch."""
        assert batch.state is not None
        last = batch.state[batch.starts + batch.lengths - 1]
        task = self._tasks[last % len(self._tasks)]
        scores = batch.scores
        if self._normalizer is not None:
            scores = self._normalizer(scores, env_id=task.tolist())
        by_task = StepBatch.from_arrays(
            np.full(batch.size, np.nan),  # the scores are what counts
            trajectory=batch.trajectory,
            step=batch.turn,
            group=task[batch.trajectory],
            episode_score=scores,
        )
        return self._estimate(by_task)


def run(*, seeds: Sequence[int] = SEEDS, updates: int = UPDATES) -> Experiment:
    """Compare them by how many actions of the task of the small rewards are right."""
    model = Model.of(Tasks())

    def learned(task: str, estimate: Callable[[StepBatch], Credit], normalizes: bool) -> Floats:
        # Half of the episodes have the task, and each has four actions.
        measure = model.with_reward(WeightedSum([Event(task)], weights=[0.5]))
        curves = []
        for seed in seeds:  # each with a normalizer of its own
            normalizer = RewardNormalizer() if normalizes else None
            method = Method("by task", TaskCredit(model, estimate, normalizer))
            curves.append(
                train(
                    measure, method, seeds=[seed], learning_rate=RATE, updates=updates, loop=LOOP,
                    reward=lambda update: model,
                ).returns
            )  # fmt: skip
        return np.concatenate(curves)

    curves = {
        "small rewards, RLOO": learned("small", rloo, normalizes=False),
        "small rewards, RLOO, normalized": learned("small", rloo, normalizes=True),
        "small rewards, GRPO": learned("small", grpo, normalizes=False),
        "large rewards, RLOO": learned("large", rloo, normalizes=False),
        "large rewards, RLOO, normalized": learned("large", rloo, normalizes=True),
    }
    return Experiment("normalize", "right actions of a task", curves)
