"""Comparing rewards: what changed in them, and how the scores of the same rollouts moved."""
