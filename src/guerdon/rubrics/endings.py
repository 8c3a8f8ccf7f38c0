"""Whether an observation ends its episode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["is_done"]


def is_done(observation: Any) -> bool:
    """Whether an observation ends its episode; one that doesn't say so doesn't.

    Example:
        >>> is_done({"done": True}), is_done("anything")
        (True, False)
    """
    if isinstance(observation, Mapping):
        return bool(observation.get("done", False))
    return bool(getattr(observation, "done", False))
