"""Logging rewards to experiment trackers, and normalizing them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.tracking.console import *
    from guerdon.tracking.jsonl import *
    from guerdon.tracking.logger import *
    from guerdon.tracking.metric_names import *
    from guerdon.tracking.mlflow import *
    from guerdon.tracking.normalizer import *
    from guerdon.tracking.observations import *
    from guerdon.tracking.protocol import *
    from guerdon.tracking.records import *
    from guerdon.tracking.sending import *
    from guerdon.tracking.tensorboard import *
    from guerdon.tracking.wandb import *

__getattr__, __dir__ = lazy_names(
    __name__,
    names={
        "console": "ConsoleTracker",
        "jsonl": "JsonlTracker",
        "logger": "RewardLogger",
        "metric_names": "metric_name",
        "mlflow": "MlflowTracker",
        "normalizer": "RewardNormalizer Scale",
        "observations": "reward_fields",
        "protocol": "TrackedRun TrackerBackend",
        "records": "TrackedRecord",
        "sending": "TrackerStatus",
        "tensorboard": "TensorBoardTracker",
        "wandb": "WandbTracker",
    },
)
