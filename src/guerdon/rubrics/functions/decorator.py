"""`@reward_function`: rewards that are written on messages."""

from __future__ import annotations

import functools
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, overload

from guerdon.errors import RewardFunctionError
from guerdon.rubrics.functions.results import failed, result_of, results_of
from guerdon.rubrics.functions.rubric import rubric_of
from guerdon.rubrics.functions.signature import (
    GROUND_TRUTH,
    MESSAGES_OF,
    Mode,
    messages_in,
    parameters_of,
)
from guerdon.rubrics.node import is_async_callable
from guerdon.rubrics.rubric import Rubric
from guerdon.rubrics.state import (
    fingerprint_of,
)
from guerdon.types.message import read_messages

__all__ = ["RewardFunction", "reward_function", "takes_messages"]

_PACKAGE = str(Path(__file__).parents[1])


class RewardFunction:
    """A function that scores conversations; `reward_function` makes it.

    Called, it gives an `EvaluateResult`, or a list of them in batch mode; of an async function,
    an awaitable of it. What the function raises is told in the result, which is invalid then; it
    is no score of 0. To see the exception itself, call `function`.

    Example:
        >>> from guerdon import reward_function
        >>> @reward_function
        ... def answered(messages, ground_truth=None):
        ...     return float(ground_truth in messages[-1].text)
        >>> chat = [{"role": "user", "content": "6 × 7?"}, {"role": "assistant", "content": "42"}]
        >>> answered(chat, ground_truth="42").score
        1.0
        >>> answered(chat).error.startswith("TypeError: 'in <string>' requires string")
        True

    Attributes:
        function: The bare function.
        mode: ``pointwise`` or ``batch``.
        is_async: Whether the function is async.
        parameters: What it takes.
    """

    function: Callable[..., Any]
    mode: Mode

    def __init__(self, function: Callable[..., Any], mode: Mode | None = None) -> None:
        if isinstance(function, RewardFunction):
            function = function.function
        if not callable(function) or isinstance(function, type):
            raise RewardFunctionError(
                f"{function!r:.80} is no function; @reward_function stands above a def"
            )
        self.function = function
        self.is_async = is_async_callable(function)
        self.parameters = parameters_of(function, mode)
        self.mode = self.parameters.mode
        functools.update_wrapper(self, function, updated=())
        if not hasattr(self, "__name__"):
            self.__name__ = self.__qualname__ = type(function).__name__
        code = getattr(function, "__code__", None)
        file = getattr(code, "co_filename", None)
        # Lines of a person's own file are told, not those of this package.
        self._file: str | None = None if file is None or file.startswith(_PACKAGE) else file

    @property
    def fingerprint(self) -> str:
        """A digest of the function's source and of what it was given, for reproducibility."""
        return fingerprint_of(self.function)

    def __call__(self, messages: Any = None, ground_truth: Any = None, /, **others: Any) -> Any:
        """Score a conversation, or in batch mode a list of them.

        Args:
            messages: The conversation (``rollouts_messages`` in batch mode): `Message` or dicts.
            ground_truth: What the answer should be (``ground_truths`` in batch mode, one for each
                rollout).
            **others: What else the function takes; what it doesn't take is left out.

        Returns:
            An `EvaluateResult`; in batch mode one for each rollout. Of an async function, an
            awaitable.
        """
        messages = others.pop(MESSAGES_OF[self.mode], messages)
        ground_truth = others.pop(GROUND_TRUTH[self.mode], ground_truth)
        return self.evaluate(messages, ground_truth, others)

    def evaluate(
        self, messages: Any, ground_truth: Any = None, others: dict[str, Any] | None = None
    ) -> Any:
        """The same, with what else it is given in a dict; a failure is told in the result."""
        call = self._evaluate_async if self.is_async else self._evaluate
        return call(messages, ground_truth, others)

    def evaluate_or_raise(
        self, messages: Any, ground_truth: Any = None, others: dict[str, Any] | None = None
    ) -> Any:
        """The same, raising what the function raises.

        Raises:
            InvalidArgumentError: The messages are none.
            RewardFunctionError: What the function gave is no result.
            Exception: What the function raised.
        """
        given = self._given(messages)
        count = len(given)  # before the function has it
        if self.mode == "batch":
            ground_truth = _one_each(ground_truth, count)
        arguments = self.parameters.arguments(ground_truth, others or {})
        if self.parameters.messages is None:
            value = self.function(given, **arguments)
        else:
            value = self.function(**{self.parameters.messages: given}, **arguments)
        if self.is_async:
            return self._awaited(value, count)
        return self._result(value, count)

    async def _awaited(self, value: Awaitable[Any], count: int) -> Any:
        return self._result(await value, count)

    def _given(self, messages: Any) -> list[Any]:
        if self.mode == "pointwise":
            return read_messages(messages)
        if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
            raise RewardFunctionError(
                f"rollouts_messages is {messages!r:.80}; it takes a list of conversations"
            )
        return [
            read_messages(each, f"rollouts_messages[{number}]")
            for number, each in enumerate(messages)
        ]

    def _result(self, value: Any, count: int) -> Any:
        if self.mode == "pointwise":
            return result_of(value, self.__name__)
        return results_of(value, count, self.__name__)

    def _evaluate(self, messages: Any, ground_truth: Any, others: dict[str, Any] | None) -> Any:
        try:
            return self.evaluate_or_raise(messages, ground_truth, others)
        except (Exception, SystemExit) as error:  # nothing else: it may be a cancellation
            return self._failed(error, messages)

    async def _evaluate_async(
        self, messages: Any, ground_truth: Any, others: dict[str, Any] | None
    ) -> Any:
        try:
            return await self.evaluate_or_raise(messages, ground_truth, others)
        except (Exception, SystemExit) as error:  # nothing else: it may be a cancellation
            return self._failed(error, messages)

    def _failed(self, error: BaseException, messages: Any) -> Any:
        if self.mode == "pointwise":
            return failed(error, self._file)
        count = len(messages) if isinstance(messages, Sequence) else 1
        return [failed(error, self._file) for _ in range(count)]

    def __rubric__(self) -> Rubric:
        """The rubric that `as_rubric` makes of it."""
        return rubric_of(self)

    def __reduce__(self) -> str | tuple[Any, ...]:
        module = sys.modules.get(self.__module__)
        if getattr(module, self.__qualname__, None) is self:
            return str(self.__qualname__)  # the module's own, as of functions
        return RewardFunction, (self.function, self.mode)

    def __repr__(self) -> str:
        return f"<{self.mode} reward function {self.__name__}>"


