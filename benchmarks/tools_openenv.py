"""A server of openenv with the tool of `benchmarks.tools_guerdon`; openenv's Python runs it."""

from __future__ import annotations

import socket
from typing import Any

import uvicorn
from fastmcp import FastMCP
from openenv.core.env_server import Observation, State, create_app
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation


class Echo(MCPEnvironment):
    """Repeats a text, by a tool."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        server = FastMCP("echo")

        @server.tool
        def echo(text: str) -> str:
            """Repeat a text."""
            return text

        super().__init__(server)

    def reset(self, seed: int | None = None, **more: Any) -> Observation:
        return Observation()

    def _step_impl(self, action: Any, **more: Any) -> Observation:
        raise ValueError("the only actions are calls of tools")

    @property
    def state(self) -> State:
        return State()


def main() -> None:
    app = create_app(
        Echo, CallToolAction, CallToolObservation, env_name="echo", max_concurrent_envs=600
    )
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main()
