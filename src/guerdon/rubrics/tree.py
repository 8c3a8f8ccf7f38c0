"""The tree: how children are kept, named and found, and what a rubric knows of those below it."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from guerdon.errors import CycleError, InvalidChildError, RubricPathError

if TYPE_CHECKING:
    from guerdon.rubrics.rubric import Rubric

__all__ = ["Traits", "adopt", "changed", "draw", "find", "look", "release", "walk"]


@dataclass(frozen=True, slots=True)
class Traits:
    """What holds of a rubric with all that is below it.

    Attributes:
        is_async: Something in the tree is async, so that calling it gives an awaitable.
        holds_trajectory: There is a trajectory rubric in the tree, the rubric itself included.
        stateful: Something in the tree has state that `reset` clears.
        paths: The dotted path of each descendant, by its identity.
    """

    is_async: bool
    holds_trajectory: bool
    stateful: bool
    paths: dict[int, str]


def walk(rubric: Rubric, prefix: str = "") -> Iterator[tuple[str, Rubric]]:
    """All descendants with their dotted names, depth first; a shared child once."""
    seen: set[int] = set()

    def below(parent: Rubric, prefix: str) -> Iterator[tuple[str, Rubric]]:
        for name, child in list(parent._children.items()):
            if id(child) in seen:
                continue
            seen.add(id(child))
            path = f"{prefix}.{name}" if prefix else name
            yield path, child
            yield from below(child, path)

    return below(rubric, prefix)


def look(rubric: Rubric) -> Traits:
    """Find out what holds of a tree."""
    children = [child._look() for child in rubric._children.values()]
    return Traits(
        is_async=rubric._is_async or any(child.is_async for child in children),
        holds_trajectory=rubric._is_trajectory or any(child.holds_trajectory for child in children),
        stateful=rubric._is_stateful or any(child.stateful for child in children),
        paths={id(child): path for path, child in walk(rubric)},
    )


def find(rubric: Rubric, path: str) -> Rubric:
    """The descendant at a dotted path; ``""`` is the rubric itself.

    Raises:
        RubricPathError: There is none; the message names those that there are.
    """
    here = rubric
    for name in path.split(".") if path else ():
        if name not in here._children:
            known = [name for name, _ in walk(rubric)]
            raise RubricPathError(f"no rubric at {path!r}; there are {known}", path=path)
        here = here._children[name]
    return here


def adopt(parent: Rubric, name: str, child: Rubric) -> None:
    """Put `child` into the registry of `parent`, in place of the one of that name, if any.

    Raises:
        NotInitializedError: One of the two never ran `Rubric.__init__`.
        InvalidChildError: The name holds a dot or is no string.
        CycleError: `parent` is `child` or below it.
    """
    children = parent._children
    if not isinstance(name, str) or not name or "." in name:
        raise InvalidChildError(
            f"{name!r} can't name a child of {type(parent).__name__}: "
            "a name is a string that isn't empty and holds no dot"
        )
    if child is parent or id(parent) in child._look().paths:
        raise CycleError(
            f"{type(child).__name__} can't become {name!r} of {type(parent).__name__}: "
            "it is, or holds, that very rubric"
        )
    if name in children:
        _forget_parent(children[name], parent)
    children[name] = child
    child._parents.append(weakref.ref(parent))
    changed(parent)


def release(parent: Rubric, name: str) -> None:
    """Take the child `name` out of the registry of `parent`."""
    _forget_parent(parent._children.pop(name), parent)
    changed(parent)


def _forget_parent(child: Rubric, parent: Rubric) -> None:
    for reference in child._parents:
        if reference() is parent:
            child._parents.remove(reference)
            return


def changed(rubric: Rubric) -> None:
    """Let a rubric and all above it look again at what they hold."""
    state = rubric.__dict__
    state["_traits"] = None
    state["_mode"] = 0
    alive = []
    for reference in rubric._parents:
        parent = reference()
        if parent is not None:
            alive.append(reference)
            changed(parent)
    state["_parents"] = alive


def draw(rubric: Rubric, indent: str = "") -> str:
    """The tree as text, for `repr`."""
    settings = ", ".join(f"{name}={value!r:.60}" for name, value in _settings(rubric).items())
    lines = [f"{rubric._title()}({settings})"]
    for name, child in rubric._children.items():
        weight = rubric._weight_of(name)
        times = f"{weight:g} × " if weight is not None else ""
        lines.append(f"{indent}  {name}: {times}{draw(child, indent + '  ')}")
    return "\n".join(lines)


def _settings(rubric: Rubric) -> dict[str, Any]:
    return {name: value for name, value in rubric._own_state().items() if name != "weights"}
