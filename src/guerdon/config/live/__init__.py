"""A reward that changes while it runs: between episodes, whole or not at all, and written down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.config.live.live import *

__getattr__, __dir__ = lazy_names(__name__, "live")
