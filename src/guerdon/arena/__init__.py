"""The credit arena: worlds with an exact advantage, in which every estimator trains an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.arena.environment import *
    from guerdon.arena.exact import *
    from guerdon.arena.methods import *
    from guerdon.arena.model import *
    from guerdon.arena.training import *
    from guerdon.arena.world import *
    from guerdon.arena.worlds import *

__getattr__, __dir__ = lazy_names(
    __name__, "world", "model", "exact", "worlds", "methods", "training", "environment"
)
