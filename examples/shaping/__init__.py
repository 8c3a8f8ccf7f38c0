"""Rewards shape learning: five experiments on small worlds; see ``docs/shape-rewards.md``."""
