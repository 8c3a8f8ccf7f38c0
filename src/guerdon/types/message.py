"""`Message`: one message of a conversation, in OpenAI's chat format."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Callable
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    model_serializer,
)

from guerdon.errors import InvalidArgumentError
from guerdon.types.content import joined_text, reasoning_of
from guerdon.types.message_formats import is_openai, is_openai_call, openai_messages, unread_call
from guerdon.types.reasoning import split_reasoning

__all__ = ["Message", "conversation_problems", "read_messages"]

# Roles that contain instructions.
INSTRUCTION_ROLES = ("system", "developer")

# Fields that may contain the text of an action or an observation, the most common first.
TEXT_FIELDS = ("content", "message", "text", "prompt")


class Message(BaseModel):
    """One message of a conversation.

    It is immutable, so that a reward function can't change what was recorded. It reads and writes
    OpenAI's chat format without loss: unknown fields are kept. Fields are attributes and also keys,
    ``message["content"]``. `read_messages` reads other formats, too.

    Example:
        >>> message = Message.model_validate({"role": "user", "content": "6 × 7?", "cache": True})
        >>> message.text, message["role"], message.get("name")
        ('6 × 7?', 'user', None)
        >>> message.to_openai()
        {'role': 'user', 'content': '6 × 7?', 'cache': True}

    Attributes:
        role: The role of the author.
        content: The text, a list of parts, or None with tool calls.
        name: The author's name, if several have the role.
        tool_call_id: The call that a tool's message answers.
        tool_calls: The calls that an assistant makes.
        reasoning_content: The model's reasoning before the answer, if it is returned.
    """

    model_config = ConfigDict(extra="allow", frozen=True, ser_json_inf_nan="constants")

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    reasoning_content: str | None = None

    @property
    def text(self) -> str:
        """The content as text, ``""`` without content: that of all text parts, one to a line.

        That of an assistant is without its reasoning, which is in `reasoning`. Parts of other
        types, such as images, have none. All is in `content`, as the model wrote it.
        """
        text = joined_text(self.content)
        return split_reasoning(text)[1] if self.role == "assistant" else text

    @property
    def reasoning(self) -> str:
        """The reasoning of an assistant: its `reasoning_content`, reasoning parts, and in tags.

        Example:
            >>> Message(role="assistant", content="<think>6 × 7</think>A: 42").reasoning
            '6 × 7'
        """
        if self.role != "assistant":
            return ""
        own = (self.reasoning_content, self.get("reasoning"), self.get("thinking"))
        texts = [*(each for each in own if isinstance(each, str)), reasoning_of(self.content)]
        texts.append(split_reasoning(joined_text(self.content))[0])
        return "\n".join(filter(None, texts))

    def to_openai(self) -> dict[str, Any]:
        """Return the message with the fields that it was given, as a dict of JSON types."""
        return self.model_dump()

    @model_serializer(mode="wrap")
    def _given_fields(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        given = self.model_fields_set
        return {name: value for name, value in dump(self).items() if name in given}

    def get(self, key: str, default: Any = None) -> Any:
        """Return a field by name, or `default`."""
        return self[key] if key in self.model_fields_set else default

    def __getitem__(self, key: str) -> Any:
        if key not in self.model_fields_set:
            raise KeyError(key)
        extra = self.model_extra or {}  # first: a field may have the name of a method
        return extra[key] if key in extra else getattr(self, key)

    def __contains__(self, key: object) -> bool:
        return key in self.model_fields_set


# Without the adapter, whose own method takes longer than a message.
_validate: Callable[[Any], list[Message]] = TypeAdapter(list[Message]).validator.validate_python
# The fields of which an assistant's message has one.
SAYING = {"content", "tool_calls", "reasoning_content", "reasoning", "thinking", "refusal"}
_raw_decode = json.JSONDecoder().raw_decode
_plain = {Message}


def read_messages(given: Any, where: str = "messages") -> list[Message]:
    """Return a new list of messages from `Message` objects or dicts.

    Tool calls of other formats are read into OpenAI's: calls become ``tool_calls`` with a
    ``function`` of a name and arguments, and each result a message of the role ``tool``, with the
    ``tool_call_id`` if the call has an ID. The formats are

    - calls without a ``function``, as of LangChain, and ``function_call`` with the role
      ``function``, OpenAI's older format,
    - parts of a content: Anthropic's ``tool_use`` and ``tool_result``, Gemini's ``functionCall``
      and ``functionResponse``, and those of Bedrock and the AI SDK,
    - items of OpenAI's Responses API,
    - text: ``<tool_call>`` with ``<tool_response>`` of Hermes and Qwen, ``[TOOL_CALLS]`` of
      Mistral, ``<|python_tag|>`` of Llama with JSON; the text stays in the content.

    Example:
        >>> from guerdon.types import read_messages
        >>> read_messages([{"role": "user", "content": "6 × 7?"}])[0].text
        '6 × 7?'
        >>> call = {"type": "tool_use", "id": "1", "name": "look", "input": {}}
        >>> read_messages([{"role": "assistant", "content": [call]}])[0].tool_calls
        [{'id': '1', 'type': 'function', 'function': {'name': 'look', 'arguments': '{}'}}]

    Args:
        given: The conversation. `Message` objects are not copied.
        where: Its name in error messages.

    Raises:
        InvalidArgumentError: It is not a list, or contains an invalid message.
    """
    if not isinstance(given, (list, tuple)):
        raise InvalidArgumentError(
            f"`{where}` must be a list of messages {{role, content}}, got {reprlib.repr(given)}"
        )
    if not given or (type(given[0]) is Message and _plain.issuperset(map(type, given))):
        return list(given)
    try:
        if is_openai(given):
            return _validate(given)
    except (ValueError, LookupError, TypeError, RecursionError):
        pass  # another format, or invalid
    try:
        places, messages = zip(*openai_messages(given), strict=True)
        read = _validate(messages)
    except ValidationError as invalid:
        problem = invalid.errors(include_url=False)[0]
        index, *fields = problem["loc"]
        at = ".".join([f"{where}[{places[int(index)]}]", *map(str, fields)])
        raise InvalidArgumentError(
            f"{at}: {problem['msg']}, not {reprlib.repr(problem['input'])}"
        ) from None
    except RecursionError:
        raise InvalidArgumentError(f"`{where}` is nested too deeply") from None
    for index, message in enumerate(read):
        if message.role == "assistant" and SAYING.isdisjoint(message.model_fields_set):
            keys = ", ".join(message.to_openai())
            raise InvalidArgumentError(f"{where}[{places[index]}] lacks `content`; it has {keys}")
    return read


def conversation_problems(messages: list[Message]) -> list[str]:
    """Describe what is unusual about a conversation; most have nothing unusual.

    A conversation that begins with the assistant, ends with a tool call without a result, or has a
    call that can't be read can be scored, but its score may mean something else.

    Example:
        >>> from guerdon.types import Message, conversation_problems
        >>> conversation_problems([Message(role="assistant", content="Hello!")])
        ['it begins with the assistant']
    """
    problems: list[str] = []
    roles = (each.role for each in messages if each.role not in INSTRUCTION_ROLES)
    if next(roles, None) == "assistant":
        problems.append("it begins with the assistant")
    return [*problems, *_tool_problems(messages)]


def _tool_problems(messages: list[Message]) -> list[str]:
    problems: list[str] = []
    open_calls: dict[str, list[tuple[str, int]]] = {}
    for place, message in enumerate(messages):  # for every rollout: the usual message costs little
        if message.role == "assistant":
            unread = unread_call(message.content, message.tool_calls, message.model_extra)
            problems += [] if unread is None else [f"messages[{place}]: {unread}"]
            for call in filter(is_openai_call, message.tool_calls or ()):
                name = call["function"]["name"]
                open_calls.setdefault(str(call.get("id")), []).append((name, place))
                problem = _arguments_problem(call["function"].get("arguments"))
                if problem is not None:
                    problems.append(
                        f"messages[{place}]: the arguments of {name} are not a JSON object: "
                        f"{problem}"
                    )
        elif message.role == "tool":
            waiting = open_calls.get(str(message.tool_call_id))
            if waiting:
                waiting.pop()
            elif message.tool_call_id is not None:
                problems.append(
                    f"messages[{place}] answers {message.tool_call_id}, which was not called"
                )
    if any(open_calls.values()):
        unanswered = [each for calls in open_calls.values() for each in calls]
        names = ", ".join(f"{name} (messages[{place}])" for name, place in unanswered[:5])
        problems.append(f"{len(unanswered)} of its tool calls have no result: {names}")
    return problems


def _arguments_problem(arguments: Any) -> str | None:
    """Why the arguments of a call are not a JSON object."""
    if not isinstance(arguments, str):
        return None
    try:
        if arguments.startswith("{") and _raw_decode(arguments)[1] == len(arguments):
            return None  # in half the time of json.loads
        value = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        return str(error)
    return None if isinstance(value, dict) else f"it is {type(value).__name__}"
