"""What tells groups apart, in files and in batches."""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import Any

__all__ = ["group_key"]


def group_key(group: Any) -> Hashable:
    """What tells groups apart; None where a rollout has none, and stands for itself."""
    return None if group is None else json.dumps(group, sort_keys=True, default=repr)
