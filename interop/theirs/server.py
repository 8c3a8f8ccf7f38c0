"""Their environment on their server: ``python -m interop.theirs.server`` prints its address."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from typing import Any

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app

SESSIONS = 8
REWARDS = {"true": True, "false": False, "two": 2, "none": None}


class EchoAction(Action):
    """A text."""

    message: str


class Echoed(Observation):
    """The repeated text."""

    echoed: str = ""
    seed: int | None = None
    level: int = 0


class EchoState(State):
    """The state of the episode."""

    level: int = 0


class TheirEcho(Environment[EchoAction, Echoed, EchoState]):
    """Returns the text of an action."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = EchoState()

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, level: int = 0, **kwargs: Any
    ) -> Echoed:
        """Begin."""
        self._state = EchoState(episode_id=episode_id, level=level)
        return Echoed(seed=seed, level=level)

    def step(self, action: EchoAction, timeout_s: float | None = None, **kwargs: Any) -> Echoed:
        """Return the text; the reward is in `REWARDS`, or else 0.1 per character."""
        if action.message == "break":
            raise ArithmeticError("broken on request")
        self._state.step_count += 1
        return Echoed(
            echoed=action.message,
            level=self._state.level,
            reward=REWARDS.get(action.message, len(action.message) / 10),
            done=action.message.startswith("bye"),
            metadata={"turn": self._state.step_count, "reward_components": {"length": 0.5}},
        )

    @property
    def state(self) -> EchoState:
        """The state of the episode."""
        return self._state


def serve_with_parent(app: Any) -> None:
    """Serve until standard input ends."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(app, log_level="error", access_log=False, timeout_graceful_shutdown=1)
    )

    def stop_with_parent() -> None:
        sys.stdin.read()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop_with_parent, daemon=True).start()
    print(
        f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True
    )  # connections queue until then
    server.run(sockets=[listener])


def main() -> None:
    """Serve the environment."""
    serve_with_parent(
        create_fastapi_app(TheirEcho, EchoAction, Echoed, max_concurrent_envs=SESSIONS)
    )


if __name__ == "__main__":
    main()
