"""Atari games: one environment, a rubric for each game, and images on the wire."""
