"""Rollouts: playing, reading, scoring, aligning and crediting them."""

from guerdon.rollouts.alignment import (
    AlignedBatch,
    AlignedRollout,
    AlignmentReport,
    RLDataAligner,
)
from guerdon.rollouts.comparing import (
    Comparison,
    ComparisonJob,
    ComparisonReport,
    RewardChange,
    compare_rewards,
    compare_rows,
)
from guerdon.rollouts.crediting import apply_credit, system_apply_gigpo_to_batch_steps
from guerdon.rollouts.playing import (
    AgentPolicy,
    OpenAIPolicy,
    PolicyOutput,
    ReplayPolicy,
    RLRolloutWorker,
    RolloutRecord,
    ScriptedPolicy,
)
from guerdon.rollouts.scoring import (
    CreditSettings,
    FunctionScorer,
    ResultRow,
    RubricScorer,
    SandboxSettings,
    ScoringJob,
    ScoringReport,
    Summary,
    read_rollouts,
    score_rollouts,
)

__all__ = [
    "AgentPolicy",
    "AlignedBatch",
    "AlignedRollout",
    "AlignmentReport",
    "Comparison",
    "ComparisonJob",
    "ComparisonReport",
    "CreditSettings",
    "FunctionScorer",
    "OpenAIPolicy",
    "PolicyOutput",
    "RLDataAligner",
    "RLRolloutWorker",
    "ReplayPolicy",
    "ResultRow",
    "RewardChange",
    "RolloutRecord",
    "RubricScorer",
    "SandboxSettings",
    "ScoringJob",
    "ScoringReport",
    "ScriptedPolicy",
    "Summary",
    "apply_credit",
    "compare_rewards",
    "compare_rows",
    "read_rollouts",
    "score_rollouts",
    "system_apply_gigpo_to_batch_steps",
]
