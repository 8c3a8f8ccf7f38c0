"""What makes two steps the same state, for anchor groups: functions of a `StepData`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias

from guerdon.errors import CreditError, InvalidArgumentError
from guerdon.models.message import Message
from guerdon.models.step_data import StepData

__all__ = ["StateKey", "last_messages", "state_key", "whole_history"]

_COUNT = re.compile("[1-9][0-9]{0,8}")

StateKey: TypeAlias = Callable[[StepData], Any]


def state_key(name: str | StateKey) -> StateKey:
    """The state key of that name; a function is one already.

    Example:
        >>> from guerdon import Message, StepData
        >>> step = StepData(system_step_index=0, step_info={"assistant_turn_index": 0},
        ...     resulting_messages_history=[Message(role="user", content="6 × 7?"),
        ...                                 Message(role="assistant", content="42")])
        >>> state_key("last")(step)
        (('user', '6 × 7?'),)

    Args:
        name: ``last``, the last message before the step that isn't the assistant's; ``last-3``,
            the last three of these; ``history``, all messages before the step, also the
            assistant's; or a function of a `StepData`.

    Raises:
        InvalidArgumentError: There is none of that name.
    """
    if callable(name):
        return name
    name = name if isinstance(name, str) else repr(name)
    if name == "history":
        return whole_history
    if name == "last":
        return last_messages(1)
    count = name.removeprefix("last-")
    if count != name and _COUNT.fullmatch(count):
        return last_messages(int(count))
    raise InvalidArgumentError(
        f"there is no state key {name!r}; there are 'last', 'last-K' (such as 'last-3'), "
        "'history', and functions of a step"
    )


def last_messages(count: int) -> StateKey:
    """The last `count` messages before the step that aren't the assistant's.

    Answers to several calls of one turn are one. Identifiers of calls are left out: they differ in
    each rollout.

    Args:
        count: How many, at least 1.
    """

    def key(step: StepData) -> Hashable:
        said: list[list[tuple[str, Any]]] = []
        before = "assistant"
        for each in _before(step):
            if each.role == "tool" == before:
                said[-1].append((each.role, _content(each)))
            elif each.role != "assistant":
                said.append([(each.role, _content(each))])
            before = each.role
        return tuple(message for together in said[-count:] for message in together)

    return key


def whole_history(step: StepData) -> Hashable:
    """All messages before the step, with the tools that were called and their arguments."""
    return tuple((each.role, _content(each), _calls(each)) for each in _before(step))


def _before(step: StepData) -> Sequence[Message]:
    """The conversation up to the step's own assistant turn.

    Raises:
        CreditError: The step has no messages.
    """
    history = step.resulting_messages_history
    if not history:
        raise CreditError(
            "it has no messages, so that they say nothing of its state; give a state_key of your "
            "own, such as lambda step: step.observation_data"
        )
    turns = [place for place, each in enumerate(history) if each.role == "assistant"]
    if not turns:
        return history
    number = step.step_info.get("assistant_turn_index")
    # A history may be cut off at its beginning: then the step's own turn is its last.
    if type(number) is not int or not 0 <= number < len(turns):
        number = -1
    return history[: turns[number]]


def _content(message: Message) -> Hashable:
    content = message.content
    if content is None or isinstance(content, str):
        return content or ""
    return ("parts", json.dumps(content, sort_keys=True))


def _calls(message: Message) -> tuple[tuple[str, str], ...]:
    functions = [call.get("function") for call in message.tool_calls or ()]
    if message.role == "assistant" and "function_call" in message:  # as it once was
        functions.append(message["function_call"])
    return tuple(
        (str(each.get("name")), str(each.get("arguments")))
        if isinstance(each, dict)
        else ("", repr(each))
        for each in functions
    )
