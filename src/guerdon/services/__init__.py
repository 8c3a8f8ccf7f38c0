"""Services that rubrics call: MCP tools and chat models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.services.client import *
    from guerdon.services.config import *
    from guerdon.services.mcp import *
    from guerdon.services.models import *
    from guerdon.services.service_tool import *

__getattr__, __dir__ = lazy_names(__name__, "models", "client", "config", "service_tool", "mcp")
