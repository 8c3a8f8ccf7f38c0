"""Rewards of several environments on one scale."""

from __future__ import annotations

from guerdon.tracking.normalizer.normalizer import RewardNormalizer
from guerdon.tracking.normalizer.statistics import Scale

__all__ = ["RewardNormalizer", "Scale"]
