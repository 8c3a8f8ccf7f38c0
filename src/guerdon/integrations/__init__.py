"""Adapters to trainers and frameworks, one module for each; each needs its framework installed."""

from __future__ import annotations

__all__: list[str] = []
