"""`ServiceTool`: a tool of a service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from guerdon.errors import MissingExtraError

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
