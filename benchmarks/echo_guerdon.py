"""A server of ours with an echo environment, in a process of its own.

``python -m benchmarks.echo_guerdon [{"max_sessions": …}]`` prints its address once it listens.
`benchmarks.echo_openenv` is the same of openenv.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

from guerdon import Action, Environment, Observation, Rubric, State, create_app, serve
from guerdon.envs import ServerLimits


class Say(Action):
    """A text, and whether the echo is late or large."""

    message: str
    late_s: float = 0.0
    times: int = 1


class Heard(Observation):
    echoed: str


class Length(Rubric):
    """A tenth for each character."""

    tunable = ("each",)

    def __init__(self) -> None:
        super().__init__()
        self.each = 0.1

    def forward(self, action: Any, observation: Any) -> float:
        return len(action.message) * self.each


class Echo(Environment[Say, Heard, State]):
    """Repeats a text."""

    def __init__(self) -> None:
        super().__init__(rubric=Length())
        self.episode = State()

    def reset(self, seed: int | None = None, episode_id: str | None = None, **more: Any) -> Heard:
        self._reset_rubric()
        self.episode = State(episode_id=episode_id)
        return Heard(echoed="ready")

    def step(self, action: Say, timeout_s: float | None = None, **more: Any) -> Heard:
        self.episode.step_count += 1
        if action.late_s:
            time.sleep(action.late_s)
        return self.score(action, Heard(echoed=action.message * action.times))

    @property
    def state(self) -> State:
        return self.episode


def main() -> None:
    logging.basicConfig(level="CRITICAL")  # what clients do to it is no news here
    limits = ServerLimits(**json.loads(sys.argv[1]) if len(sys.argv) > 1 else {})
    serve(create_app(Echo, limits=limits), port=0, ready=lambda url: print(url, flush=True))


if __name__ == "__main__":
    main()
