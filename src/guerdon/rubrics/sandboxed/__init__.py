"""Rewards in a sandbox: rubrics and reward functions that this process doesn't run itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.rubrics.sandboxed.eval_sandbox import *
    from guerdon.rubrics.sandboxed.source import *

# Lazily: a sandbox imports this package, but not what the host needs.
__getattr__, __dir__ = lazy_names(__name__, "source", "eval_sandbox")
