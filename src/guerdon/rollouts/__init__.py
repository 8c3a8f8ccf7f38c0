"""Rollouts: reading, scoring, aligning and crediting them, and writing what came out."""

from guerdon.rollouts.alignment import (
    AlignedBatch,
    AlignedRollout,
    AlignmentReport,
    Misfit,
    RLDataAligner,
)
from guerdon.rollouts.crediting import apply_credit, system_apply_gigpo_to_batch_steps
from guerdon.rollouts.files import read_rollouts
from guerdon.rollouts.function_scoring import FunctionScorer
from guerdon.rollouts.job import Job, JobReport
from guerdon.rollouts.row_credit import CreditSettings
from guerdon.rollouts.rows import ResultRow
from guerdon.rollouts.scoring import RolloutScorer, score_rollouts
from guerdon.rollouts.summary import Summary

__all__ = [
    "AlignedBatch",
    "AlignedRollout",
    "AlignmentReport",
    "CreditSettings",
    "FunctionScorer",
    "Job",
    "JobReport",
    "Misfit",
    "RLDataAligner",
    "ResultRow",
    "RolloutScorer",
    "Summary",
    "apply_credit",
    "read_rollouts",
    "score_rollouts",
    "system_apply_gigpo_to_batch_steps",
]
