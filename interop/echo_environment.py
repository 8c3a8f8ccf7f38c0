"""Our environment: it repeats a text. ``python -m interop.echo_environment`` serves it."""

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
        """1 where it does."""
        return float("please" in action.message)


class Brief(Rubric):
    """Scores brevity."""

    def forward(self, action: Any, observation: Any) -> float:
        """1 for nothing, 0 for 16 characters and more."""
        return 1 - min(len(observation.echoed), 16) / 16


class Manners(Rubric):
    """Politeness and brevity; it fails on request."""

    def __init__(self) -> None:
        super().__init__()
        self.polite = Polite()
        self.brief = Brief()

    def forward(self, action: Any, observation: Any) -> float:
        """Three parts of one, one of the other."""
        if action.message == "break the rubric":
            raise ArithmeticError("no manners")
        polite: Any = self.polite(action, observation)
        brief: Any = self.brief(action, observation)
        return float(0.75 * polite + 0.25 * brief)


class EchoEnvironment(Environment[Say, Echoed, EchoState]):
    """Repeats a text."""

    def __init__(self) -> None:
        super().__init__(rubric=Manners())
        self._state = EchoState()

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, level: int = 0, **kwargs: Any
    ) -> Echoed:
        """Begin."""
        self._reset_rubric()
        self._state = EchoState(episode_id=episode_id, level=level)
        return Echoed(seed=seed, level=level)

    def step(self, action: Say, timeout_s: float | None = None, **kwargs: Any) -> Echoed:
        """Say it."""
        if action.message == "break":
            raise ArithmeticError("told to break")
        self._state.step_count += 1
        said = Echoed(
            echoed=action.message,
            level=self._state.level,
            done=action.message.startswith("bye"),
            metadata={"turn": self._state.step_count},
        )
        return self.score(action, said)

    @property
    def state(self) -> EchoState:
        """The state of the episode."""
        return self._state


def main() -> None:
    """Serve it until the standard input ends, that is, until whoever asked for it has gone."""
    app = create_app(
        EchoEnvironment, env_name="our echo", limits=ServerLimits(max_sessions=SESSIONS)
    )

    def stop_with_parent() -> None:
        sys.stdin.read()
        import os
        import signal

        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop_with_parent, daemon=True).start()
    serve(app, port=0, grace_s=1, ready=lambda url: print(url, flush=True))


if __name__ == "__main__":
    main()
