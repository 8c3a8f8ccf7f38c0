"""The tool calls of a conversation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from examples.tau_airline.tables import ToolError
from examples.tau_airline.tools import read_arguments
from guerdon import Message

__all__ = ["Call", "calls_of"]


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call.

    Example:
        >>> from examples.tau_airline.calls import Call
        >>> call = Call(0, "cancel_reservation", '{"reservation_id": "ZFA04Y"}')
        >>> call.title, call.readable
        ('cancel_reservation ZFA04Y', True)

    Attributes:
        turn: The number of the assistant turn with the call, from 0.
        name: The tool's name.
        arguments: The arguments as the model wrote them, which may be invalid JSON.
        recorded: The tool's answer in the recording, or None.
    """

    turn: int
    name: str
    arguments: str | Mapping[str, Any]
    recorded: str | None = None

    @property
    def readable(self) -> bool:
        """Whether the tool exists and accepts the arguments."""
        return self._read() is not None

    @property
    def title(self) -> str:
        """The tool's name with the ID of the reservation or user."""
        read = self._read() or {}
        subject = read.get("reservation_id") or read.get("user_id")
        return f"{self.name} {subject}" if subject else self.name

    def _read(self) -> dict[str, Any] | None:
        try:
            return read_arguments(self.name, self.arguments)
        except ToolError:
            return None


def calls_of(messages: Sequence[Message]) -> Iterator[Call]:
    """Yield the executed calls of a conversation in order.

    A call was executed if one of the tool messages directly after its turn answers it, by ID or, if
    that is missing, by position. The calls of the last message count as executed too, because no
    answer can follow them. Other calls without an answer were not executed.

    Example:
        >>> from examples.tau_airline.calls import calls_of
        >>> from guerdon import Message
        >>> function = {"name": "think", "arguments": '{"thought": "Hm."}'}
        >>> call = Message(role="assistant", tool_calls=[{"id": "c0", "function": function}])
        >>> list(calls_of([call]))[0].name, list(calls_of([call, call]))[0].turn
        ('think', 1)

    Args:
        messages: The conversation.
    """
    turn = -1
    for place, message in enumerate(messages):
        if message.role != "assistant":
            continue
        turn += 1
        calls = message.tool_calls or []
        answers = list(_answers(messages, place + 1))
        ids = {call["id"] for call in calls if isinstance(call.get("id"), str)}
        by_id = {each.tool_call_id: each.text for each in answers if each.tool_call_id in ids}
        by_place = [None if each.tool_call_id in ids else each.text for each in answers]
        for number, call in enumerate(calls):
            recorded = by_id.get(str(call.get("id")))
            if recorded is None and number < len(by_place):
                recorded = by_place[number]
            if recorded is not None or place == len(messages) - 1:
                yield _call(call, turn=turn, recorded=recorded)


def _answers(messages: Sequence[Message], start: int) -> Iterator[Message]:
    for place in range(start, len(messages)):
        if messages[place].role != "tool":
            return
        yield messages[place]


def _call(call: Mapping[str, Any], *, turn: int, recorded: str | None) -> Call:
    function = call.get("function")
    function = function if isinstance(function, Mapping) else {}
    arguments = function.get("arguments")
    if not isinstance(arguments, (str, Mapping)):
        arguments = json.dumps(arguments)
    return Call(turn, str(function.get("name", "")), arguments, recorded)
