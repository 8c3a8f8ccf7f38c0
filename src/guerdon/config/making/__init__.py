"""From the entries of a configuration to rubrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.config.making.making import *
    from guerdon.config.making.registry import *

__getattr__, __dir__ = lazy_names(__name__, "registry", "making")
