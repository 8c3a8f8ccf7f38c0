"""Reward pipelines: configured, versioned, live, normalised, logged."""
