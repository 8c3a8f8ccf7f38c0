"""`StepResult`: what a client returns for a reset or a step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

__all__ = ["StepResult"]

ObsT = TypeVar("ObsT")


@dataclass(slots=True)
class StepResult(Generic[ObsT]):
    """What a client returns for a reset or a step.

    Example:
        >>> from guerdon import StepResult
        >>> StepResult({"echoed": "hi"}, reward=0.5).reward
        0.5

    Attributes:
        observation: The observation, a model or a dict.
        reward: A finite float, or None.
        done: Whether the episode has ended.
        metadata: Further data of the environment, including the reward's components.
    """

    observation: ObsT
    reward: float | None = None
    done: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)
