"""`Action`: what an agent does in an environment."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Action"]


class Action(BaseModel):
    """What an agent does in one step. Subclass it with the fields that your environment takes.

    Unknown fields are refused, so that a typing mistake never plays as a default.

    Example:
        >>> from guerdon import Action
        >>> class Move(Action):
        ...     column: int
        >>> Move.model_validate({"column": 3}).column
        3

    Attributes:
        metadata: Whatever else the agent's side wants to send along.
    """

    model_config = ConfigDict(extra="forbid", validate_assignment=True)

    metadata: dict[str, Any] = Field(default_factory=dict)
