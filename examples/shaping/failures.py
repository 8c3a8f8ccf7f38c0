"""(c) A judge that fails: its failures as None and masked, beside failures turned into 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from examples.shaping.curves import SEEDS, Experiment, learn
from examples.shaping.worlds import Questions
from guerdon import Guarded, Rubric, WeightedSum
from guerdon.arena import Event, Method, Model
from guerdon.credit import Credit, StepBatch, grpo

__all__ = ["FAILING", "Judge", "masked", "masked_grpo", "run"]

UPDATES = 150
# Which of the answers the judge fails on. The uniform policy has 10 % of failures in both.
FAILING: Mapping[str, Mapping[str, float]] = {
    "any answer": {"reason": 0.1, "guess": 0.1, "refuse": 0.1},
    "reasoned answers": {"reason": 0.3},
}


class Judge(Rubric):
    """Scores an answer: 1 if it is reasoned, 0.85 if it is guessed; raises after a timeout."""

    def __init__(self) -> None:
        super().__init__()
        self.quality = WeightedSum([Event("reason"), Event("guess")], weights=[1.0, 0.85])

    def forward(self, action: Any, observation: Any) -> float:
        """Return the score of an answer.

        Raises:
            TimeoutError: The judge didn't answer in time.
        """
        if "timeout" in observation.events:
            raise TimeoutError("the judge didn't answer in time")
        return float(self.quality(action, observation))


def masked(model: Model, rubric: Rubric) -> Model:
    """Return the model with the rewards of a rubric, NaN where it has no score.

    Args:
        model: The model.
        rubric: The rubric, which may fail.
    """
    reward = np.full(model.next.shape, np.nan)
    for state, row in enumerate(model.outcomes):
        for action, outcomes in enumerate(row):
            for place, each in enumerate(outcomes):
                observation = SimpleNamespace(events=list(each.events), done=each.done)
                score = rubric.score(model.world.actions[action], observation).value
                reward[state, action, place] = np.nan if score is None else score
    return replace(model, reward=reward)


def masked_grpo(batch: StepBatch) -> Credit:
    """GRPO without the episodes in which a step has no reward.

    Args:
        batch: A batch in which such a reward is NaN.
    """
    valid = StepBatch.from_arrays(
        batch.rewards,
        trajectory=batch.trajectory,
        step=batch.turn,
        group=batch.group,
        valid=~np.isnan(batch.rewards),
    )
    return grpo(valid)


def run(*, seeds: Sequence[int] = SEEDS, updates: int = UPDATES) -> Experiment:
    """Compare them by the share of reasoned answers."""
    judged = Model.of(Questions({})).with_reward(Judge())
    curves = {"no failures": learn(Model.of(Questions({})), judged, updates=updates, seeds=seeds)}
    for where, timeouts in FAILING.items():
        model = Model.of(Questions(timeouts))
        zero = model.with_reward(Guarded(Judge(), on_error="zero"))
        curves[f"fails on {where}: masked"] = learn(
            model, masked(model, Judge()), updates=updates, seeds=seeds,
            method=Method("masked grpo", masked_grpo),
        )  # fmt: skip
        curves[f"fails on {where}: as 0"] = learn(model, zero, updates=updates, seeds=seeds)
    return Experiment("failures", "reasoned answers", curves)
