"""What observations show, as JSON and as messages."""

from __future__ import annotations

import json
from typing import Any, TypeGuard

from guerdon.rollouts.json_forms import as_json
from guerdon.rollouts.playing.adapters import BESIDE
from guerdon.types.message import TEXT_FIELDS, Message

__all__ = ["answer_messages", "first_messages", "shown"]


def shown(observation: Any) -> Any:
    """What an observation shows, as JSON can hold it: without `done`, `reward` and `metadata`.

    Example:
        >>> shown({"board": (1, 2), "done": False})
        {'board': [1, 2]}
    """
    form = as_json(observation)
    if not isinstance(form, dict):
        return form
    return {name: value for name, value in form.items() if name not in BESIDE}


def first_messages(view: Any) -> list[Message]:
    """The conversation that an episode's first observation begins.

    Example:
        >>> first_messages({"text": "Which number?"})[0].to_openai()
        {'role': 'user', 'content': 'Which number?'}
    """
    given = view.get("messages") if isinstance(view, dict) else None
    if _is_conversation(given):
        return [Message.model_validate(each) for each in given]
    return [Message(role="user", content=_text(view))]


def answer_messages(view: Any, calls: list[dict[str, Any]]) -> list[Message]:
    """The messages that a later observation answers with.

    Example:
        >>> [message] = answer_messages({"text": "7"}, [{"id": "call_0", "type": "function"}])
        >>> message.to_openai()
        {'role': 'tool', 'content': '7', 'tool_call_id': 'call_0'}

    Args:
        view: What it shows, by `shown`.
        calls: The tool calls of the turn before, in OpenAI's format; each gets an answer.
    """
    text = _text(view)
    if not calls:
        return [Message(role="user", content=text)]
    return [Message(role="tool", content=text, tool_call_id=call.get("id")) for call in calls]


def _text(view: Any) -> str:
    """An observation in words: its own, where it has any, else its JSON."""
    if isinstance(view, str):
        return view
    if isinstance(view, dict):
        given = view.get("messages")
        if _is_conversation(given):
            return "\n".join(Message.model_validate(each).text for each in given)
        if isinstance(given, list) and given and all(isinstance(each, str) for each in given):
            return "\n".join(given)
        for name in TEXT_FIELDS:
            if isinstance(view.get(name), str) and view[name]:
                return str(view[name])
    return json.dumps(view, ensure_ascii=False)


def _is_conversation(given: Any) -> TypeGuard[list[dict[str, Any]]]:
    return (
        isinstance(given, list)
        and bool(given)
        and all(isinstance(each, dict) and {"role", "content"} <= set(each) for each in given)
    )
