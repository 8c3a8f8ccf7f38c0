"""Reward functions in a sandbox: what is sent to them, what they answer, what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.sandbox.evaluating.eval_sandbox import *
    from guerdon.sandbox.evaluating.source import *

# Lazily: where a reward runs, this package is imported, and what the host needs is not.
__getattr__, __dir__ = lazy_names(__name__, "source", "eval_sandbox")
