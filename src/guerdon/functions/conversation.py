"""What is odd about a conversation that is scored."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from guerdon.models.message import Message

__all__ = ["oddities"]

_raw_decode = json.JSONDecoder().raw_decode

# Who doesn't speak, but says how to.
_INSTRUCTIONS = ("system", "developer")


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
    spoken = next((each.role for each in messages if each.role not in _INSTRUCTIONS), "")
    if spoken == "assistant":
        found.append("it begins with the assistant")
    open_calls: dict[str, str] = {}
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
            open_calls.pop(str(message.tool_call_id), None)
    if open_calls:
        names = ", ".join(open_calls.values())
        found.append(f"nobody answered {len(open_calls)} of its tool calls: {names}")
    return found


def _odd_calls(
    calls: Iterable[dict[str, Any]], place: int, open_calls: dict[str, str]
) -> Iterator[str]:
    for call in calls:
        function = call.get("function")
        function = function if isinstance(function, dict) else {}
        name = str(function.get("name", "(no name)"))
        open_calls[str(call.get("id"))] = f"{name} (messages[{place}])"
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            problem = _no_json(arguments)
            if problem is not None:
                yield f"messages[{place}]: the arguments of {name} are no JSON: {problem}"


def _no_json(text: str) -> str | None:
    """Why a text is no JSON."""
    try:
        if _raw_decode(text)[1] == len(text):  # nearly always
            return None
    except (ValueError, RecursionError):
        pass
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        return str(error)
    return None
