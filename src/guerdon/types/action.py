"""`Action`: what an agent does in an environment."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Action"]


class Action(BaseModel):
    """What an agent does in one step. Subclass it with the fields of your environment.

    Unknown fields are rejected, so that a misspelled field never falls back to a default.

    Example:
        >>> from guerdon import Action
        >>> class Move(Action):
        ...     column: int
        >>> Move.model_validate({"column": 3}).column
        3

    Attributes:
        metadata: Further data that the agent sends along.
    """

    model_config = ConfigDict(extra="forbid", validate_assignment=True)

    metadata: dict[str, Any] = Field(default_factory=dict)
