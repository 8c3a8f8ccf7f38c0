"""Reward configurations: read, validated, built, and changed while training runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.config.builder import *
    from guerdon.config.curriculum import *
    from guerdon.config.json_schema import *
    from guerdon.config.pipeline import *
    from guerdon.config.registry import *
    from guerdon.config.runtime import *
    from guerdon.config.schedules import *
    from guerdon.config.schema import *

__getattr__, __dir__ = lazy_names(
    __name__,
    "schedules",
    "curriculum",
    "schema",
    "registry",
    "builder",
    "json_schema",
    "pipeline",
    "runtime",
)
