"""MCP: connections to servers of tools, and a judge as such a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.services.mcp.judge_server import *
    from guerdon.services.mcp.mcp_serving import *

__getattr__, __dir__ = lazy_names(__name__, "judge_server", "mcp_serving")
