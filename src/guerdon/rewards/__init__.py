"""Reward pipelines: configured, versioned, live, normalised, logged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.rewards.composer import *
    from guerdon.rewards.config import *
    from guerdon.rewards.live import *
    from guerdon.rewards.logger import *
    from guerdon.rewards.making import *
    from guerdon.rewards.normalizer import *
    from guerdon.rewards.opening import *
    from guerdon.rewards.pipeline import *
    from guerdon.rewards.schedules import *

__getattr__, __dir__ = lazy_names(
    __name__,
    "composer",
    "schedules",
    "config",
    "making",
    "pipeline",
    "opening",
    "live",
    "normalizer",
    "logger",
)
