"""Rewards that people write: functions on messages, and files that hold a reward."""

from guerdon.functions.conversion import as_reward_function
from guerdon.functions.decorator import RewardFunction, reward_function
from guerdon.functions.loading import load_reward
from guerdon.functions.placement import Misfit
from guerdon.functions.rubric import RewardFunctionRubric

__all__ = [
    "Misfit",
    "RewardFunction",
    "RewardFunctionRubric",
    "as_reward_function",
    "load_reward",
    "reward_function",
]
