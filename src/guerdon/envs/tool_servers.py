"""`ToolServers`: the tools of MCP servers, for one episode of an environment."""

from __future__ import annotations

import asyncio
from collections.abc import Container
from functools import partial
from typing import TYPE_CHECKING, Any

from guerdon._background import on_background
from guerdon.envs.tool_functions import ToolFunction
from guerdon.errors import (
    EnvError,
    InvalidArgumentError,
    ServiceError,
    ServiceUnavailableError,
)
from guerdon.services.client import MCPClient
from guerdon.services.config import McpService, OpenAIService, SdkService
from guerdon.types.tool_calls import RESERVED, Tool, ToolResult

if TYPE_CHECKING:
    from guerdon.services.mcp_service import Connection


class ToolServers:
    """The tools of MCP servers; each episode has a connection of its own to each server.

    Its coroutines run on the background loop.

    Args:
        servers: The servers, in the forms that `MCPClient` accepts.

    Raises:
        InvalidArgumentError: One is not a server.

    Attributes:
        functions: The tools of the present episode by name.
    """

    def __init__(self, servers: Any) -> None:
        self.functions: dict[str, ToolFunction] = {}
        self._connections: list[Connection] = []
        self._configs: list[tuple[str, McpService | SdkService]] = []
        for each in MCPClient(servers)._services.values():
            if isinstance(each.config, OpenAIService):
                raise InvalidArgumentError(
                    f"`tool_servers`: {each.name!r} must be an MCP server, got a chat model"
                )
            self._configs.append((each.name, each.config))

    async def open(self, taken: Container[str]) -> None:
        """Connect to the servers, after closing the connections of the episode before.

        Args:
            taken: Names that their tools must not have.

        Raises:
            EnvError: A server can't be reached, or a tool's name is taken.
        """
        from guerdon.services.mcp_service import Connection

        await self.close()
        self._connections = [
            Connection(name, config, config.timeout_s) for name, config in self._configs
        ]
        try:
            await asyncio.gather(*(each.open() for each in self._connections))
            self.functions = self._functions(taken)
        except BaseException as error:
            await self.close()
            if isinstance(error, ServiceError):
                raise EnvError(f"the tools of a server are missing: {error}") from error
            raise

    def _functions(self, taken: Container[str]) -> dict[str, ToolFunction]:
        found: dict[str, ToolFunction] = {}
        for connection in self._connections:
            for name, tool in connection.tools.items():
                if name in taken or name in found or name in RESERVED:
                    raise EnvError(
                        f"the tool {name!r} of {connection.service} must have another name: it is "
                        "that of another tool, or of a method of the environment"
                    )
                spec = Tool(
                    name=name, description=tool.description or "", input_schema=tool.input_schema
                )
                found[name] = ToolFunction(spec, partial(_call, connection, name))
        return found

    async def close(self) -> None:
        """Close the connections, and end the programs that were started for them."""
        connections, self._connections, self.functions = self._connections, [], {}
        await asyncio.gather(*(each.close() for each in connections))


def _call(connection: Connection, name: str, environment: Any, /, **arguments: Any) -> Any:
    return on_background(_called(connection, name, arguments))


async def _called(connection: Connection, name: str, arguments: dict[str, Any]) -> ToolResult:
    """Call a tool of a server.

    Raises:
        EnvError: The server is lost, which the agent can't change.
        ServiceError: It returned an error of the protocol.
    """
    try:
        result = await connection.call(name, arguments)
    except ServiceUnavailableError as error:
        raise EnvError(f"{name}: {error}") from error
    blocks = [each.model_dump(mode="json", by_alias=True, exclude_none=True)
              for each in result.content]  # fmt: skip
    structured = result.structured_content
    return ToolResult(
        content=blocks,
        structured_content=structured if isinstance(structured, dict) else None,
        data=structured,
        is_error=bool(result.is_error),
    )
