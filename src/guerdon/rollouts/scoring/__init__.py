"""Scoring recorded rollouts: a file of rollouts in, a file of result rows and a summary out."""
