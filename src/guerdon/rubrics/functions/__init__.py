"""Rewards that people write: functions on messages, and files that hold a reward."""

from guerdon.rubrics.functions.conversion import as_reward_function
from guerdon.rubrics.functions.decorator import RewardFunction, reward_function
from guerdon.rubrics.functions.loading import (
    load_reward,
)
from guerdon.rubrics.functions.placement import Misfit
from guerdon.rubrics.functions.rubric import RewardFunctionRubric

__all__ = [
    "Misfit",
    "RewardFunction",
    "RewardFunctionRubric",
    "as_reward_function",
    "load_reward",
    "reward_function",
]
