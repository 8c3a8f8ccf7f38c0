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
        >>> ChatAction(type="tool_call", name="read_booking", arguments={"code": "X"}).name
        'read_booking'

    Attributes:
        type: Whether the action is a message or a tool call.
        content: The text of the message.
        name: The tool's name.
        arguments: The tool's arguments; the model's text if it isn't a JSON object.
        arguments_error: Why the text couldn't be read as a JSON object.
        id: The ID of the tool call.
    """

    type: Literal["message", "tool_call"] = "message"
    content: str = Field(default="", max_length=LONGEST)
    name: str = ""
    arguments: dict[str, Any] | str = Field(default_factory=dict)
    arguments_error: str | None = None
    id: str | None = None


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
