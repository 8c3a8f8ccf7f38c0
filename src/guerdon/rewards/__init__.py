"""Reward pipelines: configured, versioned, live, normalised, logged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.rewards.composer import *

__getattr__, __dir__ = lazy_names(__name__, "composer")
