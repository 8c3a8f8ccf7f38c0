"""Logging rewards to experiment trackers."""

from guerdon.rewards.logger.console import ConsoleTracker
from guerdon.rewards.logger.jsonl import JsonlTracker
from guerdon.rewards.logger.logger import RewardLogger
from guerdon.rewards.logger.metric_names import metric_name
from guerdon.rewards.logger.mlflow import MlflowTracker
from guerdon.rewards.logger.observations import reward_fields
from guerdon.rewards.logger.protocol import TrackedRun, TrackerBackend
from guerdon.rewards.logger.records import TrackedRecord
from guerdon.rewards.logger.sending import TrackerStatus
from guerdon.rewards.logger.tensorboard import TensorBoardTracker
from guerdon.rewards.logger.wandb import WandbTracker

__all__ = [
    "ConsoleTracker",
    "JsonlTracker",
    "MlflowTracker",
    "RewardLogger",
    "TensorBoardTracker",
    "TrackedRecord",
    "TrackedRun",
    "TrackerBackend",
    "TrackerStatus",
    "WandbTracker",
    "metric_name",
    "reward_fields",
]
