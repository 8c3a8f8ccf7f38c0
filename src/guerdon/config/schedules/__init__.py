"""Weights that move while training runs: schedules and curricula."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.config.schedules.curriculum import *
    from guerdon.config.schedules.schedule_spec import *
    from guerdon.config.schedules.schedules import *

__getattr__, __dir__ = lazy_names(__name__, "schedules", "schedule_spec", "curriculum")
