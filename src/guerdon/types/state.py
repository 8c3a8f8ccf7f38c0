"""`State` and `EnvironmentMetadata`: what an environment reports about itself."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["EnvironmentMetadata", "State"]


class State(BaseModel):
    """The state of an episode. Further fields are accepted; subclass it to validate them.

    Example:
        >>> from guerdon import State
        >>> State(episode_id="ep-1", step_count=3, level=2).level
        2

    Attributes:
        episode_id: The id of the episode; None before the first reset.
        step_count: The number of steps since the reset.
    """

    model_config = ConfigDict(extra="allow", validate_assignment=True, ser_json_inf_nan="constants")

    episode_id: str | None = None
    step_count: int = Field(default=0, ge=0)


class EnvironmentMetadata(BaseModel):
    """The description of an environment for its clients.

    Example:
        >>> from guerdon.types import EnvironmentMetadata
        >>> EnvironmentMetadata(name="Maze", description="Find the way out.").version
        '1.0.0'

    Attributes:
        name: The environment's name.
        description: What it does, in one line.
        readme_content: A longer description in Markdown.
        version: The environment's version.
        author: Its author.
        documentation_url: The address of its documentation.
    """

    model_config = ConfigDict(extra="forbid")

    name: str
    description: str
    readme_content: str | None = None
    version: str | None = "1.0.0"
    author: str | None = None
    documentation_url: str | None = None
