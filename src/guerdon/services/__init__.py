"""Services: tools and models behind names, over MCP; judges stand on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.services.cache import *
    from guerdon.services.chat import *
    from guerdon.services.client import *
    from guerdon.services.config import *
    from guerdon.services.criterion import *
    from guerdon.services.judge import *
    from guerdon.services.judge_server import *
    from guerdon.services.judgement import *
    from guerdon.services.mcp_serving import *
    from guerdon.services.retrying import *
    from guerdon.services.service_tool import *
    from guerdon.services.template import *
    from guerdon.services.usage import *
    from guerdon.services.verdict import *

__getattr__, __dir__ = lazy_names(
    __name__,
    "judge",
    "criterion",
    "judgement",
    "chat",
    "usage",
    "retrying",
    "cache",
    "template",
    "verdict",
    "client",
    "config",
    "service_tool",
    "judge_server",
    "mcp_serving",
)
