"""Scoring model-written solutions of word problems."""
