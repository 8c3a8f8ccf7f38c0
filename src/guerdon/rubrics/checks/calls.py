"""The tool calls of a step with their outcomes, in an environment and in a recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from guerdon._patterns import Pattern
from guerdon._validation import check_type
from guerdon.errors import MissingInputError
from guerdon.rubrics.checks.inputs import field_of
from guerdon.rubrics.recording import is_done

if TYPE_CHECKING:
    from guerdon.types.message import Message
    from guerdon.types.tool_calls import ToolOutcome


@dataclass(frozen=True, slots=True)
class StepCall:
    """A tool call of a step, and how it ended.

    Attributes:
        name: The tool's name.
        arguments: The arguments that the tool received, in a recording those that the model wrote;
            empty if they can't be read.
        error: The type of its error, as in `ToolError`; None if it has not failed.
        text: The text of its result or its error.
    """

    name: str
    arguments: Mapping[str, Any]
    error: str | None = None
    text: str = ""


def calls_of_step(
    action: Any, observation: Any, *, error_pattern: str | None = None
) -> list[StepCall]:
    """Return the calls of a step, in order.

    A step of a `ToolEnvironment` has a `ToolAction` and the observation that answers it. In a
    recording, the calls are the `tool_calls` of the assistant's message, and the messages with the
    role ``tool`` after it answer them: by their IDs, those without the ID of a call in order.

    A recorded call has failed if its arguments are not a JSON object (``invalid_args``); if it has
    no answer (``transport_error``), unless the recording ends with the turn and none of its calls
    has an answer; or if the message that answers it has ``is_error: true``, as `RLRolloutWorker`
    writes it with the ``error_type``, or a text that matches `error_pattern` (``execution_error``).

    Args:
        action: The action.
        observation: The observation that it led to.
        error_pattern: A regular expression that finds the texts of recorded errors.

    Raises:
        MissingInputError: The action is no `ToolAction` and has no `tool_calls`, or the observation
            of a `ToolAction` doesn't have an outcome for each call.

    Example:
        >>> from guerdon.types import CallToolAction, CallToolObservation
        >>> calls_of_step(CallToolAction(tool_name="look"), CallToolObservation(tool_name="look"))
        [StepCall(name='look', arguments={}, error=None, text='')]
    """
    from guerdon.types.tool_calls import ToolAction, calls_of, outcomes_of

    if not isinstance(action, ToolAction):
        return _recorded_calls(action, observation, error_pattern)
    calls, outcomes = calls_of(action), outcomes_of(observation)
    if len(calls) != len(outcomes):
        raise MissingInputError(
            f"the observation ({type(observation).__name__}) must have an outcome for each of the "
            f"{len(calls)} calls of the action, got {len(outcomes)}"
        )
    return [
        StepCall(
            call.tool_name,
            call.arguments if outcome.received is None else outcome.received,
            _error_of(outcome),
            outcome.text,
        )
        for call, outcome in zip(calls, outcomes, strict=True)
    ]


def _error_of(outcome: ToolOutcome) -> str | None:
    other = "execution_error" if outcome.is_error else None
    return other if outcome.error is None else outcome.error.error_type


# Recordings --------------------------------------------------------------------------------------


def _recorded_calls(action: Any, observation: Any, error_pattern: str | None) -> list[StepCall]:
    from guerdon.types.message import read_messages
    from guerdon.types.message_formats import openai_call, unread_call

    calls = field_of(action, "tool_calls")
    if not isinstance(calls, Sequence) or not all(isinstance(each, Mapping) for each in calls):
        raise MissingInputError(
            f"the action ({type(action).__name__}) has no tool calls: it must be a ToolAction, or "
            "have `tool_calls`, as a turn of a recorded conversation has"
        )
    calls = [openai_call(call) for call in calls]
    others = field_of(field_of(action, "raw"), "model_extra")
    unread = unread_call(field_of(action, "content"), calls, others)
    if unread is not None:
        raise MissingInputError(f"the action has {unread}")
    after = field_of(field_of(observation, "metadata"), "messages")
    answers = [each for each in read_messages(after or []) if each.role == "tool"]
    missing = None if is_done(observation) and not answers else "transport_error"
    matched = _answers_of(calls, answers)
    _check_answers(action, [answer for answer in answers if answer.tool_call_id or not calls])
    return [
        _read_call(
            call, *((missing, "") if answer is None else _read_answer(answer, error_pattern))
        )
        for call, answer in zip(calls, matched, strict=True)
    ]


def _check_answers(action: Any, answers: Sequence[Message]) -> None:
    """Check that answers to no call of the turn belong to earlier calls of the conversation."""
    from guerdon.types.message import read_messages

    history = read_messages(field_of(action, "history") or []) if answers else []
    ids = {call.get("id") for message in history for call in message.tool_calls or ()} - {None}
    for answer in answers:
        if answer.tool_call_id not in ids:
            raise MissingInputError(
                "the action has a tool call in a format that isn't read: no call has the result "
                f"{answer.text!r:.100}"
            )


def _answers_of(calls: Sequence[Mapping[str, Any]], answers: list[Message]) -> list[Message | None]:
    """Remove and return the answer to each call: by its id, else by its name, else in order."""
    ids = {call["id"] for call in calls if isinstance(call.get("id"), str)}
    matched: list[Message | None] = []
    for call in calls:
        others = [answer for answer in answers if answer.tool_call_id not in ids]
        fitting = [answer for answer in answers if answer.tool_call_id in ids & {call.get("id")}]
        fitting += [answer for answer in others if answer.name == call["function"]["name"]]
        unnamed = [answer for answer in others if answer.name is None]
        fitting += [
            answer for answer in unnamed if not answer.tool_call_id or len(ids) < len(calls)
        ]
        matched.append(fitting[0] if fitting else None)
        answers[:] = [answer for answer in answers if answer is not matched[-1]]
    return matched


def _read_call(call: Mapping[str, Any], error: str | None, text: str) -> StepCall:
    from pydantic_core import from_json

    name, given = call["function"]["name"], call["function"].get("arguments") or "{}"
    if not name:
        return StepCall(name, {}, "tool_not_found", text or "the call has no name")
    try:
        given = given if isinstance(given, Mapping) else from_json(given, allow_inf_nan=False)
    except (ValueError, TypeError):
        given = None
    if isinstance(given, Mapping):
        return StepCall(name, given, error, text)
    return StepCall(name, {}, "invalid_args", text or "the arguments are not a JSON object")


def _read_answer(answer: Message, pattern: str | None) -> tuple[str | None, str]:
    """Return the type of the error, and the text, of the answer to a call."""
    from guerdon.types.message_formats import FAILED

    failed = answer.get("status") == "error" or any(answer.get(name) is True for name in FAILED)
    failed = failed or (pattern is not None and _compiled(pattern).found_in(answer.text))
    error = str(answer.get("error_type") or "execution_error") if failed else None
    return error, answer.text


# The pattern of recorded errors ------------------------------------------------------------------


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> Pattern:
    return Pattern("error_pattern", pattern)


def check_error_pattern(name: str, value: object) -> str:
    """Return a regular expression that finds the texts of recorded errors.

    Raises:
        InvalidArgumentError: It is not a string, or not a valid regular expression.
    """
    return str(_compiled(check_type(name, value, str)).text)
