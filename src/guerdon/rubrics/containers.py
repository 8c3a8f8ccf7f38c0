"""The containers: `Sequential`, `Gate`, `WeightedSum`, and `RubricList` and `RubricDict`.

The first three compute one score of several; the others keep rubrics for a hand-written parent.
A container is a rubric like any other: its `forward` calls its children. The ones here derive from
`Container`, so that their aggregation (`_combine`) is written once for sync and async trees.
"""

from __future__ import annotations

import math
from collections.abc import (
    Collection,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    MutableSequence,
    Sequence,
)
from operator import mul
from typing import Any, ClassVar, NoReturn, Self, TypeAlias

from guerdon._thresholds import TOLERANCE, is_zero, reaches
from guerdon._validation import check_number, shown
from guerdon.errors import (
    InvalidArgumentError,
    NoAggregationError,
    RubricDefinitionError,
    RubricError,
    RubricPathError,
    TrajectoryError,
)
from guerdon.rubrics import step_rewards
from guerdon.rubrics.calling import due
from guerdon.rubrics.evaluation import adaptive, score_child, score_children
from guerdon.rubrics.function import RubricLike, as_rubric
from guerdon.rubrics.recording import StepScore, is_pending
from guerdon.rubrics.rubric import Rubric
from guerdon.rubrics.state import Checked
from guerdon.rubrics.step_rewards import exact_sum
from guerdon.types.score import is_generic

__all__ = ["Gate", "RubricDict", "RubricList", "Sequential", "WeightedSum"]


_NO_KIDS: dict[str, Any] = {"_kids": (), "_kids_at_end": ()}


class Container(Rubric):
    """A rubric whose score is computed from those of its children.

    A subclass implements `_combine`. One that overrides `forward` is a hand-written parent.
    """

    _in_order: ClassVar[bool] = True  # else the children are evaluated concurrently
    _generic: ClassVar[str] = "rubric_{}"  # the name of a child at a place
    _aliases: Mapping[str, str] = {}  # the names of those with a name of their own, by generic name
    _stops_at_zero: ClassVar[bool] = False
    # The children to evaluate, as (name, child, child.__dict__), and those at the end of an
    # episode, if they differ.
    _kids: tuple[tuple[str, Rubric, dict[str, Any]], ...]
    _kids_at_end: tuple[tuple[str, Rubric, dict[str, Any]], ...]

    def __init__(self) -> None:
        super().__init__()
        self.__dict__.update(_NO_KIDS)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._runs_inline = cls.forward is Container.forward and not cls._written_calls
        if not cls._is_container:
            cls._rewards_by_step = Rubric._rewards_by_step  # type: ignore[method-assign]

    @adaptive
    async def forward(self, action: Any, observation: Any) -> float:
        """Evaluate the children and combine their scores."""
        self._find_traits()  # if forward is called by itself, the children may have changed
        children = [child for _, child, _ in due(self, observation)]
        if not self._in_order:
            return self._combine(await score_children(self, children, action, observation))
        scores: list[float] = []
        for child in children:
            scores.append(await score_child(self, child, action, observation))
            if self._stops_at_zero and is_zero(scores[-1]) and not is_pending(scores[-1]):
                break
        return self._combine(scores)

    def _combine(self, scores: Sequence[float]) -> float:
        """Return the score, from those of the children that were evaluated, in their order."""
        raise NotImplementedError

    def _refresh(self) -> None:
        super()._refresh()
        # A hook may change the children during an evaluation: that counts from the next call on.
        kids = tuple((name, child, child.__dict__) for name, child in self._children.items())
        self.__dict__["_kids"] = kids

    def _adopt(self, name: str, child: Rubric) -> None:
        super()._adopt(name, child)
        # A child that comes back has its old place: order counts, and weights are saved by place.
        ordered = sorted(self._children.items(), key=lambda item: self._place(item[0]))
        self.__dict__["_children"] = dict(ordered)

    def _add(self, named: Mapping[str, RubricLike]) -> None:
        """Add children in order; the path of one with a name is also ``rubric_0`` and so on."""
        for place, (name, rubric) in enumerate(named.items()):
            generic = self._generic.format(place)
            if name != generic:
                if is_generic(name):
                    raise InvalidArgumentError(f"{name!r} can't be the name of rubric {place}")
                self._aliases = {**self._aliases, generic: name}
            self._adopt(name, as_rubric(rubric))
            self.__dict__[name] = self._children[name]

    def _child(self, name: str) -> Rubric | None:
        return super()._child(self._aliases.get(name, name))

    def _place(self, name: str) -> float:
        """The place of a child among the others: that of ``rubric_3`` is 3."""
        for generic, own in self._aliases.items():
            name = generic if name == own else name
        number = name.removeprefix("rubric_")
        return int(number) if number.isdecimal() else math.inf

    def _only_child(self) -> Rubric:
        """The child of a container that has one.

        Raises:
            RubricError: It has been removed, or others have been added.
        """
        if len(self._children) != 1:
            raise RubricError(
                f"a {type(self).__name__} has one child; this one has {list(self._children)}"
            )
        return next(iter(self._children.values()))

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), **_NO_KIDS}


