"""Conversations as reward functions take them, and what is odd about one."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import TypeAdapter, ValidationError

from guerdon.errors import RewardFunctionError
from guerdon.models.message import Message

__all__ = ["as_messages", "oddities"]

_messages = TypeAdapter(list[Message])
_raw_decode = json.JSONDecoder().raw_decode
_plain = {Message}

# Who doesn't speak, but says how to.
_INSTRUCTIONS = ("system", "developer")


def as_messages(messages: Any, where: str = "messages") -> list[Message]:
    """A list of `Message` of its own, made of messages or dicts in OpenAI's chat format.

    Args:
        messages: The conversation.
        where: What it is called, for the error.

    Raises:
        RewardFunctionError: It is no list, or a message isn't one.
    """
    if not isinstance(messages, (list, tuple)):
        raise RewardFunctionError(
            f"{where} is {reprlib.repr(messages)}; it takes a list of messages {{role, content}}"
        )
    if _plain.issuperset(map(type, messages)):
        return list(messages)
    try:
        return _messages.validate_python(list(messages))
    except ValidationError as invalid:
        problem = invalid.errors(include_url=False)[0]
        place, *fields = problem["loc"]
        at = ".".join([f"{where}[{place}]", *map(str, fields)])
        raise RewardFunctionError(
            f"{at}: {problem['msg']}, not {reprlib.repr(problem['input'])}"
        ) from None


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
