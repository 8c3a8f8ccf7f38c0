"""`State` and `EnvironmentMetadata`: what an environment tells of itself."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["EnvironmentMetadata", "State"]


class State(BaseModel):
    """Where an episode stands. Subclass it to tell more; further fields are taken as they are.

    Example:
        >>> from guerdon import State
        >>> State(episode_id="ep-1", step_count=3, level=2).level
        2

    Attributes:
        episode_id: Which episode it is; None before the first reset.
        step_count: How many steps were taken since the reset.
    """

    model_config = ConfigDict(extra="allow", validate_assignment=True, ser_json_inf_nan="constants")

    episode_id: str | None = None
    step_count: int = Field(default=0, ge=0)


class EnvironmentMetadata(BaseModel):
    """What an environment says about itself to those who connect to it.

    Example:
        >>> from guerdon.types import EnvironmentMetadata
        >>> EnvironmentMetadata(name="Maze", description="Find the way out.").version
        '1.0.0'

    Attributes:
        name: The environment's name.
        description: What it is about, in a line.
        readme_content: A longer text, as Markdown.
        version: The environment's version.
        author: Who made it.
        documentation_url: Where there is more to read.
    """

    model_config = ConfigDict(extra="forbid")

    name: str
    description: str
    readme_content: str | None = None
    version: str | None = "1.0.0"
    author: str | None = None
    documentation_url: str | None = None
