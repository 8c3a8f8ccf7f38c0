"""What makes an environment unfit for training: found before anybody trains in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.envs.checking.checks import *
    from guerdon.envs.checking.report import *

__getattr__, __dir__ = lazy_names(__name__, "checks", "report")
