"""`RewardFunction`: rewards that are functions of messages, and how to make them."""

from __future__ import annotations

import functools
import inspect
import math
import operator
import reprlib
import sys
import traceback
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter
from numbers import Real
from pathlib import Path
from typing import Any, Literal, TypeAlias, overload

from pydantic import ValidationError

from guerdon._validation import as_score, check_choice, check_list, shown
from guerdon.errors import GuerdonError, RewardFunctionError
from guerdon.rubrics.conventions import refusal
from guerdon.rubrics.evaluation import is_async_callable
from guerdon.rubrics.failure import describe_failure
from guerdon.rubrics.functions.rubric import rubric_of
from guerdon.rubrics.pickling import files_of, is_importable, made_after
from guerdon.rubrics.rubric import Rubric
from guerdon.rubrics.state import fingerprint_of, unwrapped
from guerdon.types.evaluate_result import EvaluateResult, StepOutput
from guerdon.types.message import read_messages

__all__ = ["RewardFunction", "reward_function"]

Mode: TypeAlias = Literal["pointwise", "batch"]

GivenMode: TypeAlias = Mode | Literal["batch-wise"]

# Other spellings, as in OpenEnv's drafts.
_MODES: dict[str, Mode] = {
    "batch-wise": "batch", "batchwise": "batch", "point-wise": "pointwise",
}  # fmt: skip

# The names of a function's first and second argument in each mode.
MESSAGES: dict[Mode, str] = {"pointwise": "messages", "batch": "rollouts_messages"}
GROUND_TRUTH: dict[Mode, str] = {"pointwise": "ground_truth", "batch": "ground_truths"}

_PACKAGE = str(Path(__file__).parents[1])


class RewardFunction:
    """A function that scores conversations; `reward_function` makes it.

    A call returns an `EvaluateResult`, or a list of them in batch mode; an async function returns
    an awaitable. If the function raises, the result is invalid and contains the error; it is not a
    score of 0. To get the exception itself, call `function`.

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
        function: The decorated function.
        mode: ``pointwise`` or ``batch``.
        is_async: Whether the function is async.
        parameters: Its parameters.
    """

    function: Callable[..., Any]
    mode: Mode

    def __init__(self, function: Callable[..., Any], mode: GivenMode | None = None) -> None:
        if isinstance(function, RewardFunction):
            function = function.function
        if not callable(function) or isinstance(function, type):
            raise RewardFunctionError(f"@reward_function decorates functions, got {function!r:.80}")
        self.function = function
        self.is_async = is_async_callable(function)
        self.parameters = parameters_of(function, mode)
        self.mode = self.parameters.mode
        functools.update_wrapper(self, function, updated=())
        if not hasattr(self, "__name__"):
            self.__name__ = self.__qualname__ = type(function).__name__
        written = getattr(function, "function", function)  # that of another library
        code = getattr(unwrapped(written), "__code__", None)
        file = getattr(code, "co_filename", None)
        # Errors contain the line in a user's file, not in this package.
        self._file: str | None = None if file is None or file.startswith(_PACKAGE) else file

    @property
    def fingerprint(self) -> str:
        """A digest of the function's source and of its bound arguments, for reproducibility."""
        return fingerprint_of(self.function)

    def __call__(self, messages: Any = None, ground_truth: Any = None, /, **others: Any) -> Any:
        """Score a conversation, or in batch mode a list of them.

        Args:
            messages: The conversation (``rollouts_messages`` in batch mode): `Message` or dicts.
            ground_truth: The expected answer (``ground_truths`` in batch mode, one for each
                rollout).
            **others: Further arguments; those that the function doesn't take are left out.

        Returns:
            An `EvaluateResult`; in batch mode one for each rollout. For an async function, an
            awaitable.
        """
        by_name = others.pop(MESSAGES[self.mode], None), others.pop(GROUND_TRUTH[self.mode], None)
        messages = by_name[0] if messages is None else messages
        ground_truth = by_name[1] if ground_truth is None else ground_truth
        return self.evaluate(messages, ground_truth, others)

    def evaluate(
        self, messages: Any, ground_truth: Any = None, others: dict[str, Any] | None = None
    ) -> Any:
        """Score as a call does, with further arguments in a dict."""
        if self.is_async:
            return self._evaluate_async(messages, ground_truth, others)
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

    def evaluate_or_raise(
        self, messages: Any, ground_truth: Any = None, others: dict[str, Any] | None = None
    ) -> Any:
        """Score as `evaluate` does, but raise what the function raises.

        Raises:
            InvalidArgumentError: The messages are invalid.
            RewardFunctionError: The function returned an invalid result.
            Exception: What the function raised.
        """
        if self.mode == "batch":
            conversations = _read_batch(messages)
            ground_truth = one_each(ground_truth, len(conversations))
        else:
            conversations = read_messages(messages)
        count = len(conversations)  # the function may change the list
        arguments = self.parameters.arguments(ground_truth, others or {})
        if self.parameters.messages is None:
            value = self.function(conversations, **arguments)
        else:
            value = self.function(**{self.parameters.messages: conversations}, **arguments)
        return self._awaited(value, count) if self.is_async else self._result(value, count)

    async def _awaited(self, value: Any, count: int) -> Any:
        return self._result(await value, count)

    def _result(self, value: Any, count: int) -> Any:
        if self.mode == "pointwise":
            return result_of(value, self.__name__)
        return results_of(value, count, self.__name__)

    def _failed(self, error: BaseException, messages: Any) -> Any:
        if self.mode == "pointwise":
            return failed(error, self._file)
        count = len(messages) if isinstance(messages, Sequence) else 1
        return [failed(error, self._file) for _ in range(count)]

    def __rubric__(self) -> Rubric:
        """Return the rubric that `as_rubric` makes of the function."""
        return rubric_of(self)

    def __reduce__(self) -> str | tuple[Any, ...]:
        files = files_of(self.function)
        if not is_importable(self):
            return made_after, (files, RewardFunction, self.function, self.mode)
        if files:
            return made_after, (files, _named, self.__module__, self.__qualname__)
        return str(self.__qualname__)  # by name, as functions are pickled

    def __repr__(self) -> str:
        return f"<{self.mode} reward function {self.__name__}>"


