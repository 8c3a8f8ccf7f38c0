"""What is odd about a conversation that is scored."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from guerdon.models.message import INSTRUCTION_ROLES, Message

__all__ = ["oddities"]

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
    found = []
    spoken = next((each.role for each in messages if each.role not in INSTRUCTION_ROLES), "")
    if spoken == "assistant":
        found.append("it begins with the assistant")
    open_calls: dict[str, list[str]] = {}
    # One pass over all, then one over the few: this runs for every rollout.
    concerned = [
        (place, each)
        for place, each in enumerate(messages)
        if each.tool_calls or each.role == "tool"
    ]
    for place, message in concerned:
        if message.tool_calls:
            found += _odd_calls(message.tool_calls, place, open_calls)
        else:
            _answer(message, place, open_calls, found)
    names = [name for waiting in open_calls.values() for name in waiting]
    if names:
        found.append(f"nobody answered {len(names)} of its tool calls: {', '.join(names[:5])}")
    return found


def _odd_calls(
    calls: Iterable[dict[str, Any]], place: int, open_calls: dict[str, list[str]]
) -> Iterator[str]:
    for call in calls:
        function = call.get("function")
        function = function if isinstance(function, dict) else {}
        name = str(function.get("name", "(no name)"))
        open_calls.setdefault(str(call.get("id")), []).append(f"{name} (messages[{place}])")
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            problem = _no_json(arguments)
            if problem is not None:
                yield f"messages[{place}]: the arguments of {name} are no JSON object: {problem}"


def _answer(
    message: Message, place: int, open_calls: dict[str, list[str]], found: list[str]
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
