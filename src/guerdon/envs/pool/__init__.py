"""Many environments, stepped together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.envs.pool.backend import *
    from guerdon.envs.pool.pool import *
    from guerdon.envs.pool.remote import *

__getattr__, __dir__ = lazy_names(__name__, "pool", "backend", "remote")
