"""An MCP server with a judge that takes 100 ms.

``python -m benchmarks.judge_mcp`` serves it over HTTP, and prints its address.
"""

from __future__ import annotations

import logging
import socket

import anyio
import uvicorn
from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import PlainTextResponse

SECONDS = 0.1


class JudgeVerdict(BaseModel):
    """The verdict of the benchmark's judge."""

    score: float
    reasoning: str


def make() -> MCPServer:
    """Create the server; restore the root logger, which the constructor changes."""
    handlers, level = logging.root.handlers[:], logging.root.level
    server = MCPServer("judge")
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)

    @server.tool()
    async def judge(prompt: str) -> JudgeVerdict:
        await anyio.sleep(SECONDS)
        return JudgeVerdict(score=0.5, reasoning="It took its time.")

    @server.custom_route("/health", methods=["GET"])
    async def health(request: Request) -> PlainTextResponse:
        return PlainTextResponse("ok")

    return server


def main() -> None:
    listening = socket.create_server(("127.0.0.1", 0), backlog=512)
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    config = uvicorn.Config(make().streamable_http_app(), log_level="warning", loop="uvloop")
    uvicorn.Server(config).run([listening])


if __name__ == "__main__":
    main()
