"""`GymnasiumVectorEnv` of 64: its steps compared with `step_batch` of such a pool.

Both get the numbers that a policy chose: the pool as the fields of its actions.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from pydantic import Field

from benchmarks.timing import Findings, Measured, take_turns
from guerdon import Action, Environment, EnvPool, Observation, Rubric, State
from guerdon.integrations.gymnasium import GymnasiumVectorEnv

SLOTS = 64
ROUNDS = 25
BATCHES = 50


class Push(Action):
    """A direction."""

    direction: int = Field(ge=0, le=3)


class Place(Observation):
    """A position, and what is around it."""

    row: int = Field(default=0, ge=0, le=9)
    column: int = Field(default=0, ge=0, le=9)
    distance: float = Field(default=0.0, ge=0, le=18)


class Nearer(Rubric):
    """The position is near the origin."""

    def forward(self, action: Push, observation: Place) -> float:
        return 1.0 - observation.distance / 18


class Grid(Environment[Push, Place, State]):
    """A walk on a grid without an end."""

    state = State()

    def __init__(self) -> None:
        super().__init__(rubric=Nearer())
        self.row = self.column = 0

    def reset(self, seed: int | None = None) -> Place:
        self.row = self.column = (seed or 0) % 10
        return Place(row=self.row, column=self.column)

    def step(self, action: Push) -> Place:
        self.row = min(9, max(0, self.row + (0, 1, 0, -1)[action.direction]))
        self.column = min(9, max(0, self.column + (1, 0, -1, 0)[action.direction]))
        distance = float(self.row + self.column)
        return self.score(action, Place(row=self.row, column=self.column, distance=distance))


def run() -> Findings:
    """Run the benchmark."""
    line = Measured(
        f"GymnasiumVectorEnv of {SLOTS} in threads",
        "step_batch of the pool",
        1 / 0.8,
        per=SLOTS * BATCHES,
        unit="slot",
    )
    choices = np.random.default_rng(7).integers(4, size=(BATCHES, SLOTS))
    line.pairs = take_turns(_vector(choices), _pool(choices), ROUNDS)
    assert line.ratio is not None
    return Findings(
        [line], [f"GymnasiumVectorEnv of {SLOTS}: {1 / line.ratio:.2f}× of step_batch's steps/s"]
    )


def _vector(choices: Any) -> Callable[[], float]:
    def stepped() -> float:
        environments = GymnasiumVectorEnv(Grid, num_envs=SLOTS)
        environments.reset(seed=0)
        environments.step(choices[0])
        start = time.perf_counter()
        for actions in choices:
            _, _, terminated, truncated, _ = environments.step(actions)
        seconds = time.perf_counter() - start
        assert not (terminated | truncated).any()
        environments.close()
        return seconds

    return stepped


def _pool(choices: Any) -> Callable[[], float]:
    batches = [[{"direction": each} for each in actions] for actions in choices.tolist()]

    def stepped() -> float:
        with EnvPool(Grid, n=SLOTS).sync() as pool:
            pool.reset_batch(seeds=0)
            pool.step_batch(batches[0])
            start = time.perf_counter()
            for actions in batches:
                observations = pool.step_batch(actions)
            seconds = time.perf_counter() - start
            assert not any(each is None or each.reward is None for each in observations)
        return seconds

    return stepped