class Sequential(Container):
    """The score of the last rubric, or 0 as soon as one scores 0.

    An intermediate 0.0 of a trajectory rubric means "not yet" and stops nothing. A trajectory
    rubric in the last place also sees the steps at which an earlier one scored 0; the step reward
    of such a step is 0.0. In an asyncio event loop, the score of sync rubrics may be awaited, too.

    Example:
        >>> from guerdon import LengthBounds, RegexMatch, Sequential
        >>> rubric = Sequential(RegexMatch("please"), LengthBounds(maximum=20))
        >>> rubric("please come", None), rubric("come", None), Sequential()("come", None)
        (1.0, 0.0, 1.0)

    Args:
        *rubrics: Rubrics or functions, in order, or one mapping of names to them. Without any, the
            score is 1.0.

    Raises:
        RubricDefinitionError: A name or a rubric is invalid.
    """

    _stops_at_zero = True
    _may_be_awaited = True

    def __init__(self, *rubrics: RubricLike | Mapping[str, RubricLike]) -> None:
        super().__init__()
        is_named = len(rubrics) == 1 and _is_mapping(rubrics[0])
        self._add(named_rubrics(rubrics[0] if is_named else rubrics))

    def _combine(self, scores: Sequence[float]) -> float:
        if not scores:
            return 1.0
        last = scores[-1]
        if last > TOLERANCE or last == 0.0 or not is_zero(last):
            return last
        # An earlier one that scored 0 but for rounding has stopped it.
        return last if len(scores) == len(self._children) else StepScore(0.0, stamp=None)

    def _range(self) -> tuple[float, float] | None:
        children = list(self._children.values())
        if not children:
            return (1.0, 1.0)
        last = children[-1]._range()
        return last if len(children) == 1 else with_zero(last)

    def _needs(self, name: str) -> str | None:
        names = list(self._children)
        place = names.index(name)
        return f"{names[place - 1]} ≠ 0" if place else None

    def _rewards_by_step(self) -> dict[int, float]:
        children = list(self._children.values())
        if not children:
            return dict.fromkeys(step_rewards.stamps(self), 1.0)
        last = children[-1]
        rewards = step_rewards.on(step_rewards.stamps(self), step_rewards.by_step(last))
        called = (stamp for stamp in self._log if step_rewards.was_called(self, stamp))
        stopped = [stamp for stamp in called if not step_rewards.was_called(last, stamp)]
        return {**rewards, **dict.fromkeys(stopped, 0.0)}

    def __len__(self) -> int:
        return len(self._children)

    def __bool__(self) -> bool:
        return True  # an empty one is still a rubric

    def __getitem__(self, index: int) -> Rubric:
        return list(self._children.values())[index]


