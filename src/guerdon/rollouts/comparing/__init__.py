"""Comparing rewards: what changed in them, and how the scores of the same rollouts moved."""

from guerdon.rollouts.comparing.changes import (
    RewardChange,
    changes_of_configs,
    changes_of_rewards,
)
from guerdon.rollouts.comparing.comparison import (
    Comparison,
    ComparisonReport,
    Movement,
    RowMove,
    compare_rewards,
    compare_rows,
)
from guerdon.rollouts.comparing.group_comparison import (
    Flip,
    GroupComparison,
    GroupMove,
    PairCounts,
)
from guerdon.rollouts.comparing.job import ComparisonJob

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
