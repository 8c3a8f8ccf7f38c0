"""`Node`: the base of every rubric, with its children, its traits and its place in the tree.

The modules below `Rubric` work on nodes, so that none of them imports the class itself.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from abc import ABCMeta
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar, cast

from guerdon._validation import as_finite
from guerdon.errors import RubricDefinitionError, RubricPathError

RubricT = TypeVar("RubricT", bound="Node[Any]")
AnyNode: TypeAlias = "Node[Any]"

# The values of `Node._mode`: how a call evaluates the rubric. The higher ones are for trees that
# are sync, have no hooks at the root and contain no trajectory rubric.
SLOW = 0  # by the recording evaluator; also if the traits aren't known yet
PLAIN = 1  # by calling `forward`
CONTAINER = 2  # a built-in container: by evaluating its children in one loop
LEAF = 3  # without children: by calling `forward`, which its parent may do itself


class RubricMeta(ABCMeta):
    """Rejects a rubric without `forward`, and one whose ``__init__`` doesn't call its parent's."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Create a rubric and check that it is complete."""
        missing = sorted(getattr(cls, "__abstractmethods__", ()))
        if missing:
            raise RubricDefinitionError(
                f"{cls.__name__} can't be instantiated: implement {' and '.join(missing)}"
            )
        rubric = super().__call__(*args, **kwargs)
        if "_children" not in rubric.__dict__:
            raise not_initialized(cls)
        return rubric

    @property
    def __signature__(cls) -> inspect.Signature:
        """The signature of ``__init__``, for `help` and editors."""
        signature = inspect.signature(cls.__init__)  # type: ignore[misc]
        return signature.replace(parameters=list(signature.parameters.values())[1:])


def not_initialized(kind: type) -> RubricDefinitionError:
    """Return the error for a class whose ``__init__`` doesn't call ``super().__init__()``."""
    return RubricDefinitionError(f"{kind.__name__}.__init__ must call super().__init__() first")


@dataclass(frozen=True, slots=True)
class Traits:
    """Properties of a rubric and everything below it.

    Attributes:
        is_async: The tree has an async member, so that calling it returns an awaitable.
        waits: The tree has a sync member with an async twin, ``forward_async``.
        has_trajectory: The tree has a trajectory rubric.
        stateful: The tree has a member with state that `reset` clears.
        paths: The dotted path of each descendant, by the descendant's `id`.
    """

    is_async: bool
    waits: bool
    has_trajectory: bool
    stateful: bool
    paths: dict[int, str]


