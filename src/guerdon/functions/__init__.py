"""Rewards that people write in files of their own."""

from guerdon.functions.loading import load_reward

__all__ = ["load_reward"]
