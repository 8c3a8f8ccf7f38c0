"""Plain functions as rubrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, cast

from guerdon.errors import RubricDefinitionError
from guerdon.rubrics.conventions import refusal, signature_of
from guerdon.rubrics.evaluation import is_async_callable
from guerdon.rubrics.rubric import Rubric
from guerdon.rubrics.state import unwrapped

__all__ = ["FunctionRubric", "as_rubric"]

RewardCallable: TypeAlias = Callable[[Any, Any], "float | Awaitable[float]"]
RubricLike: TypeAlias = "Rubric | RewardCallable"


class FunctionRubric(Rubric):
    """A function ``f(action, observation) -> float``, plain or async, as a rubric.

    Containers convert functions by themselves.

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
        # In place of the method below, so that a call reaches the function directly.
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


def as_rubric(rubric: RubricLike) -> Rubric:
    """Return a rubric unchanged, or convert a function to one.

    Example:
        >>> as_rubric(lambda action, observation: 0.5)("a", "o")
        0.5

    Args:
        rubric: A rubric, a callable that takes an action and an observation, or a pointwise
            `RewardFunction`.

    Raises:
        RubricDefinitionError: It is neither, or it is a class, or a function as other libraries
            call them, such as TRL; the error names the conversion.
    """
    if isinstance(rubric, Rubric):
        return rubric
    if isinstance(rubric, type):
        raise RubricDefinitionError(
            f"{rubric.__name__} is a class; instantiate it: {rubric.__name__}(…)"
        )
    if hasattr(rubric, "__rubric__"):  # such as a RewardFunction
        return cast("Rubric", rubric.__rubric__())
    if not callable(rubric):
        raise RubricDefinitionError(
            f"{rubric!r:.80} ({type(rubric).__name__}) is not a rubric: "
            "a rubric is a Rubric or a function f(action, observation) -> float"
        )
    _check_parameters(rubric)
    return FunctionRubric(rubric)


def _check_parameters(function: Callable[..., Any]) -> None:
    """Reject a function that can't be called with an action and an observation."""
    signature = signature_of(function)
    if signature is None:
        return
    refused = refusal(function, signature.parameters, takes_step=True)
    if refused is not None:
        raise RubricDefinitionError(refused)
    name = getattr(function, "__name__", None)
    name = name if isinstance(name, str) else f"{function!r:.80}"
    if {"messages", "rollouts_messages"}.intersection(signature.parameters):
        raise RubricDefinitionError(
            f"{name} takes messages, not an action and an observation; convert it to a reward "
            "function: @reward_function"
        )
    try:
        signature.bind(None, None)
    except TypeError as error:
        raise RubricDefinitionError(
            f"{name} can't be called with an action and an observation: {error}; a reward on a "
            "conversation names its first parameter `messages`"
        ) from None
