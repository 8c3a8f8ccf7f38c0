"""What is told of ids and groups, which come from files and may be anything."""

from __future__ import annotations

import json
from typing import Any

from guerdon.rollouts.json_forms import as_text

__all__ = ["told_id"]

# Characters of an id that are kept.
MAX_ID = 200


def told_id(value: Any) -> Any:
    """An id or a group as it is told: as it is, or, where it is long, the beginning of its text.

    Example:
        >>> told_id(["q7", 1]), len(told_id("x" * 1000))
        (['q7', 1], 201)
    """
    if value is None or type(value) in (bool, int, float):
        return as_text(value)
    held = as_text(value)
    text = held if isinstance(held, str) else json.dumps(held, ensure_ascii=False)
    return held if len(text) <= MAX_ID else text[:MAX_ID] + "…"
