"""`Node`: a rubric's place in its tree, with registration and traversal."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from inspect import get_annotations
from typing import TYPE_CHECKING, Any, cast

from guerdon.errors import RubricDefinitionError, RubricPathError
from guerdon.rubrics.construction import RubricMeta, SetByInit, forgotten

if TYPE_CHECKING:
    from guerdon.rubrics.rubric import Rubric

__all__ = ["Node", "Traits"]


@dataclass(frozen=True, slots=True)
class Traits:
    """What holds of a rubric with all that is below it.

    Attributes:
        is_async: Something in the tree is async, so that calling it gives an awaitable.
        waits: Something in it that is called as sync waits for others, and has an async twin.
        holds_trajectory: There is a trajectory rubric in the tree, the rubric itself included.
        stateful: Something in the tree has state that `reset` clears.
        paths: The dotted path of each descendant, by its identity.
    """

    is_async: bool
    waits: bool
    holds_trajectory: bool
    stateful: bool
    paths: dict[int, str]


class Node(metaclass=RubricMeta):
    """The part of a rubric that makes trees of rubrics.

    Children are kept in a registry, in the order in which they came, and as attributes. A rubric
    that changes tells those above it, so that what they know of the tree is looked up again.
    """

    # What this rubric itself is; the traits say it of the whole tree.
    _is_async: bool = False
    _waits: bool = False
    _is_trajectory: bool = False
    _is_stateful: bool = False
    _configures: frozenset[str] = frozenset()  # attributes that are declared as configuration

    _children: dict[str, Rubric]
    _parents: list[weakref.ref[Rubric]] = cast("list[weakref.ref[Rubric]]", SetByInit())
    _traits: Traits | None = cast("Traits | None", SetByInit())

    def __init__(self) -> None:
        self.__dict__.update(_children={}, _parents=[], _traits=None)

    # Traversal -------------------------------------------------------------------------------

    def children(self) -> Iterator[Rubric]:
        """The immediate children."""
        yield from list(self._children.values())

    def named_children(self) -> Iterator[tuple[str, Rubric]]:
        """The immediate children with their names."""
        yield from list(self._children.items())

    def rubrics(self) -> Iterator[Rubric]:
        """All descendants, depth first; a shared one once."""
        for _, rubric in self.named_rubrics():
            yield rubric

    def named_rubrics(self, prefix: str = "") -> Iterator[tuple[str, Rubric]]:
        """All descendants with their dotted names, depth first; a shared one once.

        Args:
            prefix: Put before each name, with a dot.
        """
        yield from _walk(self, prefix, set())

    def get_rubric(self, path: str) -> Rubric:
        """The descendant at a dotted path, such as ``"code.syntax"``; ``""`` is this rubric.

        Raises:
            RubricPathError: There is none (a `KeyError`); the message names those that there are.
        """
        here = cast("Rubric", self)
        for name in path.split(".") if path else ():
            if name not in here._children:
                known = [name for name, _ in self.named_rubrics()]
                raise RubricPathError(f"no rubric at {path!r}; there are {known}", path=path)
            here = here._children[name]
        return here

    def __repr__(self) -> str:
        return _draw(cast("Rubric", self), "")

    # Registration ----------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        children = self.__dict__.get("_children")
        if isinstance(value, Node):
            if children is None:
                raise forgotten(type(self))
            self._check_name(name)
            self._adopt(name, cast("Rubric", value))
        elif isinstance(value, type) and issubclass(value, Node):
            raise RubricDefinitionError(
                f"{type(self).__name__}.{name} is the class {value.__name__}; "
                f"make a rubric of it: {value.__name__}(…)"
            )
        elif children and name in children:
            if value is not None:
                raise RubricDefinitionError(
                    f"{type(self).__name__}.{name} is a child: it takes a rubric, or None to "
                    f"remove it, not {type(value).__name__}"
                )
            self._release(name)
        object.__setattr__(self, name, value)
        if children is not None and name in self._configures:
            self._reconfigured()

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__.get("_children", ()):
            self._release(name)
        else:
            object.__delattr__(self, name)

    def _check_name(self, name: str) -> None:
        """Refuse a name that a child can't have here."""
        if self._is_reserved(name):
            raise RubricDefinitionError(
                f"{type(self).__name__}.{name} can't be a child: the name is Rubric's own"
            )

    @classmethod
    def _is_reserved(cls, name: str) -> bool:
        """Whether a child of this name would hide something of `Rubric` or of its container."""
        kinds = [kind for kind in cls.__mro__ if kind.__module__.startswith("guerdon.rubrics.")]
        return any(name in vars(kind) or name in get_annotations(kind) for kind in kinds)

    def _adopt(self, name: str, child: Rubric) -> None:
        """Put `child` into the registry, in place of the one of that name, if any."""
        self._check_child(name, child)
        if name in self._children:
            self._disown(self._children[name])
        self._children[name] = child
        child._parents.append(weakref.ref(cast("Rubric", self)))
        self._changed()

    def _check_child(self, name: str, child: Rubric) -> None:
        """Refuse what can't become a child.

        Raises:
            RubricDefinitionError: The name holds a dot or is no string.
            RubricDefinitionError: This rubric is `child`, or below it.
        """
        if not isinstance(name, str) or not name or "." in name:
            raise RubricDefinitionError(
                f"{name!r} can't name a child of {type(self).__name__}: "
                "a name is a string that isn't empty and holds no dot"
            )
        if child is self or id(self) in child._look().paths:
            raise RubricDefinitionError(
                f"{type(child).__name__} can't become {name!r} of {type(self).__name__}: "
                "it is, or holds, that very rubric"
            )

    def _release(self, name: str) -> Rubric:
        """Take a child out of the registry."""
        child = self._children.pop(name)
        self.__dict__.pop(name, None)
        self._disown(child)
        self._changed()
        return child

    def _disown(self, child: Rubric) -> None:
        for reference in child._parents:
            if reference() is self:
                child._parents.remove(reference)
                return

    # What is known of the tree -----------------------------------------------------------------

    def _look(self) -> Traits:
        """What holds of this rubric with all below it."""
        traits = self._traits
        if traits is None:
            below = [child._look() for child in self._children.values()]
            traits = self.__dict__["_traits"] = Traits(
                is_async=self._is_async or any(each.is_async for each in below),
                waits=self._waits or any(each.waits for each in below),
                holds_trajectory=self._is_trajectory
                or any(each.holds_trajectory for each in below),
                stateful=self._is_stateful or any(each.stateful for each in below),
                # A child of one's own goes by its name here, wherever else it stands.
                paths={id(child): path for path, child in self.named_rubrics()}
                | {id(child): name for name, child in reversed(self._children.items())},
            )
            self._refresh()
        return traits

    def _changed(self) -> None:
        """Let this rubric and all above it look again."""
        if self._traits is None:
            return  # and so have those above it
        self.__dict__["_traits"] = None
        self._forget()
        alive = [(ref, parent) for ref in self._parents if (parent := ref()) is not None]
        self.__dict__["_parents"] = [ref for ref, _ in alive]
        for _, parent in alive:
            parent._changed()

    def _reconfigured(self) -> None:
        """Have what is known of the configuration looked up again."""

    def _forget(self) -> None:
        """Drop what was derived from the traits."""

    def _refresh(self) -> None:
        """Derive it again."""

    # Copies ------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        # Parents find their children again when they come back. The episode is not copied.
        state = {**self.__dict__, "_parents": [], "_traits": None}
        for mark in ("_scored_by", "_is_alike", "_watch"):
            state.pop(mark, None)
        return {
            name: value.copy() if name.startswith("_") and type(value) is dict else value
            for name, value in state.items()
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A child that refers to its parent, as by a hook, may be only half there.
        parents = self.__dict__.get("_parents", [])
        self.__dict__.update(state, _parents=parents)
        self._forget()
        for child in self._children.values():
            child.__dict__.setdefault("_parents", []).append(weakref.ref(cast("Rubric", self)))


def _walk(node: Node, prefix: str, seen: set[int]) -> Iterator[tuple[str, Rubric]]:
    for name, child in list(node._children.items()):
        if id(child) not in seen:
            seen.add(id(child))
            path = f"{prefix}.{name}" if prefix else name
            yield path, child
            yield from _walk(child, path, seen)


def _draw(rubric: Rubric, indent: str) -> str:
    """The tree as text."""
    settings = ", ".join(
        f"{name}={value!r:.60}"
        for name, value in rubric._own_state().items()
        if name not in ("weights", "factors") and name not in rubric._measured
    )
    lines = [f"{rubric._title()}({settings})"]
    for name, child in rubric._children.items():
        weight = rubric._weight_of(name)
        times = f"{weight:g} × " if weight is not None else ""
        lines.append(f"{indent}  {name}: {times}{_draw(child, indent + '  ')}")
    return "\n".join(lines)
