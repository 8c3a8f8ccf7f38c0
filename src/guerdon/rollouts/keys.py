"""Keys that compare states and groups of recorded steps."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable
from operator import attrgetter
from typing import Any, TypeAlias

from guerdon._validation import shown
from guerdon.errors import CreditError, InvalidArgumentError
from guerdon.types.message import Message
from guerdon.types.step_data import StepData

__all__ = ["StateKey", "group_key", "last_messages", "state_key", "whole_history"]

_LAST = re.compile("last(?:-([1-9][0-9]{0,8}))?")

_role = attrgetter("role")

StateKey: TypeAlias = Callable[[StepData], Any]


def group_key(group: Any) -> Hashable:
    """Return a hashable key of a group, which may be any JSON value; None is its own key."""
    return None if group is None else json.dumps(group, sort_keys=True, default=repr)


def state_key(name: str | StateKey) -> StateKey:
    """Return the state key of that name; a function is returned unchanged.

    Example:
        >>> from guerdon import Message, StepData
        >>> step = StepData(system_step_index=0, step_info={"assistant_turn_index": 0},
        ...     resulting_messages_history=[Message(role="user", content="6 × 7?"),
        ...                                 Message(role="assistant", content="42")])
        >>> state_key("last")(step)
        (('user', '6 × 7?'),)

    Args:
        name: ``last``, the last message before the step that isn't the assistant's; ``last-3``,
            the last three of these; ``history``, all messages before the step, including the
            assistant's; or a function of a `StepData`.

    Raises:
        InvalidArgumentError: There is no such state key.
    """
    if callable(name):
        return name
    if name == "history":
        return whole_history
    found = _LAST.fullmatch(name) if isinstance(name, str) else None
    if found is None:
        raise InvalidArgumentError(
            "`state_key` must be 'last', 'last-K' (such as 'last-3'), 'history' or a function of "
            f"a step, got {shown(name)}"
        )
    return last_messages(int(found[1] or 1))


def last_messages(count: int) -> StateKey:
    """Return a key of the last messages before a step that aren't the assistant's.

    Results of several tool calls of one turn count as one message. Ids of calls are left out: they
    differ in each rollout.

    Args:
        count: How many, at least 1.
    """

    def key(step: StepData) -> Hashable:
        history, place = step.resulting_messages_history, _own_turn(step)
        messages: list[tuple[str, Hashable]] = []
        counted, after = 0, ""
        for each in reversed(history[:place]):  # most of a long history is never read
            if each.role != "assistant":
                counted += not (each.role == "tool" == after)
                if counted > count:
                    break
                messages.append((each.role, _content(each)))
            after = each.role
        return tuple(reversed(messages))

    return key


def whole_history(step: StepData) -> Hashable:
    """Return all messages before the step, with the names and arguments of tool calls."""
    before = step.resulting_messages_history[: _own_turn(step)]
    return tuple((each.role, _content(each), _calls(each)) for each in before)


def _own_turn(step: StepData) -> int:
    """The index of the step's own assistant turn in its messages; their number if it has none.

    Raises:
        CreditError: The step has no messages.
    """
    history = step.resulting_messages_history
    if not history:
        raise CreditError(
            "it has no messages to compare; pass a `state_key` function, such as "
            "lambda step: step.observation_data"
        )
    roles = list(map(_role, history))
    turns = roles.count("assistant")
    number = step.step_info.get("assistant_turn_index")
    if type(number) is int and 0 <= number < turns - 1:  # the conversation went on
        return [place for place, role in enumerate(roles) if role == "assistant"][number]
    # The step's own turn is the last, also in a history whose beginning was cut off.
    return len(roles) - 1 - roles[::-1].index("assistant") if turns else len(roles)


def _content(message: Message) -> Hashable:
    content = message.content
    if content is None or isinstance(content, str):
        return content or ""
    return ("parts", json.dumps(content, sort_keys=True))


def _calls(message: Message) -> tuple[tuple[str, str], ...]:
    functions = [call.get("function") for call in message.tool_calls or ()]
    if message.role == "assistant" and "function_call" in message:  # the deprecated form
        functions.append(message["function_call"])
    return tuple(
        (str(each.get("name")), str(each.get("arguments")))
        if isinstance(each, dict)
        else ("", repr(each))
        for each in functions
    )
