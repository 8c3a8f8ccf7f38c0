"""What environments of any kind show, as one result, as JSON, and as messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeGuard

from pydantic import BaseModel, TypeAdapter, ValidationError

from guerdon.errors import InvalidObservationError
from guerdon.rollouts.json_forms import as_json
from guerdon.types.message import TEXT_FIELDS, Message
from guerdon.types.numbers import FiniteFloat
from guerdon.types.step_result import StepResult

__all__ = ["answer_messages", "first_messages", "read_result", "shown"]

# What an observation says beside what it shows.
BESIDE = frozenset({"done", "reward", "metadata"})

_reward = TypeAdapter(FiniteFloat | None)


def read_result(answer: Any, what: str) -> StepResult[Any]:
    """What an environment answered to a reset or a step, of whatever kind it is.

    Example:
        >>> read_result({"text": "hi", "reward": 1, "done": True}, "step").reward
        1.0

    Args:
        answer: An observation, a model, an object or a dict, with `done` and `reward`; or
            something that holds one as `observation`, as a `StepResult` does.
        what: ``"reset"`` or ``"step"``, for the message.

    Raises:
        InvalidObservationError: It is none of these, or its reward is no finite number.
    """
    observation = _get(answer, "observation") if _is_wrapped(answer) else answer
    done = _get(answer, "done")
    if done is None and what == "reset":
        done = False
    if observation is None or isinstance(done, str) or done not in (True, False):
        raise InvalidObservationError(
            f"{what} gave {answer!r:.80}; it gives an observation that says whether it is done"
        )
    reward = _get(answer, "reward")
    try:
        number = _reward.validate_python(int(reward) if isinstance(reward, bool) else reward)
    except ValidationError:
        raise InvalidObservationError(
            f"{what} gave a reward of {reward!r:.60}; it is a finite number or None"
        ) from None
    metadata = _get(answer, "metadata") or _get(observation, "metadata") or {}
    if not isinstance(metadata, Mapping):
        raise InvalidObservationError(f"{what} gave metadata that are no dict: {metadata!r:.60}")
    return StepResult(observation, number, bool(done), dict(metadata))


def _is_wrapped(answer: Any) -> bool:
    """Whether something holds an observation, and isn't one itself."""
    if isinstance(answer, Mapping):
        return "observation" in answer and set(answer) <= BESIDE | {"observation"}
    return hasattr(answer, "observation") and not isinstance(answer, BaseModel)


def _get(holder: Any, name: str) -> Any:
    return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)


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
