"""Logging rewards to experiment trackers, and normalizing them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.tracking.console import *
    from guerdon.tracking.log import *
    from guerdon.tracking.logger import *
    from guerdon.tracking.mlflow import *
    from guerdon.tracking.normalizer import *
    from guerdon.tracking.records import *
    from guerdon.tracking.sending import *
    from guerdon.tracking.statistics import *
    from guerdon.tracking.tensorboard import *
    from guerdon.tracking.trackers import *
    from guerdon.tracking.wandb import *

__getattr__, __dir__ = lazy_names(
    __name__,
    *("records", "log", "trackers", "sending", "logger", "console", "tensorboard", "wandb"),
    *("mlflow", "statistics", "normalizer"),
)
