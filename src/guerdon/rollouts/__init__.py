"""Recorded rollouts: reading them, scoring them, writing what came out."""

from guerdon.rollouts.files import read_rollouts
from guerdon.rollouts.job import Job, JobReport
from guerdon.rollouts.scoring import ResultRow, RolloutScorer, score_rollouts
from guerdon.rollouts.summary import Summary

__all__ = [
    "Job",
    "JobReport",
    "ResultRow",
    "RolloutScorer",
    "Summary",
    "read_rollouts",
    "score_rollouts",
]
