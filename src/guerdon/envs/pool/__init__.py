"""Many environments, stepped together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.envs.pool.calls import *
    from guerdon.envs.pool.pool import *
    from guerdon.envs.pool.remote import *
    from guerdon.envs.pool.sync import *
    from guerdon.envs.pool.threads import *

__getattr__, __dir__ = lazy_names(__name__, "pool", "sync", "calls", "threads", "remote")
