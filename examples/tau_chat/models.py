"""The action, observation and state of the chat."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, PrivateAttr

from guerdon import Action, Observation, State

__all__ = ["ChatAction", "ChatObservation", "ChatState"]

LONGEST = 10_000  # characters of a message


class ChatAction(Action):
    """A message to the user or a tool call, in the layout that `OpenAIPolicy` returns.

    Example:
        >>> from examples.tau_chat.models import ChatAction
        >>> ChatAction(content="What can I do for you?").type
        'message'
        >>> call = {"tool_name": "read_booking", "arguments": {"code": "X"}}
        >>> ChatAction(type="call_tool", **call).tool_name
        'read_booking'

    Attributes:
        type: Whether the action is a message or a tool call.
        content: The text of the message.
        tool_name: The tool's name.
        arguments: The tool's arguments.
        arguments_error: Why the model's text couldn't be read as a JSON object.
    """

    type: Literal["message", "call_tool"] = "message"
    content: str = Field(default="", max_length=LONGEST)
    tool_name: str = ""
    arguments: dict[str, Any] = Field(default_factory=dict)
    arguments_error: str = ""


class ChatObservation(Observation):
    """The user's reply or a tool's result.

    Example:
        >>> from examples.tau_chat.models import ChatObservation
        >>> ChatObservation(speaker="user", content="Hello.").refused
        False

    Attributes:
        speaker: Whether the content comes from the user or from a tool.
        content: The text.
        refused: Whether the tool call failed.
        rules: The agent's rules; set after a reset only.
        transcript: The whole conversation; set at its end only.
    """

    speaker: Literal["user", "tool"]
    content: str
    refused: bool = False
    rules: str = ""
    transcript: str = ""

    # For the rubrics: whether the bookings are as expected. Not sent to clients.
    _settled: bool | None = PrivateAttr(default=None)


class ChatState(State):
    """The state of a conversation.

    Example:
        >>> from examples.tau_chat.models import ChatState
        >>> ChatState(step_count=3).over
        False

    Attributes:
        turns: The number of messages between user and agent.
        over: Whether the conversation is over.
    """

    turns: int = 0
    over: bool = False
