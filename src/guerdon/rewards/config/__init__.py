"""The configuration of a reward: read strictly, checked whole, versioned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.rewards.config.config import *
    from guerdon.rewards.config.versions import *

__getattr__, __dir__ = lazy_names(__name__, "config", "versions")
