"""Serving environments over HTTP and WebSocket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.envs.server.app import *
    from guerdon.envs.server.limits import *
    from guerdon.envs.server.running import *

__getattr__, __dir__ = lazy_names(__name__, "limits", "app", "running")
