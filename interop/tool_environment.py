"""Our environment with tools. ``python -m interop.tool_environment [production]`` serves it."""

from __future__ import annotations

import sys
from typing import Any

from guerdon import Rubric, ToolEnvironment, create_app, tool
from guerdon.envs import ServerLimits
from interop.echo_environment import serve_with_parent

SESSIONS = 4
TASKS = [{"goal": 3}, {"goal": 5}, {"goal": 8}]


class Reached(Rubric):
    """Scores whether the goal is reached."""

    def forward(self, action: Any, observation: Any) -> float:
        """Return 1 if the episode has ended."""
        return float(observation.done)


class Counter(ToolEnvironment):
    """Reach a number by adding."""

    def __init__(self) -> None:
        super().__init__(rubric=Reached())
        self.public_tasks = {"train": TASKS, "dev": TASKS[:1]}
        self.total = 0
        self.goal = 1

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        split: str = "train",
        index: int = 0,
        **kwargs: Any,
    ) -> Any:
        """Begin with 0."""
        self.total, self.goal = 0, self.public_tasks[split][index]["goal"]
        return self.begin(f"Reach {self.goal}.", episode_id=episode_id)

    @tool
    def add(self, a: int, b: int = 0) -> int:
        """Add one number or two."""
        self.total += a + b
        return self.total

    @tool
    def undocumented(self) -> str:  # noqa: D102
        return "a text"

    @tool
    def boom(self) -> str:
        """Fail."""
        raise ValueError("kaboom")

    @tool(ends=True)
    def finish(self) -> str:
        """Finish."""
        if self.total != self.goal:
            raise ValueError(f"{self.total} is not {self.goal}")
        return "reached"


def main(mode: str = "simulation") -> None:
    """Serve the environment."""
    limits = ServerLimits(max_sessions=SESSIONS)
    serve_with_parent(create_app(Counter, env_name="counter", limits=limits, mode=mode))


if __name__ == "__main__":
    main(*sys.argv[1:])
