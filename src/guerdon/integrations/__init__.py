"""Adapters to trainers and frameworks, one module for each; each needs its framework installed.

`from_trl`, `from_verl`, `from_verifiers` and `from_openrlhf`, which convert reward functions that
were written for them, need none.
"""

from __future__ import annotations

from guerdon._lazy import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    names={library: f"from_{library}" for library in ("trl", "verl", "verifiers", "openrlhf")},
)
