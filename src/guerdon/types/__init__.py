"""The data that flows through guerdon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.types.action import *
    from guerdon.types.arrays import *
    from guerdon.types.evaluate_result import *
    from guerdon.types.message import *
    from guerdon.types.observation import *
    from guerdon.types.reasoning import *
    from guerdon.types.rollout import *
    from guerdon.types.score import *
    from guerdon.types.state import *
    from guerdon.types.tool_calls import *
    from guerdon.types.tools import *
    from guerdon.types.turn_tokens import *

# The score first: rubrics need it, and it doesn't import pydantic.
__getattr__, __dir__ = lazy_names(
    __name__,
    "score",
    "message",
    "rollout",
    "evaluate_result",
    "action",
    "arrays",
    "observation",
    "reasoning",
    "state",
    "tool_calls",
    "tools",
    "turn_tokens",
)
