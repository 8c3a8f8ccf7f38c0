"""`RubricList` and `RubricDict`: rubrics kept together for a hand-written parent."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Any, NoReturn, TypeAlias

from guerdon.errors import (
    NoAggregationError,
    RubricDefinitionError,
    RubricPathError,
    TrajectoryError,
)
from guerdon.rubrics import step_rewards
from guerdon.rubrics.function import RubricLike, as_rubric
from guerdon.rubrics.rubric import Rubric

__all__ = ["RubricDict", "RubricList"]


Named: TypeAlias = "Mapping[str, RubricLike] | Iterable[tuple[str, RubricLike]]"


class _Collection(Rubric):
    def forward(self, action: Any, observation: Any) -> NoReturn:
        """Refuse: only a parent knows what to make of the scores."""
        raise NoAggregationError(
            f"{type(self).__name__} doesn't say how to make one score of several: call its "
            "members from the forward of a parent, or use WeightedSum or Sequential"
        )

    def __len__(self) -> int:
        return len(self._children)

    def __bool__(self) -> bool:
        return True  # an empty one is still a rubric

    def _accept(self, rubrics: Iterable[RubricLike]) -> list[Rubric]:
        """Make rubrics of what was given, and refuse those that can't be members."""
        members = [as_rubric(rubric) for rubric in rubrics]
        for member in members:
            self._check_child("a member", member)
        return members

    def _put(self, name: str, rubric: Rubric) -> None:
        """Register a child, past the rules for the names of attributes."""
        self._adopt(name, rubric)
        self.__dict__[name] = rubric


class RubricList(_Collection):
    """Rubrics by place, like ``torch.nn.ModuleList``. It has no score of its own.

    Example:
        >>> from guerdon import RegexMatch, Rubric, RubricList
        >>> class Any(Rubric):
        ...     '''One of the words is said.'''
        ...     def __init__(self, words):
        ...         super().__init__()
        ...         self.words = RubricList(RegexMatch(word) for word in words)
        ...     def forward(self, action, observation):
        ...         return max(word(action, observation) for word in self.words)
        >>> Any(["yes", "no"])("oh no", None)
        1.0

    Args:
        rubrics: Rubrics or functions to start with.
    """

    def __init__(self, rubrics: Iterable[RubricLike] = ()) -> None:
        super().__init__()
        self.extend(rubrics or ())

    def append(self, rubric: RubricLike) -> RubricList:
        """Add a rubric at the end."""
        return self.extend([rubric])

    def extend(self, rubrics: Iterable[RubricLike]) -> RubricList:
        """Add several at the end; all of them, or, where one is refused, none."""
        for member in self._accept(rubrics):
            self._put(f"rubric_{len(self)}", member)
        return self

    def insert(self, index: int, rubric: RubricLike) -> None:
        """Add a rubric in front of the one at `index`."""
        (member,) = self._accept([rubric])
        members = list(self)
        members.insert(index, member)
        self._replace_all(members)

    def pop(self, index: int = -1) -> Rubric:
        """Remove a rubric and give it back."""
        rubric: Rubric = self[index]
        del self[index]
        return rubric

    def _replace_all(self, members: list[Rubric]) -> None:
        for name in list(self._children):
            super()._release(name)
        for place, member in enumerate(members):
            self._put(f"rubric_{place}", member)

    def _release(self, name: str) -> Rubric:
        child = super()._release(name)
        self._replace_all(list(self))  # those behind it move up
        return child

    def __setattr__(self, name: str, value: Any) -> None:
        if value is None and name in self.__dict__.get("_children", ()):
            self._release(name)  # and the name is that of the one behind it
        else:
            super().__setattr__(name, value)

    def _check_name(self, name: str) -> None:
        super()._check_name(name)
        if name not in self._children:
            raise RubricDefinitionError(
                f"RubricList takes no child named {name!r}; append it, or set it by its place"
            )

    def _name(self, index: int) -> str:
        if not isinstance(index, int):
            raise RubricPathError(f"{index!r} is no place in a RubricList; it takes an int")
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise RubricPathError(f"no rubric at {index}: the list has {len(self)}")
        return f"rubric_{place}"

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return RubricList(list(self)[index])
        return self._children[self._name(index)]

    def __setitem__(self, index: int, rubric: RubricLike) -> None:
        if not isinstance(index, int):
            raise RubricDefinitionError("RubricList takes one rubric at one place, not at a slice")
        self._put(self._name(index), as_rubric(rubric))

    def __iadd__(self, rubrics: Iterable[RubricLike]) -> RubricList:
        return self.extend(rubrics)

    def __delitem__(self, index: int | slice) -> None:
        members = list(self)
        if not isinstance(index, slice):
            self._name(index)
        del members[index]
        self._replace_all(members)

    def __iter__(self) -> Iterator[Rubric]:
        return iter(list(self._children.values()))

    def __contains__(self, rubric: object) -> bool:
        return any(member is rubric for member in self._children.values())

    def _rewards_by_step(self) -> dict[int, float]:
        self.forward(None, None)
        raise AssertionError  # forward always raises


