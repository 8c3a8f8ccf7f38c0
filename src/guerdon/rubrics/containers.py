"""`Sequential`, `Gate` and `WeightedSum`: the usual ways to make one score of several.

Each says once how it aggregates (`_combine`) and when it stops (`_stops`); `Container` runs that
for sync trees and for async ones.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Sequence
from operator import mul
from typing import Any, ClassVar

from guerdon.errors import InvalidArgumentError, RubricDefinitionError, RubricError
from guerdon.rubrics import step_rewards
from guerdon.rubrics.call import call_children, due, exact_sum
from guerdon.rubrics.frames import Frame, any_not_yet, current
from guerdon.rubrics.function import RubricLike, as_rubric
from guerdon.rubrics.rubric import Rubric

__all__ = ["Container", "Gate", "Sequential", "WeightedSum", "finite_argument"]


_NO_KIDS: dict[str, Any] = dict.fromkeys(
    ("_kids", "_named_kids", "_kids_at_end", "_named_kids_at_end"), ()
)


class Container(Rubric):
    """A rubric whose score is made of those of its registered children, and of nothing else."""

    _is_container = True
    _is_plain_container = True
    _in_order: ClassVar[bool] = True  # else children don't depend on each other
    _stops_at_zero: ClassVar[bool] = False
    _kids: tuple[Rubric, ...]  # those that are due at every step
    _named_kids: tuple[tuple[str, Rubric, dict[str, Any]], ...]  # with their attributes
    _kids_at_end: tuple[Rubric, ...]  # those that are due when the episode ends, where others are
    _named_kids_at_end: tuple[tuple[str, Rubric, dict[str, Any]], ...]

    def __init__(self) -> None:
        super().__init__()
        self.__dict__.update(_NO_KIDS)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "forward" in cls.__dict__ or cls._written_calls:
            cls._is_plain_container = False
        overridden = "forward" in cls.__dict__ and "_evaluate_async" not in cls.__dict__
        if overridden or cls._written_calls:
            # Its author says anew what the score is: it is no container but a hand-written parent.
            cls._is_container = False
            cls._is_not_yet = Rubric._is_not_yet  # type: ignore[method-assign]
            cls._rewards_by_step = Rubric._rewards_by_step  # type: ignore[method-assign]

    def _refresh(self) -> None:
        super()._refresh()
        # A hook may change the registry while it is evaluated: that counts from the next call on.
        self.__dict__["_kids"] = tuple(self._children.values())
        self.__dict__["_named_kids"] = tuple(
            (name, child, child.__dict__) for name, child in self._children.items()
        )

    def _adopt(self, name: str, child: Rubric) -> None:
        super()._adopt(name, child)
        # One that comes back takes its old place: order counts, and weights are saved by place.
        names = list(self._children)
        if names != (ordered := sorted(names, key=_place)):
            self.__dict__["_children"] = {each: self._children[each] for each in ordered}

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), **_NO_KIDS}

    def forward(self, action: Any, observation: Any) -> float:
        """Evaluate the children and combine their scores."""
        if not self._mode:
            self._look()  # forward was called by itself, and the children may have changed
        scores: list[float] = []
        frame = current()
        if frame is None:
            call_children(self, action, observation, scores)
            return self._combine(scores)
        for child in due(self, observation):
            scores.append(child(action, observation))
            if scores[-1] == 0.0 and self._stops(frame):
                break
        return self._combine(scores)

    async def _evaluate_async(self, frame: Frame, action: Any, observation: Any) -> float:
        from guerdon.rubrics.concurrency import evaluate_child, evaluate_together

        children = due(self, observation)
        if not self._in_order:
            return self._combine(await evaluate_together(frame, children, action, observation))
        scores: list[float] = []
        for child in children:
            scores.append(await evaluate_child(frame, child, action, observation))
            if scores[-1] == 0.0 and self._stops(frame):
                break
        return self._combine(scores)

    def _only_child(self) -> Rubric:
        """The child of a container that has one, ``rubric``.

        Raises:
            RubricError: It has been removed, or others have been added.
        """
        if list(self._children) != ["rubric"]:
            raise RubricError(
                f"a {type(self).__name__} has one child, 'rubric'; "
                f"this one has {list(self._children)}"
            )
        return self._children["rubric"]

    def _combine(self, scores: Sequence[float]) -> float:
        """The score, of those of the children that were evaluated, in their order."""
        raise NotImplementedError

    def _stops(self, frame: Frame) -> bool:
        """Whether to leave out the children after one that has just scored 0."""
        return self._stops_at_zero and not any_not_yet(frame.entries[-1:])

    def _is_not_yet(self, frame: Frame, observation: Any) -> bool:
        # A 0.0 that goes back to a trajectory rubric whose episode isn't over.
        entries = frame.entries[-1:] if self._in_order else frame.entries
        return frame.value == 0.0 and any_not_yet(entries)


class Sequential(Container):
    """The score of the last rubric, or 0 as soon as one scores 0.

    An intermediate 0.0 of a trajectory rubric means "not yet" and stops nothing.

    Example:
        >>> from guerdon import LengthBounds, RegexMatch, Sequential
        >>> rubric = Sequential(RegexMatch("please"), LengthBounds(maximum=20))
        >>> rubric("please come", None), rubric("come", None), Sequential()("come", None)
        (1.0, 0.0, 1.0)

    Args:
        *rubrics: Rubrics or functions, in order. Without any, the score is 1.0.
    """

    _stops_at_zero = True

    def __init__(self, *rubrics: RubricLike) -> None:
        super().__init__()
        for index, rubric in enumerate(rubrics):
            setattr(self, f"rubric_{index}", as_rubric(rubric))

    def _combine(self, scores: Sequence[float]) -> float:
        return scores[-1] if scores else 1.0

    def _range(self) -> tuple[float, float] | None:
        children = list(self._children.values())
        if not children:
            return (1.0, 1.0)
        last = children[-1]._range()
        return last if len(children) == 1 else _with_zero(last)

    def _needs(self, name: str) -> str | None:
        names = list(self._children)
        place = names.index(name)
        return f"{names[place - 1]} ≠ 0" if place else None

    def _rewards_by_step(self) -> dict[int, float]:
        children = list(self._children.values())
        if not children:
            return dict.fromkeys(step_rewards.stamps(self), 1.0)
        return step_rewards.on(step_rewards.stamps(self), step_rewards.by_step(children[-1]))

    def __len__(self) -> int:
        return len(self._children)

    def __bool__(self) -> bool:
        return True  # an empty one is still a rubric

    def __getitem__(self, index: int) -> Rubric:
        return list(self._children.values())[index]


class Gate(Container):
    """The score of its rubric, or 0 where that is under the threshold.

    Example:
        >>> from guerdon import Gate
        >>> gate = Gate(lambda action, observation: action, threshold=0.5)
        >>> gate(0.5, None), gate(0.4, None)
        (0.5, 0.0)

    Args:
        rubric: A rubric or a function.
        threshold: The lowest score that passes, a finite number.
    """

    state_names = ("threshold",)
    tunable = ("threshold",)

    def __init__(self, rubric: RubricLike, threshold: float = 1.0) -> None:
        super().__init__()
        self.rubric = as_rubric(rubric)
        self.threshold = threshold

    @property
    def threshold(self) -> float:
        """The lowest score that passes."""
        return self._threshold

    @threshold.setter
    def threshold(self, value: float) -> None:
        self._threshold = finite_argument(value, "Gate.threshold")

    def _combine(self, scores: Sequence[float]) -> float:
        if len(scores) != 1:
            self._only_child()  # says what is wrong
        if scores[0] >= self._threshold:
            return scores[0]
        self.explain("%.6g is under the threshold of %.6g", scores[0], self._threshold)
        return 0.0

    def _range(self) -> tuple[float, float] | None:
        return _with_zero(self._only_child()._range()) if self._children else None

    def _needs(self, name: str) -> str | None:
        return f"passes at {self._threshold:g}"

    def _rewards_by_step(self) -> dict[int, float]:
        child = self._only_child()
        rewards = step_rewards.on(step_rewards.stamps(self), step_rewards.by_step(child))
        final = step_rewards.final_score(child)
        passes = final is not None and final >= self._threshold
        return rewards if passes else dict.fromkeys(rewards, 0.0)


class WeightedSum(Container):
    """The weighted sum of the rubrics' scores.

    On an async tree the children run at the same time.

    Example:
        >>> from guerdon import RegexMatch, WeightedSum
        >>> rubric = WeightedSum([RegexMatch("please"), RegexMatch("!")], weights=[1.0, -0.25])
        >>> rubric("please!", None), rubric.weights
        (0.75, [1.0, -0.25])

    Args:
        rubrics: Rubrics or functions.
        weights: One finite number each. They may be negative and need not sum to 1.

    Raises:
        InvalidArgumentError: There are more of one than of the other, or a weight is no finite
            number.
    """

    _in_order = False
    state_names = ("weights",)
    tunable = ("weights",)

    def __init__(self, rubrics: Iterable[RubricLike], weights: Iterable[float]) -> None:
        super().__init__()
        rubrics, weights = list(rubrics), list(weights)
        if len(rubrics) != len(weights):
            raise InvalidArgumentError(
                f"the {len(rubrics)} rubrics and {len(weights)} weights of WeightedSum must match; "
                "a rubric takes one weight"
            )
        self._weights: dict[str, float] = {}
        for index, weight in enumerate(weights):
            self._weights[f"rubric_{index}"] = finite_argument(weight, f"weights[{index}]")
        for index, rubric in enumerate(rubrics):
            setattr(self, f"rubric_{index}", as_rubric(rubric))

    @property
    def weights(self) -> list[float]:
        """The weights, in the order of the children; a copy. Set it to change them all."""
        return [self._weights[name] for name in self._children]

    @weights.setter
    def weights(self, weights: Sequence[float]) -> None:
        if not isinstance(weights, (list, tuple)) or len(weights) != len(self._children):
            raise InvalidArgumentError(
                f"WeightedSum.weights takes a list of {len(self._children)} numbers, "
                f"one a child, not {weights!r:.80}"
            )
        checked = [finite_argument(w, f"weights[{i}]") for i, w in enumerate(weights)]
        self._weights = dict(zip(self._children, checked, strict=True))
        self._refresh()

    def _refresh(self) -> None:
        super()._refresh()
        self._vector = self.weights  # children may have come, gone or changed places

    def _combine(self, scores: Sequence[float]) -> float:
        try:  # exact_sum, without the call
            return math.fsum(map(mul, scores, self._vector))
        except OverflowError:
            return math.inf

    def _check_name(self, name: str) -> None:
        super()._check_name(name)
        if name not in self._weights:
            raise RubricDefinitionError(
                f"WeightedSum has no weight for {name!r}; make a new one, "
                f"or replace one of {list(self._children)}"
            )

    def _weight_of(self, name: str) -> float | None:
        return self._weights[name]

    def _range(self) -> tuple[float, float] | None:
        low = high = 0.0
        for weight, child in zip(self.weights, self._children.values(), strict=True):
            declared = child._range()
            if declared is None:
                return None
            ends = sorted(weight * end for end in declared)
            low, high = low + ends[0], high + ends[1]
        return low, high

    def _rewards_by_step(self) -> dict[int, float]:
        parts = [
            (self._weights[name], step_rewards.by_step(child))
            for name, child in self._children.items()
        ]
        return {
            stamp: exact_sum(weight * rewards.get(stamp, 0.0) for weight, rewards in parts)
            for stamp in step_rewards.stamps(self)
        }


def _place(name: str) -> tuple[int, int]:
    """The place of a child: numbered ones in front, by their number."""
    number = name.removeprefix("rubric_")
    return (0, int(number)) if number.isdecimal() else (1, 0)


def _with_zero(declared: tuple[float, float] | None) -> tuple[float, float] | None:
    return None if declared is None else (min(0.0, declared[0]), max(0.0, declared[1]))


def finite_argument(value: Any, what: str) -> float:
    """Check a number that a person gave.

    Raises:
        InvalidArgumentError: It is no finite number.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):  # an int that no float can hold
            if math.isfinite(value):
                return float(value)
    raise InvalidArgumentError(f"{what} is {value!r:.80}; it takes a finite number")