class Node(Generic[RubricT], metaclass=RubricMeta):
    """The part of a rubric that forms trees.

    Children are kept in a registry, in the order of their registration, and as attributes. A change
    of a rubric invalidates what its ancestors have cached about the tree.
    """

    # Of the class itself; `Traits` combines them over the tree.
    _is_async: bool = False
    _waits: bool = False
    _is_trajectory: bool = False
    _is_stateful: bool = False
    _is_container: bool = False  # its `forward` is the framework's own, see `adaptive`
    _runs_inline: bool = False  # its `forward` is that of `Container`
    _dispatches: bool = False  # children that it doesn't call do not see the step
    _overrides_step_rewards: bool = False
    _overrides_loading: bool = False
    _configures: frozenset[str] = frozenset()  # attributes that are declared as configuration
    _measured: ClassVar[tuple[str, ...]] = ()  # of the state: observed values, not configuration
    _written_calls: ClassVar[tuple[Callable[..., Any], ...]] = ()  # authors' __call__, in MRO order

    _children: dict[str, RubricT]
    _parents: list[weakref.ref[RubricT]]
    _traits: Traits | None
    _mode: int
    _pre_hooks: dict[int, Any]
    _hooks: dict[int, Any]
    _log: dict[int, Any]  # the outcome of each step of the episode, see `recording`

    forward: Any  # of subclasses

    def __init__(self) -> None:
        self.__dict__.update(
            _children={}, _parents=[], _traits=None, _mode=SLOW, _pre_hooks={}, _hooks={}, _log={}
        )

    # Traversal -------------------------------------------------------------------------------

    def children(self) -> Iterator[RubricT]:
        """Iterate over the immediate children."""
        yield from list(self._children.values())

    def named_children(self) -> Iterator[tuple[str, RubricT]]:
        """Iterate over the immediate children with their names."""
        yield from list(self._children.items())

    def rubrics(self) -> Iterator[RubricT]:
        """Iterate over all descendants, depth first; a shared one comes once."""
        for _, rubric in self.named_rubrics():
            yield rubric

    def named_rubrics(self, prefix: str = "") -> Iterator[tuple[str, RubricT]]:
        """Iterate over all descendants with their dotted names, depth first; a shared one once.

        Args:
            prefix: Put before each name, with a dot.
        """
        yield from _walk(self, prefix, set())

    def get_rubric(self, path: str) -> RubricT:
        """Return the descendant at a dotted path, such as ``"code.syntax"``; ``""`` is the root.

        Raises:
            RubricPathError: There is no rubric at that path; the message lists the paths. It is
                a `KeyError`.
        """
        here = cast("RubricT", self)
        for name in path.split(".") if path else ():
            if name not in here._children:
                known = [name for name, _ in self.named_rubrics()]
                raise RubricPathError(f"no rubric at {path!r}; there are {known}", path=path)
            here = here._children[name]
        return here

    def __repr__(self) -> str:
        return _draw(self, "")

    # Registration ----------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        children = self.__dict__.get("_children")
        if isinstance(value, Node):
            if children is None:
                raise not_initialized(type(self))
            self._check_name(name)
            self._adopt(name, cast("RubricT", value))
        elif isinstance(value, type) and issubclass(value, Node):
            raise RubricDefinitionError(
                f"{type(self).__name__}.{name} must be a rubric, got the class {value.__name__}; "
                f"instantiate it: {value.__name__}(…)"
            )
        elif children and name in children:
            if value is not None:
                raise RubricDefinitionError(
                    f"{type(self).__name__}.{name} is a child: assign a rubric, or None to "
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
        """Reject a name that a child can't have here."""
        if self._is_reserved(name):
            raise RubricDefinitionError(
                f"{type(self).__name__}.{name} can't be a child: the name is reserved by Rubric"
            )

    @classmethod
    def _is_reserved(cls, name: str) -> bool:
        """Whether a child of this name would hide an attribute of the framework's classes."""
        kinds = [kind for kind in cls.__mro__ if kind.__module__.startswith("guerdon.rubrics.")]
        return any(name in vars(kind) or name in inspect.get_annotations(kind) for kind in kinds)

    def _adopt(self, name: str, child: RubricT) -> None:
        """Register `child`, replacing the one of that name."""
        self._check_child(name, child)
        if name in self._children:
            self._disown(self._children[name])
        self._children[name] = child
        child._parents.append(weakref.ref(self))
        self._changed()

    def _check_child(self, name: str, child: RubricT) -> None:
        """Reject a rubric that can't become a child.

        Raises:
            RubricDefinitionError: The name is not a non-empty string without dots, or this rubric
                is `child` or below it.
        """
        if not isinstance(name, str) or not name or "." in name:
            raise RubricDefinitionError(
                f"{name!r} can't name a child of {type(self).__name__}: a name must be a "
                "non-empty string without dots"
            )
        if child is self or id(self) in child._look().paths:
            raise RubricDefinitionError(
                f"{type(child).__name__} can't become {name!r} of {type(self).__name__}: "
                "it is that very rubric, or contains it"
            )

    def _release(self, name: str) -> RubricT:
        """Remove a child from the registry."""
        child = self._children.pop(name)
        self.__dict__.pop(name, None)
        self._disown(child)
        self._changed()
        return child

    def _disown(self, child: RubricT) -> None:
        for reference in child._parents:
            if reference() is self:
                child._parents.remove(reference)
                return

    # Traits ------------------------------------------------------------------------------------

    def _look(self) -> Traits:
        """The traits of this rubric and everything below it."""
        traits = self._traits
        if traits is None:
            below = [child._look() for child in self._children.values()]
            traits = self.__dict__["_traits"] = Traits(
                is_async=self._is_async or _any(below, "is_async"),
                waits=self._waits or _any(below, "waits"),
                has_trajectory=self._is_trajectory or _any(below, "has_trajectory"),
                stateful=self._is_stateful or _any(below, "stateful"),
                # An immediate child has its own name, even if it is also further down.
                paths={id(child): path for path, child in self.named_rubrics()}
                | {id(child): name for name, child in reversed(self._children.items())},
            )
            self._refresh()
        return traits

    def _changed(self) -> None:
        """Invalidate the traits of this rubric and its ancestors."""
        if self._traits is None:
            return  # those of the ancestors are invalid, too
        self.__dict__["_traits"] = None
        self._forget()
        alive = [(ref, parent) for ref in self._parents if (parent := ref()) is not None]
        self.__dict__["_parents"] = [ref for ref, _ in alive]
        for _, parent in alive:
            parent._changed()

    def _forget(self) -> None:
        """Drop what was derived from the traits."""
        self.__dict__["_mode"] = SLOW

    def _refresh(self) -> None:
        """Derive the mode from the traits and hooks."""
        traits = self._look()
        if (
            traits.is_async
            or traits.has_trajectory
            or self._written_calls
            or self._hooks
            or self._pre_hooks
        ):
            mode = SLOW
        elif self._runs_inline:
            mode = CONTAINER
        else:
            mode = PLAIN if self._children else LEAF
        self.__dict__["_mode"] = mode

    def _reconfigured(self) -> None:
        """Invalidate what was derived from the configuration, here and in the ancestors."""

    # Descriptions, which subclasses override ---------------------------------------------------

    def _title(self) -> str:
        """The name in `repr` and ``guerdon tree``."""
        return type(self).__name__

    def _described(self) -> object:
        """The object whose docstring and source describe what is measured."""
        return type(self)

    def _weight_of(self, name: str) -> float | None:
        """The weight of a child: by its name or its place in the attribute ``weights``, if any."""
        weights = getattr(self, "weights", None)
        if isinstance(weights, (list, tuple)) and len(weights) == len(self._children):
            weights = dict(zip(self._children, weights, strict=True))
        return as_finite(weights.get(name)) if isinstance(weights, Mapping) else None

    def _range(self) -> tuple[float, float] | None:
        """The lowest and highest score: declared, or, of a container, derived."""
        return None

    def _needs(self, name: str) -> str | None:
        """The condition under which the child `name` is evaluated, in words."""
        return None

    def _why_absent(self, name: str) -> str | None:
        """Why the child `name` was not evaluated, if that was this rubric's decision."""
        return None

    def _own_state(self) -> dict[str, Any]:
        """The configuration of this rubric alone."""
        return {}

    # Copies ------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        # Parents find their children again when they are restored.
        state = {**self.__dict__, "_parents": [], "_traits": None}
        return {
            name: value.copy() if name.startswith("_") and type(value) is dict else value
            for name, value in state.items()
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A child that refers to its parent, as by a hook, may be restored only in part.
        parents = self.__dict__.get("_parents", [])
        self.__dict__.update(state, _parents=parents)
        self._forget()
        for child in self._children.values():
            child.__dict__.setdefault("_parents", []).append(weakref.ref(self))


def _any(below: list[Traits], name: str) -> bool:
    return any(getattr(traits, name) for traits in below)


def _walk(node: AnyNode, prefix: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    for name, child in list(node._children.items()):
        if id(child) not in seen:
            seen.add(id(child))
            path = f"{prefix}.{name}" if prefix else name
            yield path, child
            yield from _walk(child, path, seen)


def _draw(node: AnyNode, indent: str) -> str:
    """The tree as text."""
    settings = ", ".join(
        f"{name}={value!r:.60}"
        for name, value in node._own_state().items()
        if name not in ("weights", "factors") and name not in node._measured
    )
    lines = [f"{node._title()}({settings})"]
    for name, child in node._children.items():
        weight = node._weight_of(name)
        times = f"{weight:g} × " if weight is not None else ""
        lines.append(f"{indent}  {name}: {times}{_draw(child, indent + '  ')}")
    return "\n".join(lines)


def is_async_callable(function: Any) -> bool:
    """Whether calling a function is known to return an awaitable."""
    function = unwrapped(function)
    # The second: an object whose __call__ is async.
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(type(function), "__call__", None)  # noqa: B004
    )


def unwrapped(function: Any) -> Any:
    """The function behind any number of `functools.partial`."""
    while isinstance(function, functools.partial):
        function = function.func
    return function
