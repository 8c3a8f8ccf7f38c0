"""From the entries of a configuration to rubrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.rewards.making.making import *
    from guerdon.rewards.making.registry import *

__getattr__, __dir__ = lazy_names(__name__, "registry", "making")
