"""Rewards of several environments on one scale."""

from __future__ import annotations

from guerdon.rewards.normalizer.normalizer import RewardNormalizer
from guerdon.rewards.normalizer.statistics import Scale

__all__ = ["RewardNormalizer", "Scale"]
