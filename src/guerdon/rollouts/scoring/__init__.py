"""Scoring recorded rollouts: a file of rollouts in, a file of result rows and a summary out."""

from guerdon.rollouts.scoring.job import ScoringJob, ScoringReport
from guerdon.rollouts.scoring.reading import read_rollouts
from guerdon.rollouts.scoring.result_rows import ResultRow
from guerdon.rollouts.scoring.row_credit import CreditSettings
from guerdon.rollouts.scoring.scorers import (
    FunctionScorer,
    RubricScorer,
    SandboxSettings,
    score_rollouts,
)
from guerdon.rollouts.scoring.summary import Summary

__all__ = [
    "CreditSettings",
    "FunctionScorer",
    "ResultRow",
    "RubricScorer",
    "SandboxSettings",
    "ScoringJob",
    "ScoringReport",
    "Summary",
    "read_rollouts",
    "score_rollouts",
]
