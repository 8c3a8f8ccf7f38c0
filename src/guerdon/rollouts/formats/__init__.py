"""Formats of other libraries: documents in, rollouts out, and back."""
