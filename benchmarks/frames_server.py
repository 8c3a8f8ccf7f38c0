"""A server of guerdon whose observations have a frame of 84 × 84 bytes.

``python -m benchmarks.frames_server`` prints its address once it listens.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from guerdon import Action, Environment, Observation, Rubric, State, create_app, serve
from guerdon.types import ArrayField


class Screen(Observation):
    frame: Annotated[np.ndarray[Any, Any], ArrayField("uint8", (84, 84))]


class Constant(Rubric):
    """Scores 0.5."""

    def forward(self, action: Any, observation: Any) -> float:
        return 0.5


class Frames(Environment[Action, Screen, State]):
    """Returns noise."""

    state = State()

    def __init__(self) -> None:
        super().__init__(rubric=Constant())
        random = np.random.default_rng(0)
        self._frames = random.integers(0, 256, (8, 84, 84), dtype=np.uint8)
        self._steps = 0

    def reset(self, seed: int | None = None) -> Screen:
        return Screen(frame=self._frames[0])

    def step(self, action: Action) -> Screen:
        self._steps += 1
        return self.score(action, Screen(frame=self._frames[self._steps % 8]))


def main() -> None:
    serve(create_app(Frames), port=0, ready=lambda url: print(url, flush=True))


if __name__ == "__main__":
    main()
