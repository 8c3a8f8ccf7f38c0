"""A server of openenv with the environment of `benchmarks.echo_guerdon`; openenv's Python runs it.

It does the same work and returns the same rewards, computed in its step without a rubric. uvicorn
is started as in openenv's servers, with its default event loop.
"""

from __future__ import annotations

import socket
import time
from typing import Any

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_app


class EchoAction(Action):
    message: str
    late_s: float = 0.0
    times: int = 1


class EchoObservation(Observation):
    echoed: str


class Echo(Environment):
    """Returns the text of an action."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.episode = State()

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **more: Any
    ) -> EchoObservation:
        self.episode = State(episode_id=episode_id)
        return EchoObservation(echoed="ready")

    def step(
        self, action: EchoAction, timeout_s: float | None = None, **more: Any
    ) -> EchoObservation:
        self.episode.step_count += 1
        if action.late_s:
            time.sleep(action.late_s)
        observation = EchoObservation(echoed=action.message * action.times)
        observation.reward = len(action.message) * 0.1
        return observation

    @property
    def state(self) -> State:
        return self.episode


def main() -> None:
    app = create_app(Echo, EchoAction, EchoObservation, env_name="echo", max_concurrent_envs=600)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main()
