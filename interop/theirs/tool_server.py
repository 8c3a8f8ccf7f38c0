"""Their environment with tools on their server: ``python -m interop.theirs.tool_server``."""

from __future__ import annotations

from typing import Any

from fastmcp import FastMCP
from openenv.core.env_server import Observation, State
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation

from interop.theirs.server import SESSIONS, serve_with_parent

TASKS = [{"goal": 3}, {"goal": 5}, {"goal": 8}]


class TheirCounter(MCPEnvironment):
    """Reach a number by adding."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        self.total, self.goal = 0, 1
        self._state = State(step_count=0)
        tools = FastMCP("counter")

        @tools.tool
        def add(a: int, b: int = 0) -> int:
            """Add one number or two."""
            self.total += a + b
            return self.total

        @tools.tool
        def undocumented() -> str:
            return "a text"

        @tools.tool
        def boom() -> str:
            """Fail."""
            raise ValueError("kaboom")

        @tools.tool
        def finish() -> str:
            """Finish."""
            if self.total != self.goal:
                raise ValueError(f"{self.total} is not {self.goal}")
            return "reached"

        super().__init__(tools)

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        split: str = "train",
        index: int = 0,
        **kwargs: Any,
    ) -> Observation:
        """Begin with 0."""
        self.total, self.goal = 0, TASKS[index]["goal"]
        self._state = State(episode_id=episode_id, step_count=0)
        return Observation(done=False)

    def _step_impl(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        raise NotImplementedError

    @property
    def state(self) -> State:
        """The state of the episode."""
        return self._state

    def list_splits(self) -> list[str]:
        """Return the splits."""
        return ["train", "dev"]

    def list_tasks(self, split: str) -> list[Any]:
        """Return the tasks."""
        return TASKS

    def num_tasks(self, split: str) -> int:
        """Return their number."""
        return len(TASKS)

    def get_task(self, split: str, index: int) -> Any:
        """Return a task."""
        return TASKS[index]

    def get_task_range(self, split: str, start: int | None, stop: int | None) -> list[Any]:
        """Return some of them."""
        return TASKS[start:stop]


if __name__ == "__main__":
    serve_with_parent(
        create_app(
            TheirCounter,
            CallToolAction,
            CallToolObservation,
            env_name="counter",
            max_concurrent_envs=SESSIONS,
        )
    )
