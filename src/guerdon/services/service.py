"""`Service`: what the name of a service is connected to, and `ServiceTool`, one of its tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from guerdon.errors import MissingExtraError

if TYPE_CHECKING:
    from guerdon.services.chat_model import ChatModel

__all__ = ["ServiceTool"]


@dataclass(frozen=True, slots=True)
class ServiceTool:
    """A tool of a service.

    Example:
        >>> from guerdon.services import ServiceTool
        >>> ServiceTool("judge", service="style_judge").description
        ''

    Args:
        name: The tool's name.
        service: The name of its service.
        description: What it does, in its author's words.
        input_schema: The JSON Schema of its arguments.
        output_schema: The JSON Schema of its structured content, if it declares one.
    """

    name: str
    service: str
    description: str = ""
    input_schema: Mapping[str, Any] | None = None
    output_schema: Mapping[str, Any] | None = None


class Service(Protocol):
    """What a name is connected to; its methods run on the background loop."""

    name: str
    config: Any

    async def call(self, tool: str | None, arguments: Mapping[str, Any]) -> dict[str, Any] | str:
        """Call one of its tools; None is its own."""

    def chat_model(self) -> ChatModel | None:
        """Return the model that it is, if it has no prompt of its own."""

    async def tools(self) -> list[ServiceTool]:
        """Return its tools."""

    async def check(self, timeout_s: float, *, for_tool: bool) -> None:
        """Raise a `ServiceError` if it, or its own tool, is unavailable."""

    async def close(self) -> None:
        """Close its connections."""

    def abandon(self) -> None:
        """Close its connections from any thread, without waiting."""


def require_mcp() -> None:
    """Import the SDK of MCP.

    Raises:
        MissingExtraError: It isn't installed, or too old.
    """
    try:
        import mcp.server  # noqa: F401
    except ImportError as error:  # also of an mcp before version 2
        raise MissingExtraError(
            "MCPClient requires the package mcp: pip install 'guerdon[judge]'", extra="judge"
        ) from error