@overload
def reward_function(function: Callable[..., Any], /) -> RewardFunction: ...
@overload
def reward_function(
    *, mode: Mode | None = None
) -> Callable[[Callable[..., Any]], RewardFunction]: ...
def reward_function(
    function: Callable[..., Any] | None = None, /, *, mode: Mode | None = None
) -> Any:
    """Make a reward of a function that scores conversations.

    The function takes ``messages`` (one conversation: pointwise) or ``rollouts_messages`` (a list
    of them: batch), as `Message`, however it annotates them. It may take ``ground_truth`` (or
    ``ground_truths``) and whatever else by name. It returns a float, a dict or an
    `EvaluateResult`; in batch mode a list with one for each rollout.

    Example:
        >>> from guerdon import EvaluateResult, StepOutput, reward_function
        >>> @reward_function
        ... def brief(messages, *, limit=5):
        ...     '''Short turns earn; one reward a step.'''
        ...     turns = [each for each in messages if each.role == "assistant"]
        ...     steps = [StepOutput(step_index=turn, base_reward=float(len(each.text) <= limit))
        ...              for turn, each in enumerate(turns)]
        ...     score = sum(step.base_reward for step in steps) / len(steps)
        ...     return EvaluateResult(score=score, step_outputs=steps)
        >>> brief([{"role": "user", "content": "6 × 7?"},
        ...        {"role": "assistant", "content": "42"}]).score
        1.0

        >>> @reward_function(mode="batch")
        ... def shortest(rollouts_messages, ground_truths=None):
        ...     lengths = [len(messages) for messages in rollouts_messages]
        ...     return [float(length == min(lengths)) for length in lengths]
        >>> [result.score for result in shortest([[{"role": "user", "content": "Hi"}], []])]
        [0.0, 1.0]

    Args:
        function: The function, sync or async.
        mode: ``pointwise`` or ``batch``; None finds it out by the name of the parameter.

    Raises:
        RewardFunctionError: The function takes no messages, or those of another mode.
    """
    if function is None:
        return lambda function: RewardFunction(function, mode)
    return RewardFunction(function, mode)


def _one_each(ground_truths: Any, count: int) -> list[Any]:
    if callable(getattr(ground_truths, "tolist", None)):  # an array
        ground_truths = ground_truths.tolist()
    if ground_truths is None:
        return [None] * count
    if not isinstance(ground_truths, (list, tuple)) or len(ground_truths) != count:
        raise RewardFunctionError(
            f"ground_truths is {ground_truths!r:.80}; it takes a list with one for each of the "
            f"{count} rollouts"
        )
    return list(ground_truths)


def takes_messages(function: Any) -> bool:
    """Whether a bare function takes messages by name, so that it is a reward function."""
    return callable(function) and not isinstance(function, type) and bool(messages_in(function))
