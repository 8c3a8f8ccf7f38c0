"""Observations as JSON and as messages."""

from __future__ import annotations

import json
from typing import Any, TypeGuard

from pydantic import ValidationError

from guerdon.rollouts.json_forms import as_json
from guerdon.rollouts.playing.adapters import BESIDE
from guerdon.types.content import text_or_parts
from guerdon.types.message import TEXT_FIELDS, Message
from guerdon.types.tool_calls import ToolOutcome

__all__ = ["observation_text"]


def content_of(observation: Any) -> Any:
    """Return an observation as JSON, without `done`, `reward` and `metadata`.

    Example:
        >>> content_of({"board": (1, 2), "done": False})
        {'board': [1, 2]}
    """
    form = as_json(observation)
    if not isinstance(form, dict):
        return form
    return {name: value for name, value in form.items() if name not in BESIDE}


def observation_text(observation: Any) -> str:
    """Return the text of an observation, as a rollout worker shows it to the policy.

    Example:
        >>> from guerdon.rollouts import observation_text
        >>> observation_text({"text": "Which number?", "done": False})
        'Which number?'
        >>> observation_text({"board": (1, 2), "reward": 0.5})
        '{"board": [1, 2]}'

    Args:
        observation: An observation of any kind.

    Returns:
        Its `messages`, `content`, `message`, `text` or `prompt`, or else its JSON without `done`,
        `reward` and `metadata`.
    """
    return _text(content_of(observation))


def first_messages(content: Any) -> list[Message]:
    """Return the beginning of a conversation from an episode's first observation.

    Example:
        >>> first_messages({"text": "Which number?"})[0].to_openai()
        {'role': 'user', 'content': 'Which number?'}
    """
    given = content.get("messages") if isinstance(content, dict) else None
    if _is_conversation(given):
        return [Message.model_validate(each) for each in given]
    return [Message(role="user", content=_text(content))]


def answer_messages(content: Any, calls: list[dict[str, Any]]) -> list[Message]:
    """Return the messages of a later observation.

    A call of a `ToolEnvironment` is answered with the text of its own result, or with its error,
    ``is_error: true`` and the ``error_type``.

    Example:
        >>> [message] = answer_messages({"text": "7"}, [{"id": "call_0", "type": "function"}])
        >>> message.to_openai()
        {'role': 'tool', 'content': '7', 'tool_call_id': 'call_0'}

    Args:
        content: The observation's content, as of `content_of`.
        calls: The tool calls of the turn before, in OpenAI's format; each gets an answer.
    """
    outcomes = _outcomes(content)
    if calls and len(outcomes) == len(calls):
        return [_answer(call, outcome) for call, outcome in zip(calls, outcomes, strict=True)]
    if not calls and content == {"messages": []}:
        return []  # the episode has ended without an answer
    text = _text(content)
    if not calls:
        return [Message(role="user", content=text)]
    return [Message(role="tool", content=text, tool_call_id=call.get("id")) for call in calls]


def _outcomes(content: Any) -> list[ToolOutcome]:
    """Return the outcomes of calls in the observation of a `ToolEnvironment`; else none."""
    if not isinstance(content, dict):
        return []
    given = content.get("results") if "results" in content else [content]
    if not isinstance(given, list) or not all(map(_is_outcome, given)):
        return []
    try:
        return [ToolOutcome.model_validate(each) for each in given]
    except ValidationError:
        return []


def _is_outcome(given: Any) -> bool:
    return isinstance(given, dict) and {"tool_name", "result", "error"} <= given.keys()


def _answer(call: dict[str, Any], outcome: ToolOutcome) -> Message:
    """Return the message for the result or the error of a call, and with which error it failed."""
    result = outcome.result
    content: Any = outcome.text
    if result is not None and any(each.get("type") == "image" for each in result.content):
        content = [_part(each) for each in result.content]
    failure: dict[str, Any] = {}
    if outcome.is_error:
        kind = "execution_error" if outcome.error is None else outcome.error.error_type
        failure = {"is_error": True, "error_type": kind}
    return Message(role="tool", content=content, tool_call_id=call.get("id"), **failure)


def _part(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block of a result as a part of a message in OpenAI's format."""
    if block.get("type") != "image":
        return {"type": "text", "text": str(block.get("text") or "")}
    kind = block.get("mimeType") or "image/png"
    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{block.get('data')}"}}


def _text(content: Any) -> str:
    """The text of an observation: its own, if it has any, else its JSON."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        given = content.get("messages")
        if _is_conversation(given):
            given = [text_or_parts(Message.model_validate(each).content) or "" for each in given]
        if isinstance(given, list) and given and all(isinstance(each, str) for each in given):
            return "\n".join(given)
        for name in TEXT_FIELDS:
            text = text_or_parts(content.get(name))
            if isinstance(text, str) and text:
                return text
    return json.dumps(content, ensure_ascii=False)


def _is_conversation(given: Any) -> TypeGuard[list[dict[str, Any]]]:
    return (
        isinstance(given, list)
        and bool(given)
        and all(isinstance(each, dict) and {"role", "content"} <= set(each) for each in given)
    )
