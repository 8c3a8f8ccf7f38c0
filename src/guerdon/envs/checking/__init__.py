"""Checking environments: finds what makes one unfit for training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.envs.checking.checks import *

__getattr__, __dir__ = lazy_names(__name__, "checks")
