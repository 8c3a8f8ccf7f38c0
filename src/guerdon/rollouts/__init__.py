"""Rollouts: playing, reading, scoring, aligning and crediting them."""

from guerdon.rollouts.alignment import (
    AlignedBatch,
    AlignedRollout,
    AlignmentReport,
    RLDataAligner,
)
from guerdon.rollouts.crediting import apply_credit, system_apply_gigpo_to_batch_steps
from guerdon.rollouts.files import read_rollouts
from guerdon.rollouts.function_scoring import FunctionScorer
from guerdon.rollouts.job import Job, JobReport
from guerdon.rollouts.openai_policy import OpenAIPolicy
from guerdon.rollouts.policies import AgentPolicy, PolicyOutput, ReplayPolicy, ScriptedPolicy
from guerdon.rollouts.rollout_record import RolloutRecord
from guerdon.rollouts.rollout_worker import RLRolloutWorker
from guerdon.rollouts.row_credit import CreditSettings
from guerdon.rollouts.rows import ResultRow
from guerdon.rollouts.scoring import RolloutScorer, score_rollouts
from guerdon.rollouts.summary import Summary

__all__ = [
    "AgentPolicy",
    "AlignedBatch",
    "AlignedRollout",
    "AlignmentReport",
    "CreditSettings",
    "FunctionScorer",
    "Job",
    "JobReport",
    "OpenAIPolicy",
    "PolicyOutput",
    "RLDataAligner",
    "RLRolloutWorker",
    "ReplayPolicy",
    "ResultRow",
    "RolloutRecord",
    "RolloutScorer",
    "ScriptedPolicy",
    "Summary",
    "apply_credit",
    "read_rollouts",
    "score_rollouts",
    "system_apply_gigpo_to_batch_steps",
]
