"""Making the rubrics of a reward's configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from guerdon.config.config import RewardConfig, RubricEntry
from guerdon.config.consistency import LISTS
from guerdon.config.documents import Problem, place_text
from guerdon.config.making.maker import Maker
from guerdon.config.making.registry import RubricRegistry, rubric_registry
from guerdon.errors import RewardConfigError
from guerdon.rubrics.rubric import Rubric

if TYPE_CHECKING:
    from guerdon.services.client import MCPClient

__all__ = ["make_rubric", "make_rubrics"]


def make_rubrics(
    config: RewardConfig,
    *,
    mcp: MCPClient | None = None,
    registry: RubricRegistry = rubric_registry,
) -> dict[str, Rubric]:
    """Make every rubric of a configuration.

    Example:
        >>> from guerdon import RewardConfig
        >>> from guerdon.config import make_rubrics
        >>> make_rubrics(RewardConfig(per_turn=[
        ...     {"name": "polite", "rubric": "RegexMatch", "config": {"pattern": "please"}},
        ... ]))["polite"]("please come", None)
        1.0

    Args:
        config: The configuration.
        mcp: The services that rubrics may use.
        registry: Where names are looked up.

    Returns:
        Rubrics by the names of their entries, in the order of the file.

    Raises:
        RewardConfigError: Entries name no rubric, or one that can't be made of its config;
            `RewardConfigError.problems` has a line for each mistake.
    """
    maker = Maker(mcp, registry, config.document.folder, tuple(config.mcp_services))
    made: dict[str, Rubric] = {}
    problems: list[Problem] = []
    for key in LISTS:
        for number, entry in enumerate(getattr(config, key)):
            rubric = maker.rubric(entry)
            if isinstance(rubric, Rubric):
                made[entry.name] = rubric
            else:
                problems += [each.within(key, number) for each in rubric]
    if problems:
        raise config.error(problems)
    return made


def make_rubric(
    entry: RubricEntry,
    *,
    mcp: MCPClient | None = None,
    registry: RubricRegistry = rubric_registry,
    folder: str | Path | None = None,
) -> Rubric:
    """Make the rubric of one entry.

    A class or function that has a parameter ``config`` is given the entry's config: as an instance
    of the dataclass or pydantic model that the parameter is annotated with, as a dictionary
    otherwise. One that has none is given the config's keys as its arguments. A parameter
    ``mcp_client`` is given the services.

    Example:
        >>> from guerdon.config import RubricEntry, make_rubric
        >>> make_rubric(RubricEntry(name="polite", rubric="RegexMatch", config={"pattern": "ok"}))
        RegexMatch(pattern='ok')

    Args:
        entry: The entry.
        mcp: The services that it may use.
        registry: Where its name is looked up.
        folder: Where ``file.py:name`` is looked for; None is the present directory.

    Raises:
        RewardConfigError: It names no rubric, or one that can't be made of its config.
    """
    made = Maker(mcp, registry, folder).rubric(entry)
    if isinstance(made, Rubric):
        return made
    lines = [f"{place_text(each.place)}: {each.said}" for each in made]
    raise RewardConfigError("\n".join(lines), problems=lines)