class Gate(Container):
    """The score of its rubric, or 0 if it is below the threshold.

    Example:
        >>> from guerdon import Gate
        >>> gate = Gate(lambda action, observation: action, threshold=0.5)
        >>> gate(0.5, None), gate(0.4, None)
        (0.5, 0.0)

    Args:
        rubric: A rubric or a function, or a mapping of its name to it.
        threshold: The lowest score that passes, a finite number; within the rubric's
            `score_range`, if it declares one. A score that is less than 1e-9 below it passes.

    Raises:
        InvalidArgumentError: `threshold` is outside of what is accepted.
        RubricError: The mapping doesn't have one rubric.
    """

    _generic = "rubric"

    state_names = ("threshold",)
    tunable = ("threshold",)
    threshold = Checked(check_number, limits_of=lambda gate: gate._limits())

    def __init__(
        self, rubric: RubricLike | Mapping[str, RubricLike], threshold: float = 1.0
    ) -> None:
        super().__init__()
        self._add(named_rubrics(rubric if _is_mapping(rubric) else {"rubric": rubric}))
        self.threshold = threshold

    def _limits(self) -> dict[str, float]:
        """The limits of the threshold; a derived range would change with weights."""
        child = self._only_child()
        declared = check_range(child, child.score_range)
        return {} if declared is None else {"low": declared[0], "high": declared[1]}

    def _combine(self, scores: Sequence[float]) -> float:
        if len(scores) != 1:
            self._only_child()  # raises
        if scores[0] >= self.threshold - TOLERANCE:  # reaches, without the call
            return scores[0]
        self.explain("%.6g is under the threshold of %.6g", scores[0], self.threshold)
        return 0.0

    def _range(self) -> tuple[float, float] | None:
        return with_zero(self._only_child()._range()) if self._children else None

    def _needs(self, name: str) -> str | None:
        return f"passes at {self.threshold:g}"

    def _rewards_by_step(self) -> dict[int, float]:
        child = self._only_child()
        rewards = step_rewards.on(step_rewards.stamps(self), step_rewards.by_step(child))
        final = step_rewards.final_score(child)
        passes = final is not None and reaches(final, self.threshold)
        return rewards if passes else dict.fromkeys(rewards, 0.0)


class Weighted(Container):
    """A weighted sum; the weights are by name, in the order of the children."""

    _in_order = False
    _weights: dict[str, float]
    _vector: list[float]  # the weights of the children

    def _weight_of(self, name: str) -> float:
        return self._weights[name]

    def _refresh(self) -> None:
        super()._refresh()
        self.__dict__["_vector"] = [self._weight_of(name) for name in self._children]

    def _combine(self, scores: Sequence[float]) -> float:
        try:  # exact_sum, without the call
            return math.fsum(map(mul, scores, self._vector))
        except OverflowError:
            return math.inf

    def _check_child(self, name: str, child: Rubric) -> None:
        super()._check_child(name, child)
        if name not in self._weights:
            raise RubricDefinitionError(
                f"{type(self).__name__} has no weight for {name!r}; create a new one, or replace "
                f"one of {list(self._weights)}"
            )

    def _place(self, name: str) -> float:
        return list(self._weights).index(name)

    def _range(self) -> tuple[float, float] | None:
        low = high = 0.0
        for name, child in self._children.items():
            declared = self._range_of_child(name, child)
            if declared is None:
                return None
            low, high = low + min(declared), high + max(declared)
        return low, high

    def _range_of_child(self, name: str, child: Rubric) -> list[float] | None:
        """The ends of what a child adds to the sum."""
        declared = child._range()
        return None if declared is None else [self._weights[name] * end for end in declared]

    def _normalized(self, name: str, score: float) -> float:
        return score

    def _rewards_by_step(self) -> dict[int, float]:
        known = [(*item, step_rewards.by_step(item[1])) for item in self._children.items()]
        return {
            stamp: exact_sum(
                self._weight_of(name) * self._normalized(name, rewards.get(stamp, 0.0))
                for name, child, rewards in known
                # One that wasn't due has no reward, unless it spreads its score.
                if child._find_traits().has_trajectory or step_rewards.was_called(child, stamp)
            )
            for stamp in step_rewards.stamps(self)
        }


class WeightedSum(Weighted):
    """The weighted sum of the rubrics' scores.

    In an async tree the children are evaluated concurrently.

    Example:
        >>> from guerdon import RegexMatch, WeightedSum
        >>> rubric = WeightedSum([RegexMatch("please"), RegexMatch("!")], weights=[1.0, -0.25])
        >>> rubric("please!", None), rubric.weights
        (0.75, [1.0, -0.25])
        >>> named = {"polite": RegexMatch("please"), "loud": RegexMatch("!")}
        >>> rubric = WeightedSum(named, weights={"polite": 1.0, "loud": -0.25})
        >>> rubric.score("please!", None).components()
        {'polite': 1.0, 'loud': 1.0}

    Args:
        rubrics: Rubrics or functions, in a list or by name.
        weights: One finite number each, by the same names or in the same order. They may be
            negative and need not sum to 1.

    Raises:
        InvalidArgumentError: Weights and rubrics don't match, or a weight is not a finite number.
        RubricDefinitionError: A name or a rubric is invalid.
    """

    state_names = ("weights",)
    tunable = ("weights",)

    def __init__(
        self,
        rubrics: Mapping[str, RubricLike] | Iterable[RubricLike],
        weights: Mapping[str, float] | Iterable[float],
    ) -> None:
        super().__init__()
        named = named_rubrics(rubrics)
        self._weights = matched_weights(named, weights)
        self._add(named)

    @property
    def weights(self) -> list[float] | dict[str, float]:
        """The weights, by name if the rubrics have names; a copy. Assign to change them all."""
        named = {name: self._weights[name] for name in self._children}
        return named if self._aliases else [*named.values()]

    @weights.setter
    def weights(self, weights: Mapping[str, float] | Sequence[float]) -> None:
        self._weights = matched_weights(self._children, weights)
        self._refresh()


