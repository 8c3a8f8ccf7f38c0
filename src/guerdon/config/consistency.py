"""What is wrong between the parts of a reward's configuration, each fine by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from guerdon.config.documents import Place, Problem, near, place_text

__all__ = ["LISTS", "inconsistencies"]

#: The lists of entries, by what is due when.
LISTS = ("per_turn", "episode_end")


def inconsistencies(data: Mapping[str, Any]) -> list[Problem]:
    """Names that come twice, and names that nothing has; of data that may be wrong otherwise.

    Example:
        >>> entry = {"name": "polite", "rubric": "RegexMatch"}
        >>> [problem.said for problem in inconsistencies({"per_turn": [entry, entry]})]
        ["the name 'polite' is taken by per_turn[0]; each entry needs one of its own"]
    """
    problems: list[Problem] = []
    names: dict[str, Place] = {}
    for place, name in _names(data):
        first = names.setdefault(name, place)
        if first != place:
            said = f"the name {name!r} is taken by {place_text(first)}"
            problems.append(Problem((*place, "name"), f"{said}; each entry needs one of its own"))
    if not any(data.get(key) for key in LISTS):
        said = "there is no entry; a reward needs one in per_turn or episode_end"
        problems.append(Problem((), said))
    for place, name in _named_by_stages(data.get("curriculum")):
        if names and name not in names:
            said = f"there is no entry {name!r:.60}; {near(name, names)}"
            problems.append(Problem(place, said))
    return problems


def _names(data: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
    for key in LISTS:
        entries = data.get(key)
        for number, entry in enumerate(entries if isinstance(entries, Sequence) else ()):
            name = _get(entry, "name")
            if isinstance(name, str):
                yield (key, number), name


def _named_by_stages(stages: Any) -> Iterator[tuple[Place, str]]:
    """The entries that the stages of a curriculum name."""
    for number, stage in enumerate(stages if isinstance(stages, Sequence) else ()):
        weights, until = _get(stage, "weights"), _get(stage, "until")
        for name in weights if isinstance(weights, Mapping) else ():
            yield ("curriculum", number, "weights", name), name
        component = _get(until, "component")
        if isinstance(component, str):
            yield ("curriculum", number, "until", "component"), component


def _get(thing: Any, key: str) -> Any:
    """What a mapping, or what was made of one, has under a key."""
    return thing.get(key) if isinstance(thing, Mapping) else getattr(thing, key, None)
