"""Our environment, which returns a text. ``python -m interop.echo_environment`` serves it."""

from __future__ import annotations

import sys
import threading
from typing import Any

from guerdon import Action, Environment, Observation, Rubric, State, create_app, serve
from guerdon.envs import ServerLimits

SESSIONS = 8


class Say(Action):
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


class Polite(Rubric):
    """Scores whether the text contains "please"."""

    def forward(self, action: Any, observation: Any) -> float:
        """Return 1 if it does."""
        return float("please" in action.message)


class Brief(Rubric):
    """Scores brevity."""

    def forward(self, action: Any, observation: Any) -> float:
        """Return 1 for an empty text, 0 for 16 characters or more."""
        return 1 - min(len(observation.echoed), 16) / 16


class Manners(Rubric):
    """A weighted sum of politeness and brevity; fails on request."""

    def __init__(self) -> None:
        super().__init__()
        self.polite = Polite()
        self.brief = Brief()

    def forward(self, action: Any, observation: Any) -> float:
        """Return 0.75 of politeness plus 0.25 of brevity."""
        if action.message == "break the rubric":
            raise ArithmeticError("no manners")
        polite: Any = self.polite(action, observation)
        brief: Any = self.brief(action, observation)
        return float(0.75 * polite + 0.25 * brief)


class EchoEnvironment(Environment[Say, Echoed, EchoState]):
    """Returns the text of an action."""

    def __init__(self) -> None:
        super().__init__(rubric=Manners())
        self._state = EchoState()

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, level: int = 0, **kwargs: Any
    ) -> Echoed:
        """Begin an episode."""
        self._reset_rubric()
        self._state = EchoState(episode_id=episode_id, level=level)
        return Echoed(seed=seed, level=level)

    def step(self, action: Say, timeout_s: float | None = None, **kwargs: Any) -> Echoed:
        """Return the text, with a reward."""
        if action.message == "break":
            raise ArithmeticError("broken on request")
        self._state.step_count += 1
        observation = Echoed(
            echoed=action.message,
            level=self._state.level,
            done=action.message.startswith("bye"),
            metadata={"turn": self._state.step_count},
        )
        return self.score(action, observation)

    @property
    def state(self) -> EchoState:
        """The state of the episode."""
        return self._state


def serve_with_parent(app: Any) -> None:
    """Serve until standard input ends, which is when the parent process exits."""

    def stop_with_parent() -> None:
        sys.stdin.read()
        import os
        import signal

        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop_with_parent, daemon=True).start()
    serve(app, port=0, grace_s=1, ready=lambda url: print(url, flush=True))


def main() -> None:
    """Serve the environment."""
    limits = ServerLimits(max_sessions=SESSIONS)
    serve_with_parent(create_app(EchoEnvironment, env_name="our echo", limits=limits))


if __name__ == "__main__":
    main()
