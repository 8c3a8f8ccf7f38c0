"""What goes between an agent and the chat."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, PrivateAttr

from guerdon import Action, Observation, State

__all__ = ["ChatAction", "ChatObservation", "ChatState"]

LONGEST = 10_000  # characters of a message


class ChatAction(Action):
    """What an agent says to the user, or the tool that it calls; `OpenAIPolicy` gives just that.

    Example:
        >>> from examples.tau_chat.models import ChatAction
        >>> ChatAction(content="What can I do for you?").type
        'message'
        >>> ChatAction(type="tool_call", name="read_booking", arguments={"code": "X"}).name
        'read_booking'

    Attributes:
        type: Which of the two.
        content: What it says.
        name: The tool.
        arguments: The tool's arguments; text where a model wrote what is no JSON object.
        arguments_error: Why they are none.
        id: What the call is known by.
    """

    type: Literal["message", "tool_call"] = "message"
    content: str = Field(default="", max_length=LONGEST)
    name: str = ""
    arguments: dict[str, Any] | str = Field(default_factory=dict)
    arguments_error: str | None = None
    id: str | None = None


class ChatObservation(Observation):
    """What the agent hears next.

    Example:
        >>> from examples.tau_chat.models import ChatObservation
        >>> ChatObservation(speaker="user", content="Hello.").refused
        False

    Attributes:
        speaker: Who says it: the user, or a tool.
        content: What is said.
        refused: Whether it is a tool that couldn't do what it was asked.
        rules: What the agent has to keep to; told after a reset.
        transcript: The whole conversation, once it is over.
    """

    speaker: Literal["user", "tool"]
    content: str
    refused: bool = False
    rules: str = ""
    transcript: str = ""

    # For the rubrics: whether the bookings are as they should be. It doesn't go over the wire.
    _settled: bool | None = PrivateAttr(default=None)


class ChatState(State):
    """Where a conversation stands.

    Example:
        >>> from examples.tau_chat.models import ChatState
        >>> ChatState(step_count=3).over
        False

    Attributes:
        turns: How often user and agent have spoken.
        over: Whether the conversation is over.
    """

    turns: int = 0
    over: bool = False
