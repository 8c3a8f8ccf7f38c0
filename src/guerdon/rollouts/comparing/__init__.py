"""Comparing rewards: what changed in them, and how the scores of the same rollouts moved."""

from guerdon.rollouts.comparing.changes import (
    RewardChange,
    changes_of_configs,
    changes_of_rewards,
)
from guerdon.rollouts.comparing.comparison import Comparison, RowMove, compare_rows
from guerdon.rollouts.comparing.group_comparison import Flip, GroupComparison, GroupMove
from guerdon.rollouts.comparing.job import ComparisonJob
from guerdon.rollouts.comparing.movement import Movement
from guerdon.rollouts.comparing.ranking import PairCounts
from guerdon.rollouts.comparing.report import ComparisonReport, compare_rewards

__all__ = [
    "Comparison",
    "ComparisonJob",
    "ComparisonReport",
    "Flip",
    "GroupComparison",
    "GroupMove",
    "Movement",
    "PairCounts",
    "RewardChange",
    "RowMove",
    "changes_of_configs",
    "changes_of_rewards",
    "compare_rewards",
    "compare_rows",
]
