"""Plain functions as rubrics."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, cast

from guerdon.errors import RubricDefinitionError
from guerdon.rubrics.hooks import is_async_callable
from guerdon.rubrics.rubric import Rubric

__all__ = ["FunctionRubric", "RubricLike", "as_rubric", "unwrapped"]

RewardCallable: TypeAlias = Callable[[Any, Any], "float | Awaitable[float]"]
# What rewards of other libraries take.
_OF_OTHERS = frozenset(("completions", "data_source", "solution_str"))

RubricLike: TypeAlias = "Rubric | RewardCallable"


class FunctionRubric(Rubric):
    """A function ``f(action, observation) -> float``, plain or async, as a rubric.

    Containers make it of the functions that they are given; there is no need to.

    Example:
        >>> from guerdon import Sequential
        >>> def polite(action, observation):
        ...     '''The answer says please.'''
        ...     return float("please" in action)
        >>> Sequential(polite)
        Sequential()
          rubric_0: polite()
    """

    def __init__(self, function: RewardCallable) -> None:
        super().__init__()
        self._function = function
        # Past the method below: nothing stands between a call and the function.
        self.__dict__["forward"] = function
        self._is_async = is_async_callable(function) or is_async_callable(
            getattr(function, "forward", None)
        )
        self._is_stateful = callable(getattr(function, "reset", None))

    def forward(self, action: Any, observation: Any) -> Any:
        """Call the function."""
        return self._function(action, observation)

    def _reset_own(self) -> None:
        if self._is_stateful:
            self._function.reset()  # type: ignore[attr-defined]

    def _title(self) -> str:
        function = unwrapped(self._function)
        return getattr(function, "__name__", None) or type(function).__name__

    def _described(self) -> object:
        return self._function


def unwrapped(function: Any) -> Any:
    """The function behind those of which `functools.partial` has filled in arguments."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def as_rubric(rubric: RubricLike) -> Rubric:
    """A rubric as it is, or one made of a function.

    Example:
        >>> as_rubric(lambda action, observation: 0.5)("a", "o")
        0.5

    Args:
        rubric: A rubric, a callable that takes an action and an observation, or a pointwise
            `RewardFunction`.

    Raises:
        RubricDefinitionError: It is neither; or it is a class, of which nobody made a rubric.
    """
    if isinstance(rubric, Rubric):
        return rubric
    made = getattr(rubric, "__rubric__", None)
    if made is not None and not isinstance(rubric, type):  # such as a RewardFunction
        return cast("Rubric", made())
    if isinstance(rubric, type):
        raise RubricDefinitionError(
            f"{rubric.__name__} is a class; make a rubric of it: {rubric.__name__}(…)"
        )
    if not callable(rubric):
        raise RubricDefinitionError(
            f"{rubric!r:.80} ({type(rubric).__name__}) is no rubric: "
            "a rubric is a Rubric or a function f(action, observation) -> float"
        )
    # A callable from C may have no signature: calling it will tell.
    signature = None
    with contextlib.suppress(ValueError):
        signature = inspect.signature(rubric)
    names = set() if signature is None else signature.parameters.keys() & _OF_OTHERS
    if names:
        raise RubricDefinitionError(
            f"{_name(rubric)} takes {', '.join(sorted(names))}, as a reward of TRL or verl does, "
            "and no action and observation; make a reward function on messages of it: "
            "@reward_function"
        )
    if signature is not None and {"messages", "rollouts_messages"} & signature.parameters.keys():
        raise RubricDefinitionError(
            f"{_name(rubric)} takes messages, not an action and an observation; make a reward "
            "function of it: @reward_function"
        )
    try:
        if signature is not None:
            signature.bind(None, None)
    except TypeError as error:
        raise RubricDefinitionError(
            f"{_name(rubric)} can't be called with an action and an observation: {error}"
        ) from None
    return FunctionRubric(rubric)


def _name(function: Any) -> str:
    name = getattr(function, "__name__", None)
    return name if isinstance(name, str) else f"{function!r:.80}"