Named: TypeAlias = "Mapping[str, RubricLike] | Iterable[tuple[str, RubricLike]]"


class _Collection(Rubric):
    def forward(self, action: Any, observation: Any) -> NoReturn:
        """Raise: only a parent can combine the scores."""
        raise NoAggregationError(
            f"{type(self).__name__} can't combine the scores of its members: call them from the "
            "forward of a parent, or of a RubricDict one from the step of an environment, or use "
            "WeightedSum or Sequential"
        )

    def _rewards_by_step(self) -> dict[int, float]:
        self.forward(None, None)

    def __len__(self) -> int:
        return len(self._children)

    def __bool__(self) -> bool:
        return True  # an empty one is still a rubric

    def _put(self, name: str, rubric: Rubric) -> None:
        """Register a child without the rules for the names of attributes."""
        self._adopt(name, rubric)
        self.__dict__[name] = rubric


class RubricList(_Collection, MutableSequence[Rubric]):
    """A list of rubrics, like ``torch.nn.ModuleList``. It has no score of its own.

    Example:
        >>> from guerdon import RegexMatch, Rubric, RubricList
        >>> class Any(Rubric):
        ...     '''The text contains one of the words.'''
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

    def extend(self, rubrics: Iterable[RubricLike]) -> Self:  # type: ignore[override]
        """Add several at the end: all of them, or, if one is rejected, none."""
        members = [as_rubric(rubric) for rubric in rubrics]
        for member in members:
            self._check_child("rubric_0", member)
        for member in members:
            self._put(f"rubric_{len(self)}", member)
        return self

    def append(self, rubric: RubricLike) -> Self:  # type: ignore[override]
        """Add a rubric at the end; like `extend`, it returns the list."""
        return self.extend([rubric])

    def insert(self, index: int, rubric: RubricLike) -> None:
        """Insert a rubric before the one at `index`."""
        member = as_rubric(rubric)
        self._check_child("rubric_0", member)
        members = list(self)
        members.insert(index, member)
        self._replace_all(members)

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
        is_member = name in self.__dict__.get("_children", ())
        if is_member and value is None:
            self._release(name)  # and the name is that of the one behind it
            return
        if isinstance(value, Rubric) and not is_member:
            raise RubricDefinitionError(
                f"RubricList accepts no child named {name!r}; append it, or set it by its index"
            )
        super().__setattr__(name, value)

    def _name(self, index: int) -> str:
        if not isinstance(index, int):
            raise RubricPathError(f"an index of a RubricList must be an int, got {shown(index)}")
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise RubricPathError(f"no rubric at {index}: the list has {len(self)}")
        return f"rubric_{place}"

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return RubricList(list(self)[index])
        return self._children[self._name(index)]

    def __setitem__(self, index: int, rubric: RubricLike) -> None:  # type: ignore[override]
        if not isinstance(index, int):
            raise RubricDefinitionError("RubricList can't assign to a slice; assign to one index")
        self._put(self._name(index), as_rubric(rubric))

    def __delitem__(self, index: int | slice) -> None:
        members = list(self)
        if not isinstance(index, slice):
            self._name(index)
        del members[index]
        self._replace_all(members)

    def __iter__(self) -> Iterator[Rubric]:
        return iter(list(self._children.values()))


class RubricDict(_Collection, MutableMapping[str, Rubric]):
    """Rubrics by name, like ``torch.nn.ModuleDict``. It has no score of its own.

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
        rubrics: Rubrics or functions by name. A name is a non-empty string without dots that is
            not the name of a method.
    """

    _dispatches = True

    def __init__(self, rubrics: Named = ()) -> None:
        super().__init__()
        self.update(rubrics or ())

    def update(self, rubrics: Named) -> None:  # type: ignore[override]
        """Add or replace several: all of them, or, if one is rejected, none."""
        members = {name: as_rubric(rubric) for name, rubric in dict(rubrics).items()}
        for name, member in members.items():
            self._check_child(name, member)
        for name, member in members.items():
            self._put(name, member)

    def __getitem__(self, key: str) -> Rubric:
        if key not in self._children:
            raise RubricPathError(f"no rubric at {key!r}; there are {list(self)}", path=str(key))
        return self._children[key]

    def __setitem__(self, key: str, rubric: RubricLike) -> None:
        self._put(key, as_rubric(rubric))

    def __delitem__(self, key: str) -> None:
        self[key]
        self._release(key)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._children))

    # A rubric is equal to itself alone.
    __eq__ = Rubric.__eq__
    __hash__ = Rubric.__hash__

    def _rewards_by_step(self) -> dict[int, float]:
        rewards: dict[int, float] = {}
        known = {name: step_rewards.by_step(child) for name, child in self.items()}
        for step, stamp in enumerate(step_rewards.stamps(self)):
            called = [name for name in self if step_rewards.was_called(self[name], stamp)]
            if len(called) > 1:
                raise TrajectoryError(
                    f"at step {step} several rubrics of the RubricDict were called: {called}; "
                    "its step rewards are only defined for one"
                )
            rewards[stamp] = known[called[0]][stamp] if called else 0.0
        return rewards


def _is_mapping(rubrics: object) -> bool:
    """Whether rubrics are given by name; a `RubricDict` is one rubric."""
    return isinstance(rubrics, Mapping) and not isinstance(rubrics, Rubric)


def named_rubrics(rubrics: Any) -> dict[str, RubricLike]:
    """Return rubrics by name; those of a list are numbered.

    Raises:
        InvalidArgumentError: It is neither a mapping nor a list.
    """
    if not isinstance(rubrics, Iterable) or isinstance(rubrics, str):
        raise InvalidArgumentError(
            f"`rubrics` must be a mapping of names to rubrics, or a list, got {shown(rubrics)}"
        )
    if not isinstance(rubrics, Mapping):
        return {f"rubric_{place}": rubric for place, rubric in enumerate(rubrics)}
    return dict(rubrics)


def matched_weights(
    names: Collection[str], weights: Mapping[str, float] | Iterable[float]
) -> dict[str, float]:
    """Return one weight for each name, in their order.

    Raises:
        InvalidArgumentError: Weights are missing or unknown, or one is not a finite number.
    """
    if isinstance(weights, str) or not isinstance(weights, Iterable):
        raise InvalidArgumentError(
            f"`weights` must have one number per rubric, by name or in order, got {shown(weights)}"
        )
    if not isinstance(weights, Mapping):
        numbers = list(weights)
        if len(numbers) != len(names):
            raise InvalidArgumentError(
                f"`weights` must have one number per rubric, got {len(names)} rubrics and "
                f"{len(numbers)} weights"
            )
        checked = [check_number(f"weights[{i}]", number) for i, number in enumerate(numbers)]
        return dict(zip(names, checked, strict=True))
    missing = [name for name in names if name not in weights]
    unknown = [name for name in weights if name not in names]
    if missing or unknown:
        raise InvalidArgumentError(
            "`weights` must have one weight per rubric, by its name: "
            f"missing {missing}, unknown {unknown}"
        )
    return {name: check_number(f"weights[{name!r}]", weights[name]) for name in names}


def check_range(rubric: Rubric, declared: Any) -> tuple[float, float] | None:
    """Return a range that a rubric declares, or None.

    Raises:
        InvalidArgumentError: It is not a range.
    """
    if declared is None:
        return None
    try:
        low, high = declared
        ordered = low <= high
    except (TypeError, ValueError):
        ordered = False
    if not ordered:
        raise InvalidArgumentError(
            f"`{type(rubric).__name__}.score_range` must be (low, high), got {shown(declared)}"
        )
    return low, high


def with_zero(declared: tuple[float, float] | None) -> tuple[float, float] | None:
    """Return a range with 0.0 in it, the score of a rubric that others stop; None is unknown."""
    return None if declared is None else (min(0.0, declared[0]), max(0.0, declared[1]))


def gates_of(rubric: Rubric) -> Iterator[str]:
    """Yield the paths of the rubrics that can stop an evaluation by scoring 0.

    Those are every `Gate` and, in a `Sequential`, every child but the last.
    """
    if isinstance(rubric, Gate):
        yield ""
    names = list(rubric._children)
    for name, child in rubric._children.items():
        stops = isinstance(rubric, Sequential) and name != names[-1]
        for path in dict.fromkeys([*([""] if stops else []), *gates_of(child)]):
            yield f"{name}.{path}" if path else name
