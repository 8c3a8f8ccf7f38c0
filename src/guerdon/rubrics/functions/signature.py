"""How a reward function takes its arguments, found out once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from inspect import Parameter
from typing import Any, Literal, TypeAlias

from guerdon.errors import RewardFunctionError

__all__ = ["Mode", "Parameters", "messages_in", "parameters_of"]

Mode: TypeAlias = Literal["pointwise", "batch"]

MESSAGES: dict[str, Mode] = {"messages": "pointwise", "rollouts_messages": "batch"}
MESSAGES_OF: dict[Mode, str] = {"pointwise": "messages", "batch": "rollouts_messages"}
GROUND_TRUTH: dict[Mode, str] = {"pointwise": "ground_truth", "batch": "ground_truths"}

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a reward function takes.

    Attributes:
        mode: ``pointwise`` takes one conversation, ``batch`` a list of them.
        messages: The parameter that takes the conversations; None where it comes first.
        ground_truth: The parameter that takes the ground truth; None where there is none.
        named: The names of all others.
        takes_all: Whether it has ``**kwargs``.
    """

    mode: Mode
    messages: str | None
    ground_truth: str | None
    named: frozenset[str]
    takes_all: bool

    def takes(self, name: str) -> bool:
        """Whether an argument of that name reaches the function."""
        return self.takes_all or name in self.named

    def arguments(self, ground_truth: Any, others: dict[str, Any]) -> dict[str, Any]:
        """The keyword arguments of a call; what the function doesn't take is left out."""
        if self.takes_all:
            arguments = dict(others)
        else:
            arguments = {name: others[name] for name in others if name in self.named}
        if self.ground_truth is not None:
            arguments[self.ground_truth] = ground_truth
        return arguments


def parameters_of(function: Callable[..., Any], mode: Mode | None = None) -> Parameters:
    """Read a function's signature.

    Args:
        function: The function.
        mode: Said outright; None finds it out by the name of the parameter, ``messages`` or
            ``rollouts_messages``.

    Raises:
        RewardFunctionError: The function takes no messages, or those of the other mode.
    """
    name = getattr(function, "__name__", repr(function))
    if mode not in (None, "pointwise", "batch"):
        raise RewardFunctionError(f"mode is {mode!r}; it takes 'pointwise' or 'batch'")
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        raise RewardFunctionError(f"{name} has no signature that can be read") from None
    said = [name for name, each in parameters.items() if name in MESSAGES and _is_one(each)]
    if len(said) > 1 or (said and mode not in (None, MESSAGES[said[0]])):
        raise RewardFunctionError(
            f"{name} takes {' and '.join(map(repr, said))}"
            + (f", but its mode is said to be {mode!r}" if mode else "")
            + "; 'messages' is one conversation (pointwise), 'rollouts_messages' a list of them "
            "(batch)"
        )
    positional = [each.name for each in parameters.values() if each.kind in _POSITIONAL]
    if not said and (mode is None or not positional):
        raise RewardFunctionError(
            f"{name}({', '.join(parameters)}) takes no 'messages' (one conversation) and no "
            "'rollouts_messages' (a list of them); name its first parameter so, or say the mode "
            "with @reward_function(mode=…)"
        )
    if positional and positional[0] in ("self", "cls"):
        raise RewardFunctionError(
            f"{name} is a method, which would miss its {positional[0]!r}; make a reward function "
            f"of the bound one: reward_function(thing.{name})"
        )
    read = _read(parameters, positional, said, mode)
    first = positional[0] if positional and read.messages is None else None
    for each in parameters.values():
        if each.kind is Parameter.POSITIONAL_ONLY and each.name != first:
            raise RewardFunctionError(
                f"{name} takes {each.name!r} by its place alone, and only the messages are given "
                "so; leave out the / or the parameter"
            )
    return read


def messages_in(function: Callable[..., Any]) -> list[str]:
    """The parameters of a function that are called as messages are; none of what has no signature.

    Example:
        >>> messages_in(lambda messages, ground_truth=None: 0.0)
        ['messages']
    """
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return []
    return [name for name, each in parameters.items() if name in MESSAGES and _is_one(each)]


def _is_one(parameter: Parameter) -> bool:
    return parameter.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def _read(parameters: Any, positional: list[str], said: list[str], mode: Mode | None) -> Parameters:
    mode = mode or MESSAGES[said[0]]
    messages = said[0] if said else positional[0]
    takes_all = any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values())
    expected = GROUND_TRUTH[mode]
    ground_truth: str | None = None
    if expected in parameters or takes_all:
        ground_truth = expected
    elif not said and len(positional) > 1:  # neither has the name that it could have
        ground_truth = positional[1]
    named = {
        each.name
        for each in parameters.values()
        if each.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    }
    first = bool(positional) and positional[0] == messages
    return Parameters(
        mode,
        None if first else messages,
        ground_truth,
        frozenset(named - {messages, ground_truth}),
        takes_all,
    )
