"""openenv's server with the environment of `benchmarks.echo_guerdon`; its interpreter runs it.

It does the same work and gives the same rewards, computed in its step: it needs no rubric.
uvicorn is started as openenv's own servers start it, with whatever event loop it finds.
"""

from __future__ import annotations

import socket
import time
from typing import Any

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_app


class Say(Action):
    message: str
    late_s: float = 0.0
    times: int = 1


class Heard(Observation):
    echoed: str


class Echo(Environment):
    """Repeats a text."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.episode = State()

    def reset(self, seed: int | None = None, episode_id: str | None = None, **more: Any) -> Heard:
        self.episode = State(episode_id=episode_id)
        return Heard(echoed="ready")

    def step(self, action: Say, timeout_s: float | None = None, **more: Any) -> Heard:
        self.episode.step_count += 1
        if action.late_s:
            time.sleep(action.late_s)
        observation = Heard(echoed=action.message * action.times)
        observation.reward = len(action.message) * 0.1
        return observation

    @property
    def state(self) -> State:
        return self.episode


def main() -> None:
    app = create_app(Echo, Say, Heard, env_name="echo", max_concurrent_envs=600)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main()
