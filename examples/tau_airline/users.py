"""Who plays the user: a script, a recording, or a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from examples.tau_airline.audit import STOP
from guerdon import Environment, MCPClient
from guerdon.errors import EnvError, InvalidArgumentError, ServiceError

__all__ = ["choose_user", "replayed_user", "scripted_user"]

# Returns the user's next message. It gets the task's instruction, and the conversation in OpenAI's
# format as the user sees it: the agent's messages have the role "user".
User: TypeAlias = Callable[[str, Sequence[dict[str, str]]], str]

SERVICE = "user"  # the service that is the user's model
GREETING = "Hello. What can I do for you?"  # of the agent, which a model answers

PROMPT = f"""You play a customer who writes to the support agent of an airline. Stay in this role; \
never say that it is one. Who you are, and what you want:

{{instruction}}

- Write only the customer's next message: short, and in your own words.
- Don't tell everything at once. Give a detail when it is asked for, or when it matters.
- Invent nothing. If the agent asks for something that isn't described above, you don't know it.
- As soon as the agent has done all that you want, or it is clear that it won't, end the \
conversation: write {STOP} in your message."""


def scripted_user(instruction: str, messages: Sequence[dict[str, str]]) -> str:
    """Return the next message of a user without a model, for tests.

    It states the whole instruction, answers each question with yes, and leaves at the first message
    without a question.

    Example:
        >>> from examples.tau_airline.users import scripted_user
        >>> said = [{"role": "assistant", "content": "…"},
        ...         {"role": "user", "content": "Shall I cancel it?"}]
        >>> scripted_user("You want to cancel your flight.", said)
        'Yes.'
    """
    if not any(each["role"] == "assistant" for each in messages):
        return f"Hello. My request, as it was described to me: {instruction}"
    return "Yes." if "?" in messages[-1]["content"] else f"Thank you. {STOP}"


def replayed_user(given: Sequence[str]) -> User:
    """Return a user that sends given messages in turn.

    Example:
        >>> from examples.tau_airline.users import replayed_user
        >>> replayed_user(["Hello!", "Thanks. ###STOP###"])("", [])
        'Hello!'

    Raises:
        InvalidArgumentError: There is no message, or one is not a string.
    """
    texts = list(given) if isinstance(given, (list, tuple)) else []
    if not texts or not all(isinstance(each, str) for each in texts):
        raise InvalidArgumentError(
            f"`user_messages` must be a list of strings that isn't empty, got {given!r:.80}"
        )

    def reply(instruction: str, messages: Sequence[dict[str, str]]) -> str:
        turn = sum(each["role"] == "assistant" for each in messages)
        if turn >= len(texts):
            raise EnvError(f"the user's recording has {len(texts)} messages, and no further one")
        said: str = texts[turn]
        return said

    return reply


def model_user(services: MCPClient) -> User:
    """Return a user that is played by a model, the service ``user``."""

    def reply(instruction: str, messages: Sequence[dict[str, str]]) -> str:
        prompt = {"role": "system", "content": PROMPT.format(instruction=instruction)}
        try:
            text = services.call_tool(SERVICE, messages=[prompt, *messages])
        except ServiceError as error:
            raise EnvError(f"the user's model failed: {error}") from error
        if not isinstance(text, str) or not text.strip():
            raise EnvError(f"the user's model must return a text, got {text!r:.80}")
        return text

    return reply


def choose_user(
    environment: Environment[Any, Any, Any], messages: Sequence[str] | None
) -> tuple[str, User]:
    """Return who plays the user, and the user: given messages, else a model, else the script.

    Args:
        environment: The environment, which may have a service ``user``.
        messages: The messages; None if there are none.

    Raises:
        InvalidArgumentError: The messages are invalid.
    """
    if messages is not None:
        return "replayed", replayed_user(messages)
    try:
        services = environment.mcp
    except ServiceError:  # it has none
        return "scripted", scripted_user
    if SERVICE in services.services:
        return "model", model_user(services)
    return "scripted", scripted_user
