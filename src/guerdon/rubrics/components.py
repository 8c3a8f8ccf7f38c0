"""From what an evaluation recorded to its components: values by dotted name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from guerdon.rubrics.frames import EntryTuple, Frame
    from guerdon.rubrics.rubric import Rubric

__all__ = ["add_components"]


def add_components(
    named: dict[str, float],
    rubric: Rubric,
    frame: Frame,
    prefix: str,
    caught: dict[str, Exception],
) -> None:
    """Add the values that were recorded below a rubric.

    A rubric that was called twice has its second value under ``name#2``.

    Args:
        named: Takes the values by dotted name.
        rubric: The rubric whose frame it is.
        frame: What was recorded in it.
        prefix: Put before each name: the rubric's own path with a dot, ``""`` for the root.
        caught: Takes, by dotted name, what rubrics raised.
    """
    _note(caught, prefix.removesuffix("."), frame)
    paths = (rubric._traits or rubric._look()).paths
    for child, value, _, below in _ordered(rubric, frame):
        path = paths.get(id(child))
        if path is None:
            continue  # not of this tree: whoever called it answers for it
        name = prefix + path
        if value is not None:
            if name in named:
                name = _again(rubric, child, prefix, named)
            named[name] = value
        add_components(named, child, below, f"{name}.", caught)


def _ordered(rubric: Rubric, frame: Frame) -> list[EntryTuple]:
    """What was recorded, in the tree's order: children that wait end in any order."""
    entries = frame.entries
    if len(entries) < 2 or not (rubric._traits or rubric._look()).waits:
        return entries
    places = {id(child): place for place, child in enumerate(rubric._children.values())}
    return sorted(entries, key=lambda entry: places.get(id(entry[0]), len(places)))


def _note(caught: dict[str, Exception], name: str, frame: Frame) -> None:
    if frame.error is not None:
        caught[name] = frame.error
    for hook, error in frame.hook_errors:
        caught[f"{name} (hook {hook})".lstrip()] = error


def _again(rubric: Rubric, child: Rubric, prefix: str, taken: dict[str, float]) -> str:
    """The name of a rubric's second score: that of its second place in the parent, or a number."""
    places = [prefix + name for name, other in rubric._children.items() if other is child]
    if len(places) < 2:
        places = [f"{prefix}{rubric._look().paths[id(child)]}"]
        places += [f"{places[0]}#{number}" for number in range(2, len(taken) + 3)]
    return next((name for name in places if name not in taken), places[-1])
