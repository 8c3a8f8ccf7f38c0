"""Reward configurations: read, validated, versioned, changed while training runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.config.config import *
    from guerdon.config.live import *
    from guerdon.config.making import *
    from guerdon.config.opening import *
    from guerdon.config.pipeline import *
    from guerdon.config.schedules import *
    from guerdon.config.versions import *

__getattr__, __dir__ = lazy_names(
    __name__, "schedules", "config", "versions", "making", "pipeline", "opening", "live"
)
