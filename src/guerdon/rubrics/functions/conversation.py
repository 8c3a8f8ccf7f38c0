"""What is odd about a conversation that is scored."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, TypeAlias

from guerdon.types.message import INSTRUCTION_ROLES, Message

__all__ = ["oddities"]

# A tool call, with the place of its message.
_Call: TypeAlias = "tuple[dict[str, Any], int]"

_raw_decode = json.JSONDecoder().raw_decode


def oddities(messages: list[Message]) -> list[str]:
    """What is odd about a conversation, in words; most have nothing.

    A conversation that begins with the assistant, ends with a tool call that nobody answered, or
    holds arguments that are no JSON can be scored; who reads the score should know.

    Example:
        >>> from guerdon import Message
        >>> oddities([Message(role="assistant", content="Hello!")])
        ['it begins with the assistant']
    """
    found: list[str] = []
    spoken = next((each.role for each in messages if each.role not in INSTRUCTION_ROLES), "")
    if spoken == "assistant":
        found.append("it begins with the assistant")
    open_calls: dict[str, list[_Call]] = {}
    # One pass over all, then one over the few: this runs for every rollout.
    concerned = [
        (place, each)
        for place, each in enumerate(messages)
        if each.tool_calls or each.role == "tool"
    ]
    for place, message in concerned:
        if message.tool_calls:
            _ask(message.tool_calls, place, open_calls, found)
        else:
            _answer(message, place, open_calls, found)
    waiting = [call for calls in open_calls.values() for call in calls]
    if waiting:
        names = ", ".join(f"{_name(call)} (messages[{place}])" for call, place in waiting[:5])
        found.append(f"nobody answered {len(waiting)} of its tool calls: {names}")
    return found


def _ask(
    calls: Iterable[dict[str, Any]],
    place: int,
    open_calls: dict[str, list[_Call]],
    found: list[str],
) -> None:
    for call in calls:
        key = str(call.get("id"))
        if key in open_calls:
            open_calls[key].append((call, place))
        else:
            open_calls[key] = [(call, place)]
        function = call.get("function")
        arguments = function.get("arguments") if isinstance(function, dict) else None
        problem = _no_json(arguments) if isinstance(arguments, str) else None
        if problem is not None:
            found.append(
                f"messages[{place}]: the arguments of {_name(call)} are no JSON object: {problem}"
            )


def _name(call: dict[str, Any]) -> str:
    function = call.get("function")
    return str(function.get("name", "(no name)")) if isinstance(function, dict) else "(no name)"


def _answer(
    message: Message, place: int, open_calls: dict[str, list[_Call]], found: list[str]
) -> None:
    waiting = open_calls.get(str(message.tool_call_id))
    if waiting:
        waiting.pop()
    elif message.tool_call_id is not None:
        found.append(f"messages[{place}] answers {message.tool_call_id}, which nobody called")


def _no_json(text: str) -> str | None:
    """Why a text is no JSON object."""
    try:
        value, end = _raw_decode(text)
        if end == len(text) and type(value) is dict:  # nearly always
            return None
    except (ValueError, RecursionError):
        pass
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return str(error)
    return None if isinstance(value, dict) else f"it is {type(value).__name__}"
