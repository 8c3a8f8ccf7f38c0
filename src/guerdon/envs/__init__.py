"""Environments: defining, checking, serving, connecting to, and pooling them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.envs.checking import *
    from guerdon.envs.client.client import *
    from guerdon.envs.client.http import *
    from guerdon.envs.client.launchers import *
    from guerdon.envs.client.transport import *
    from guerdon.envs.configured import *
    from guerdon.envs.environment import *
    from guerdon.envs.pool.backend import *
    from guerdon.envs.pool.pool import *
    from guerdon.envs.pool.processes import *
    from guerdon.envs.pool.ray import *
    from guerdon.envs.pool.remote import *
    from guerdon.envs.pool.workers import *
    from guerdon.envs.registry import *
    from guerdon.envs.runner import *
    from guerdon.envs.server.app import *
    from guerdon.envs.server.limits import *
    from guerdon.envs.server.uvicorn_server import *
    from guerdon.envs.tool_functions import *
    from guerdon.envs.tools import *

__getattr__, __dir__ = lazy_names(
    __name__,
    *("environment", "tools", "tool_functions", "registry", "runner", "pool.pool", "pool.backend"),
    *("pool.remote", "pool.workers", "pool.processes", "pool.ray"),
    *("server.limits", "server.app", "server.uvicorn_server", "client.launchers", "client.client"),
    *("client.http", "client.transport", "checking", "configured"),
)
