"""Combinations of rubrics from papers, each in a few lines."""