def _named(module: str, name: str) -> Any:
    return operator.attrgetter(name)(sys.modules[module])


def _read_batch(messages: Any) -> list[Any]:
    conversations = check_list("rollouts_messages", messages, error=RewardFunctionError)
    return [
        read_messages(each, f"rollouts_messages[{number}]")
        for number, each in enumerate(conversations)
    ]


def one_each(
    ground_truths: Any, count: int, *, error: type[GuerdonError] = RewardFunctionError
) -> list[Any]:
    """Return the ground truths of a batch as a list.

    Example:
        >>> one_each(None, 2), one_each((1, 2), 2)
        ([None, None], [1, 2])

    Args:
        ground_truths: A list, a tuple or an array; None is None for each rollout.
        count: The number of rollouts.
        error: The exception to raise.

    Raises:
        RewardFunctionError: There isn't one for each rollout.
    """
    if callable(getattr(ground_truths, "tolist", None)):  # an array
        ground_truths = ground_truths.tolist()
    if ground_truths is None:
        return [None] * count
    if not isinstance(ground_truths, (list, tuple)) or len(ground_truths) != count:
        raise error(
            f"`ground_truths` must be a list with one for each of {count} rollouts, "
            f"got {shown(ground_truths)}"
        )
    return list(ground_truths)


@overload
def reward_function(function: Callable[..., Any], /) -> RewardFunction: ...
@overload
def reward_function(
    *, mode: GivenMode | None = None
) -> Callable[[Callable[..., Any]], RewardFunction]: ...
def reward_function(
    function: Callable[..., Any] | None = None, /, *, mode: GivenMode | None = None
) -> Any:
    """Make a reward of a function that scores conversations.

    The function takes ``messages`` (one conversation: pointwise) or ``rollouts_messages`` (a list
    of them: batch), as `Message`, however it annotates them. It may take ``ground_truth`` (or
    ``ground_truths``) and any other argument by name. It returns a float, a dict or an
    `EvaluateResult`; in batch mode a list with one for each rollout.

    Example:
        >>> from guerdon import EvaluateResult, StepOutput, reward_function
        >>> @reward_function
        ... def brief(messages, *, limit=5):
        ...     '''Rewards short turns, each with its own step reward.'''
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
        mode: ``pointwise`` or ``batch`` (``batch-wise``); None infers it from the name of the
            parameter.

    Raises:
        RewardFunctionError: The function takes no messages, or those of another mode, or is called
            differently in its own library, such as TRL; the error names the conversion.
    """
    if function is None:
        return lambda function: RewardFunction(function, mode)
    return RewardFunction(function, mode)


