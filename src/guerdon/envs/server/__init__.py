"""Serving environments over HTTP and WebSocket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.envs.server.app import *
    from guerdon.envs.server.limits import ServerLimits as ServerLimits
    from guerdon.envs.server.uvicorn_server import *

__getattr__, __dir__ = lazy_names(
    __name__, "app", "uvicorn_server", names={"limits": "ServerLimits"}
)
