"""Everything that is wrong with a reward's file, told at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from guerdon.config.config import RewardConfig, RubricEntry
from guerdon.config.consistency import LISTS
from guerdon.config.documents import Document, Problem
from guerdon.config.making.maker import Maker
from guerdon.config.making.registry import RubricRegistry, rubric_registry

if TYPE_CHECKING:
    from guerdon.services.client import MCPClient

__all__ = ["problems_of_document"]


def problems_of_document(
    document: Document,
    *,
    mcp: MCPClient | None = None,
    registry: RubricRegistry = rubric_registry,
) -> list[Problem]:
    """Everything that is wrong with a reward's file, its rubrics included.

    Those of an entry that is wrong otherwise, too, as far as it says which it means.

    Example:
        >>> from guerdon.config.reading import parse_document
        >>> document = parse_document('{schema_version: 1.0, per_turn: [{rubric: RegexMach}]}')
        >>> for problem in problems_of_document(document):
        ...     print(document.told(problem))
        line 1: per_turn[0].name: it is missing; text is needed
        line 1: per_turn[0].rubric: there is no rubric 'RegexMach'; did you mean 'RegexMatch'?

    Args:
        document: What the file says.
        mcp: The services that rubrics may use.
        registry: Where names are looked up.

    Raises:
        RewardConfigError: It is of another version, of which nothing is known.
    """
    document, problems = RewardConfig.problems_in(document)
    data = document.data if isinstance(document.data, dict) else {}
    services = data.get("mcp_services")
    names = tuple(map(str, services)) if isinstance(services, dict) else ()
    client: Any = mcp if mcp is not None or not names else _Absent(names)
    maker = Maker(client, registry, document.folder, names)
    told = {each.place for each in problems}
    for key in LISTS:
        entries = data.get(key)
        for number, said in enumerate(entries if isinstance(entries, list) else ()):
            entry = _as_far_as_said(said)
            made = maker.rubric(entry) if entry is not None else []
            if isinstance(made, list):
                found = [each.within(key, number) for each in made]
                problems += [each for each in found if each.place not in told]
    return problems


@dataclass(frozen=True, slots=True)
class _Absent:
    """Stands for services that are wrong themselves, which is told where they stand.

    Attributes:
        services: Their names.
    """

    services: tuple[str, ...]


def _as_far_as_said(said: Any) -> RubricEntry | None:
    """An entry that may be wrong otherwise, where its rubric and its config are what they are."""
    if not isinstance(said, dict):
        return None
    rubric, config, private = said.get("rubric"), said.get("config", {}), said.get("private", ())
    if not isinstance(rubric, str) or not isinstance(config, dict):
        return None
    private = tuple(private) if isinstance(private, list) else ()
    return RubricEntry.model_construct(rubric=rubric, config=config, private=private)
