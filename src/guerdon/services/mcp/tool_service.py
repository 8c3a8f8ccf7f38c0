"""A service that is a tool of an MCP server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json, to_json

from guerdon.errors import InvalidArgumentError, MissingExtraError
from guerdon.services.config import McpService
from guerdon.services.describing import SdkService
from guerdon.services.service_tool import ServiceTool

if TYPE_CHECKING:
    from guerdon.services.mcp.connection_pool import ConnectionPool

__all__ = ["ToolService", "need_mcp"]


class ToolService:
    """Calls the tools of a server; connects when that is needed first.

    Args:
        name: The service's name.
        config: Where it is.
    """

    def __init__(self, name: str, config: McpService | SdkService) -> None:
        need_mcp()  # here, as it takes a while and would hold the background loop up
        self.name = name
        self.config = config
        self._pool = _pool(name, config)

    async def call(self, tool: str | None, arguments: Mapping[str, Any]) -> dict[str, Any] | str:
        """Call a tool of the server, None for the service's own."""
        return await self._pool.call(tool, _as_json(self.name, arguments))

    def chat_model(self) -> None:
        """It is no model."""

    async def tools(self) -> list[ServiceTool]:
        """What the server offers."""
        tools = (await self._pool.tools()).values()
        return [
            ServiceTool(
                name=tool.name,
                service=self.name,
                description=tool.description or "",
                input_schema=tool.input_schema,
                output_schema=tool.output_schema,
            )
            for tool in tools
        ]

    async def check(self, timeout_s: float, *, for_tool: bool) -> None:
        """See whether it is there, and its own tool where that is what is called."""
        await self._pool.check(timeout_s, for_tool=for_tool)

    async def close(self) -> None:
        """Close the connections."""
        await self._pool.close()

    def abandon(self) -> None:
        """Have the connections close, from any thread and without waiting."""
        self._pool.abandon()

    def __reduce__(self) -> tuple[type[ToolService], tuple[str, McpService | SdkService]]:
        if isinstance(self.config, SdkService) and not hasattr(self.config.server, "command"):
            raise InvalidArgumentError(
                f"service {self.name!r} is a server in memory, which can't be pickled; give the "
                "address or the command of one that other processes reach"
            )
        return type(self), (self.name, self.config)


def need_mcp() -> None:
    """Import the SDK.

    Raises:
        MissingExtraError: It isn't; it names the extra that brings it.
    """
    try:
        import mcp.server  # noqa: F401
    except ImportError as error:  # also of an mcp of before version 2
        raise MissingExtraError(
            "MCPClient needs the package mcp: pip install 'guerdon[judge]'", extra="judge"
        ) from error


def _as_json(name: str, arguments: Mapping[str, Any]) -> Any:
    """The arguments as JSON has them: what it can't hold would break the connection."""
    try:
        return from_json(to_json(arguments), allow_inf_nan=False)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(
            f"service {name!r} takes arguments that JSON can hold: {error}"
        ) from error


def _pool(name: str, config: McpService | SdkService) -> ConnectionPool:
    from guerdon.services.mcp.connection_pool import ConnectionPool
    from guerdon.services.mcp.connections import opener

    if isinstance(config, SdkService):
        return ConnectionPool(name, opener(name, config), config.settings)
    return ConnectionPool(
        name,
        opener(name, config),
        config,
        tool=config.tool,
        connections=1 if config.endpoint is None else config.connections,  # a program is one
    )
