"""Rewards that users write: functions of messages, and files that contain a reward."""

from guerdon.rubrics.functions.conversion import as_reward_function
from guerdon.rubrics.functions.function import RewardFunction, reward_function
from guerdon.rubrics.functions.loading import load_reward
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
