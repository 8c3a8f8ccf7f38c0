"""A server of guerdon with an echo environment.

``python -m benchmarks.echo_guerdon [{"max_sessions": …}]`` prints its address once it listens.
`benchmarks.echo_openenv` is the same environment on a server of openenv.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

from guerdon import Action, Environment, Observation, Rubric, State, create_app, serve
from guerdon.envs import ServerLimits


class EchoAction(Action):
    """A text, with the delay and the number of its repetitions."""

    message: str
    late_s: float = 0.0
    times: int = 1


class EchoObservation(Observation):
    echoed: str


class Length(Rubric):
    """A score of 0.1 per character."""

    tunable = ("each",)

    def __init__(self) -> None:
        super().__init__()
        self.each = 0.1

    def forward(self, action: Any, observation: Any) -> float:
        return len(action.message) * self.each


class Echo(Environment[EchoAction, EchoObservation, State]):
    """Returns the text of an action."""

    def __init__(self) -> None:
        super().__init__(rubric=Length())
        self.episode = State()

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **more: Any
    ) -> EchoObservation:
        self._reset_rubric()
        self.episode = State(episode_id=episode_id)
        return EchoObservation(echoed="ready")

    def step(
        self, action: EchoAction, timeout_s: float | None = None, **more: Any
    ) -> EchoObservation:
        self.episode.step_count += 1
        if action.late_s:
            time.sleep(action.late_s)
        return self.score(action, EchoObservation(echoed=action.message * action.times))

    @property
    def state(self) -> State:
        return self.episode


def main() -> None:
    logging.basicConfig(level="CRITICAL")  # the errors of clients are expected
    limits = ServerLimits(**json.loads(sys.argv[1]) if len(sys.argv) > 1 else {})
    serve(create_app(Echo, limits=limits), port=0, ready=lambda url: print(url, flush=True))


if __name__ == "__main__":
    main()
