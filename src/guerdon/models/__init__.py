"""The nouns that flow through guerdon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guerdon._lazy import lazy_names

if TYPE_CHECKING:
    from guerdon.models.action import *
    from guerdon.models.evaluate_result import *
    from guerdon.models.message import *
    from guerdon.models.observation import *
    from guerdon.models.rollout import *
    from guerdon.models.score import *
    from guerdon.models.state import *
    from guerdon.models.step_data import *
    from guerdon.models.step_result import *

# The score first: rubrics need it, and it needs no pydantic.
__getattr__, __dir__ = lazy_names(
    __name__,
    "score",
    "message",
    "rollout",
    "evaluate_result",
    "step_data",
    "action",
    "observation",
    "state",
    "step_result",
)
