"""What every service is, whatever stands behind its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Service", "ServiceTool"]


@dataclass(frozen=True, slots=True)
class ServiceTool:
    """What a service offers.

    Example:
        >>> from guerdon.services.service import ServiceTool
        >>> ServiceTool("judge", service="style_judge").description
        ''

    Args:
        name: The tool's name.
        service: The name of the service that it belongs to.
        description: What it does, in its author's words.
        input_schema: The JSON Schema of its arguments.
        output_schema: That of its structured content, where it says one.
    """

    name: str
    service: str
    description: str = ""
    input_schema: Mapping[str, Any] | None = None
    output_schema: Mapping[str, Any] | None = None


class Service(Protocol):
    """Something behind a name; its methods run on the background loop."""

    name: str
    config: Any

    async def call(self, tool: str | None, arguments: Mapping[str, Any]) -> dict[str, Any] | str:
        """Call it.

        Args:
            tool: Which of its tools; None for its own.
            arguments: What the tool takes.
        """

    async def tools(self) -> list[ServiceTool]:
        """What it offers."""

    async def check(self, timeout_s: float) -> None:
        """Raise a `ServiceError` where it isn't there."""

    async def close(self) -> None:
        """Let go of its connections."""

    def abandon(self) -> None:
        """Have its connections close, from any thread and without waiting."""
