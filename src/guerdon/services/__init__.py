"""Services that rubrics call: MCP tools and chat models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.services.chat_model import *
    from guerdon.services.client import *
    from guerdon.services.config import *
    from guerdon.services.judge_server import *

__getattr__, __dir__ = lazy_names(__name__, "config", "client", "chat_model", "judge_server")
