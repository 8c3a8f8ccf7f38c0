"""Rollouts: playing, reading, scoring, aligning and crediting them."""

from guerdon.rollouts.agents import agent_results
from guerdon.rollouts.alignment import (
    AlignedBatch,
    AlignedRollout,
    AlignmentReport,
    RLDataAligner,
)
from guerdon.rollouts.comparing.changes import RewardChange
from guerdon.rollouts.comparing.comparison import (
    Comparison,
    ComparisonJob,
    ComparisonReport,
    compare_rewards,
    compare_rows,
)
from guerdon.rollouts.crediting import (
    CreditSettings,
    apply_credit,
    system_apply_gigpo_to_batch_steps,
)
from guerdon.rollouts.playing.observations import observation_text
from guerdon.rollouts.playing.openai_policy import OpenAIPolicy
from guerdon.rollouts.playing.policies import (
    AgentPolicy,
    PolicyOutput,
    ReplayPolicy,
    ScriptedPolicy,
)
from guerdon.rollouts.playing.record import RolloutRecord
from guerdon.rollouts.playing.worker import RLRolloutWorker
from guerdon.rollouts.scoring.job import ScoringJob, ScoringReport
from guerdon.rollouts.scoring.reading import read_rollouts
from guerdon.rollouts.scoring.result_rows import ResultRow
from guerdon.rollouts.scoring.scorers import (
    FunctionScorer,
    RubricScorer,
    SandboxSettings,
    score_rollouts,
)
from guerdon.rollouts.scoring.summary import Summary

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
    "agent_results",
    "apply_credit",
    "compare_rewards",
    "compare_rows",
    "observation_text",
    "read_rollouts",
    "score_rollouts",
    "system_apply_gigpo_to_batch_steps",
]
