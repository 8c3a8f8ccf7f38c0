"""What makes two steps the same state, for anchor groups: functions of a `StepData`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable
from operator import attrgetter
from typing import Any, TypeAlias

from guerdon.errors import CreditError, InvalidArgumentError
from guerdon.types.message import Message
from guerdon.types.step_data import StepData

__all__ = ["StateKey", "last_messages", "state_key", "whole_history"]

_COUNT = re.compile("[1-9][0-9]{0,8}")

_role = attrgetter("role")

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
        history, place = step.resulting_messages_history, _own_turn(step)
        said: list[tuple[str, Hashable]] = []
        together, after = 0, ""
        for each in reversed(history[:place]):  # most of a long history is never looked at
            if each.role != "assistant":
                together += not (each.role == "tool" == after)
                if together > count:
                    break
                said.append((each.role, _content(each)))
            after = each.role
        return tuple(reversed(said))

    return key


def whole_history(step: StepData) -> Hashable:
    """All messages before the step, with the tools that were called and their arguments."""
    before = step.resulting_messages_history[: _own_turn(step)]
    return tuple((each.role, _content(each), _calls(each)) for each in before)


def _own_turn(step: StepData) -> int:
    """The place of the step's own assistant turn in its conversation; its end where it has none.

    Raises:
        CreditError: The step has no messages.
    """
    history = step.resulting_messages_history
    if not history:
        raise CreditError(
            "it has no messages, so that they say nothing of its state; give a state_key of your "
            "own, such as lambda step: step.observation_data"
        )
    roles = list(map(_role, history))
    turns = roles.count("assistant")
    number = step.step_info.get("assistant_turn_index")
    if type(number) is int and 0 <= number < turns - 1:  # the conversation went on
        return [place for place, role in enumerate(roles) if role == "assistant"][number]
    # Its own turn is the last, also of a history that is cut off at its beginning.
    return len(roles) - 1 - roles[::-1].index("assistant") if turns else len(roles)


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
