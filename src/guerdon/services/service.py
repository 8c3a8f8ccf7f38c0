"""What every service is, whatever stands behind its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from guerdon.services.service_tool import ServiceTool

__all__ = ["Service"]


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

    async def check(self, timeout_s: float, *, for_tool: bool) -> None:
        """Raise a `ServiceError` where it isn't there.

        Args:
            timeout_s: Seconds that it may take, over 0.
            for_tool: Whether its own tool has to be there, too.
        """

    async def close(self) -> None:
        """Let go of its connections."""

    def abandon(self) -> None:
        """Have its connections close, from any thread and without waiting."""
