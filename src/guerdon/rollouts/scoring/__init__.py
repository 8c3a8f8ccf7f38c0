"""Scoring recorded rollouts: a file of them in, a file of result rows and a summary out."""

from guerdon.rollouts.scoring.files import read_rollouts
from guerdon.rollouts.scoring.function_scorer import FunctionScorer
from guerdon.rollouts.scoring.job import Job, JobReport
from guerdon.rollouts.scoring.row_credit import CreditSettings
from guerdon.rollouts.scoring.rows import ResultRow
from guerdon.rollouts.scoring.sandboxing import SandboxSettings
from guerdon.rollouts.scoring.scorers import RolloutScorer, score_rollouts
from guerdon.rollouts.scoring.summary import Summary

__all__ = [
    "CreditSettings",
    "FunctionScorer",
    "Job",
    "JobReport",
    "ResultRow",
    "RolloutScorer",
    "SandboxSettings",
    "Summary",
    "read_rollouts",
    "score_rollouts",
]
