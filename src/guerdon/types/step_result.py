"""`StepResult`: what a client gets for a reset or a step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

__all__ = ["StepResult"]

ObsT = TypeVar("ObsT")


@dataclass(slots=True)
class StepResult(Generic[ObsT]):
    """What a client gets for a reset or a step.

    Example:
        >>> from guerdon import StepResult
        >>> StepResult({"echoed": "hi"}, reward=0.5).reward
        0.5

    Attributes:
        observation: What the environment shows, a model or a dict.
        reward: A finite float; None where there is none.
        done: Whether the episode has ended.
        metadata: What else the environment tells, the reward's components among it.
    """

    observation: ObsT
    reward: float | None = None
    done: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)