# Parameters ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a reward function.

    Attributes:
        mode: ``pointwise`` takes one conversation, ``batch`` a list of them.
        messages: The parameter that takes the conversations; None if it comes first.
        ground_truth: The parameter that takes the ground truth, if any.
        named: The names of all others.
        takes_all: Whether it has ``**kwargs``.
        first: The name of the messages if they come first, which no other argument can have.
        accepted: The only names of further arguments that a function of another library takes.
    """

    mode: Mode
    messages: str | None
    ground_truth: str | None
    named: frozenset[str]
    takes_all: bool
    first: str | None = None
    accepted: frozenset[str] | None = None

    def takes(self, name: str) -> bool:
        """Return whether an argument of that name reaches the function."""
        if self.accepted is not None:
            return name in self.accepted
        return self.takes_all or name in self.named

    def arguments(self, ground_truth: Any, others: dict[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments of a call, without those that the function doesn't take."""
        if self.takes_all:
            own = (self.messages, self.first)
            arguments = {name: others[name] for name in others if name not in own}
        else:
            arguments = {name: others[name] for name in others if name in self.named}
        if self.ground_truth is not None:
            arguments[self.ground_truth] = ground_truth
        return arguments


def parameters_of(function: Callable[..., Any], mode: GivenMode | None = None) -> Parameters:
    """Read a function's signature.

    Args:
        function: The function.
        mode: None infers it from the name of the parameter, ``messages`` or ``rollouts_messages``.

    Raises:
        RewardFunctionError: The function takes no messages, or those of the other mode.
    """
    wanted: Any = mode if mode is None else _MODES.get(str(mode).replace("_", "-"), mode)
    if wanted is not None:
        check_choice("mode", wanted, MESSAGES, error=RewardFunctionError)
    name = getattr(function, "__name__", None) or repr(function)
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        raise RewardFunctionError(f"{name} has no readable signature") from None
    names: dict[Any, list[str]] = defaultdict(list)
    for each in parameters.values():
        names[each.kind].append(each.name)
    only_positional, either = (
        names[Parameter.POSITIONAL_ONLY],
        names[Parameter.POSITIONAL_OR_KEYWORD],
    )
    positional = only_positional + either
    modes = _modes_named_in(parameters)
    refused = refusal(function, takes_step=False)
    if refused is not None:
        raise RewardFunctionError(refused)
    found = _mode_of(name, parameters, positional, wanted)
    messages = MESSAGES[found] if modes else positional[0]
    comes_first = positional[:1] == [messages]
    _check_kinds(name, positional, only_positional[1:] if comes_first else only_positional)
    ground_truth: str | None = None
    takes_all = Parameter.VAR_KEYWORD in names
    if takes_all or GROUND_TRUTH[found] in parameters:
        ground_truth = GROUND_TRUTH[found]
    elif not modes:  # the second parameter, as the first is the messages
        ground_truth = next(iter(positional[1:]), None)
    return Parameters(
        found,
        None if comes_first else messages,
        ground_truth,
        frozenset({*either, *names[Parameter.KEYWORD_ONLY]} - {messages, ground_truth}),
        takes_all,
        messages if comes_first else None,
    )


def takes_messages(function: Any) -> bool:
    """Return whether a function has a parameter for messages, so that it is a reward function."""
    if not callable(function) or isinstance(function, type):
        return False
    try:
        return bool(_modes_named_in(inspect.signature(function).parameters))
    except (TypeError, ValueError):
        return False


def _modes_named_in(parameters: Mapping[str, Parameter]) -> list[Mode]:
    """The modes whose messages are a parameter, in the order of parameters."""
    variadic = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    modes: dict[str, Mode] = {name: mode for mode, name in MESSAGES.items()}
    return [
        modes[name]
        for name, each in parameters.items()
        if name in modes and each.kind not in variadic
    ]


def _mode_of(
    name: str, parameters: Mapping[str, Parameter], positional: list[str], mode: Mode | None
) -> Mode:
    modes = _modes_named_in(parameters)
    if len(modes) > 1 or (modes and mode not in (None, modes[0])):
        raise RewardFunctionError(
            f"{name} takes {' and '.join(repr(MESSAGES[each]) for each in modes)}"
            + (f", but its mode is {mode!r}" if mode else "")
            + "; 'messages' is one conversation (pointwise), 'rollouts_messages' a list of them "
            "(batch)"
        )
    if modes:
        return modes[0]
    if mode is None or not positional:
        raise RewardFunctionError(
            f"{name}({', '.join(parameters)}) takes no 'messages' (one conversation) and no "
            "'rollouts_messages' (a list of them); it is called with Message objects: rename its "
            "first parameter"
        )
    return mode