class RubricDict(_Collection):
    """Rubrics by name, like ``torch.nn.ModuleDict``, to choose from. It has no score of its own.

    A trajectory rubric in it sees only the steps at which it was called.

    Example:
        >>> from guerdon import RegexMatch, Rubric, RubricDict
        >>> class ByTask(Rubric):
        ...     '''Each task has a rubric of its own.'''
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.tasks = RubricDict(
        ...             {"greet": RegexMatch("hello"), "leave": RegexMatch("bye")})
        ...     def forward(self, action, observation):
        ...         return self.tasks[observation](action, observation)
        >>> ByTask()("hello", "greet"), ByTask()("hello", "leave")
        (1.0, 0.0)

    Args:
        rubrics: Rubrics or functions by name, to start with. A name is a string without dots that
            is no method's.
    """

    _dispatches = True

    def __init__(self, rubrics: Named = ()) -> None:
        super().__init__()
        self.update(rubrics or ())

    def update(self, rubrics: Named) -> None:
        """Add or replace several; all of them, or, where one is refused, none."""
        named = dict(rubrics)
        for name in named:
            self._check_key(name)
        for name, member in zip(named, self._accept(named.values()), strict=True):
            self._put(name, member)

    def keys(self) -> KeysView[str]:
        """The names."""
        return self._children.keys()

    def values(self) -> ValuesView[Rubric]:
        """The rubrics."""
        return self._children.values()

    def items(self) -> ItemsView[str, Rubric]:
        """The names with the rubrics."""
        return self._children.items()

    def pop(self, key: str) -> Rubric:
        """Remove a rubric and give it back."""
        rubric = self[key]
        del self[key]
        return rubric

    def clear(self) -> None:
        """Remove all."""
        for name in list(self._children):
            self._release(name)

    def _check_key(self, key: Any) -> None:
        if not isinstance(key, str) or not key or "." in key:
            raise RubricDefinitionError(
                f"{key!r} can't be a key of RubricDict: "
                "a key is a string that isn't empty and holds no dot"
            )
        if self._is_reserved(key):
            raise RubricDefinitionError(
                f"{key!r} can't be a key of RubricDict: it would hide RubricDict.{key}"
            )

    def __getitem__(self, key: str) -> Rubric:
        if key not in self._children:
            raise RubricPathError(f"no rubric at {key!r}; there are {list(self)}", path=str(key))
        return self._children[key]

    def __setitem__(self, key: str, rubric: RubricLike) -> None:
        self._check_key(key)
        self._put(key, as_rubric(rubric))

    def __delitem__(self, key: str) -> None:
        self[key]
        self._release(key)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._children))

    def __contains__(self, key: object) -> bool:
        return key in self._children

    def _rewards_by_step(self) -> dict[int, float]:
        rewards: dict[int, float] = {}
        known = {name: step_rewards.by_step(child) for name, child in self.items()}
        for step, stamp in enumerate(step_rewards.stamps(self)):
            called = [name for name in self if step_rewards.was_called(self[name], stamp)]
            if len(called) > 1:
                raise TrajectoryError(
                    f"at step {step} several rubrics of the RubricDict were called: {called}; "
                    "its step rewards are those of the one that was"
                )
            rewards[stamp] = known[called[0]].get(stamp, 0.0) if called else 0.0
        return rewards
