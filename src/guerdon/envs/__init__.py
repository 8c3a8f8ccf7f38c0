"""Environments: defining, checking, serving, connecting to, and pooling them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.envs.checking import *
    from guerdon.envs.client import *
    from guerdon.envs.configured import *
    from guerdon.envs.environment import *
    from guerdon.envs.pool import *
    from guerdon.envs.registry import *
    from guerdon.envs.runner import reset_arguments as reset_arguments
    from guerdon.envs.server import *

__getattr__, __dir__ = lazy_names(
    __name__,
    *("environment", "registry", "pool", "server", "client", "checking", "configured"),
    names={"runner": "reset_arguments"},
)