def _check_kinds(name: str, positional: list[str], unnamed: list[str]) -> None:
    if positional and positional[0] in ("self", "cls"):
        raise RewardFunctionError(
            f"{name} is a method without its {positional[0]!r}; make a reward function of the "
            f"bound method: reward_function(thing.{name})"
        )
    if unnamed:
        raise RewardFunctionError(
            f"{name} takes {unnamed[0]!r} by position only, and only messages are passed by "
            "position; remove the / or the parameter"
        )


# Results ------------------------------------------------------------------------------------------


def result_of(value: Any, name: str) -> EvaluateResult:
    """Return the result for a function's return value: a float, a bool, a dict or a result.

    Args:
        value: The return value.
        name: The function's name, for error messages.

    Raises:
        RewardFunctionError: It is something else, or a number in it is not finite.
    """
    kind = type(value)
    score = as_score(value)
    if score is not None:
        return EvaluateResult(score=score)
    if isinstance(value, EvaluateResult):
        return _checked(value, name)
    if isinstance(value, Mapping):
        return _validated(dict(value), name)
    if isinstance(value, Real):
        return _validated({"score": value}, name)
    if hasattr(value, "__await__"):
        if hasattr(value, "close"):
            value.close()
        raise RewardFunctionError(
            f"{name} returned an awaitable, but it isn't declared async; write `async def {name}`"
        )
    raise RewardFunctionError(
        f"{name} returned {reprlib.repr(value)} ({kind.__name__}); a reward function returns a "
        "finite float, a dict with 'score', or an EvaluateResult"
    )


def results_of(values: Any, count: int, name: str) -> list[EvaluateResult]:
    """Return the results for the return value of a batch function.

    An invalid entry makes its own rollout invalid, and no other.

    Raises:
        RewardFunctionError: It isn't a list of ``count`` entries.
    """
    if callable(getattr(values, "tolist", None)):  # an array of scores
        values = values.tolist()
    if not isinstance(values, (list, tuple)):
        raise RewardFunctionError(
            f"{name} returned {reprlib.repr(values)} ({type(values).__name__}); a batch reward "
            "function returns a list with one result for each rollout"
        )
    if len(values) != count:
        raise RewardFunctionError(
            f"{name} must return one result for each of {count} rollouts, got {len(values)}"
        )
    results = []
    for number, value in enumerate(values):
        try:
            results.append(result_of(value, f"{name}[{number}]"))
        except RewardFunctionError as error:
            results.append(failed(error))
    return results


def failed(
    error: BaseException, file: str | None = None, *, where: str | None = None
) -> EvaluateResult:
    """Return the invalid result of a function that raised.

    Args:
        error: The exception.
        file: The function's file; the message contains the line in it.
        where: What the message begins with.
    """
    text = describe_failure(error, where)
    if file is not None:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == file]
        if lines:
            text += f" (line {lines[-1]} of {file.rpartition('/')[2]})"
    return EvaluateResult(is_score_valid=False, error=text)


def _validated(fields: dict[str, Any], name: str) -> EvaluateResult:
    try:
        return _checked(EvaluateResult.model_validate(fields), name)
    except ValidationError as invalid:
        problem = invalid.errors(include_url=False)[0]
        where = ".".join(map(str, problem["loc"]))
        text = problem["msg"].removeprefix("Value error, ")
        raise RewardFunctionError(
            f"{name} returned an invalid result: " + (f"{where}: {text}" if where else text)
        ) from None


def _checked(result: EvaluateResult, name: str) -> EvaluateResult:
    """Check what can be put into a result past its validation, as by `model_construct`."""
    outputs = result.step_outputs or []
    for each in outputs:
        if not isinstance(each, StepOutput):
            raise RewardFunctionError(
                f"{name} returned {reprlib.repr(each)} among the step outputs; use StepOutput"
            )
    for number in (result.score, *(output.base_reward for output in outputs)):
        if number is not None and (type(number) is not float or not math.isfinite(number)):
            raise RewardFunctionError(
                f"{name} returned {type(number).__name__} {reprlib.repr(number)}; "
                "a score is a finite float"
            )
    if result.is_score_valid:
        if result.score is None:
            raise RewardFunctionError(f"{name} returned a valid result without a score")
    elif result.error is None and result.reason is None:
        raise RewardFunctionError(f"{name} returned no valid score and no error with the reason")
    return result
