"""(b) A gate beside weighted sums, on a reward that can be hacked.

Tests that pass are rewarded, and so are tests that were kept. In a weighted sum, one can make up
for the other; behind a gate it can't.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from examples.shaping.curves import SEEDS, Experiment, learn
from examples.shaping.worlds import Repair
from guerdon import Gate, Rubric, Sequential, WeightedSum
from guerdon.arena import Event, Model

__all__ = ["REWARDS", "run"]

UPDATES = 200


def _sum(kept: float) -> Rubric:
    return WeightedSum([Event("passed"), Event("kept")], weights=[1.0, kept])


REWARDS: Mapping[str, Rubric] = {
    "passed + 0.25 kept": _sum(0.25),
    "passed + 0.5 kept": _sum(0.5),
    "passed + kept": _sum(1.0),
    "Sequential(Gate(kept), passed)": Sequential(Gate(Event("kept")), Event("passed")),
}


def run(*, seeds: Sequence[int] = SEEDS, updates: int = UPDATES) -> Experiment:
    """Compare them by how often the tests are deleted, and the program isn't repaired."""
    model = Model.of(Repair())
    hacked = model.with_reward(Event("hacked"))
    curves, repaired = {}, {}
    for label, rubric in REWARDS.items():
        trained = model.with_reward(rubric)
        curves[label] = learn(hacked, trained, updates=updates, seeds=seeds)
        repaired[f"repaired: {label}"] = learn(model, trained, updates=updates, seeds=seeds)
    return Experiment("gate", "episodes that hack the tests", curves, repaired)
