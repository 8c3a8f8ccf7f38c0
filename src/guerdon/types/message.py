"""`Message`: one message of a conversation, in OpenAI's chat format."""

from __future__ import annotations

import reprlib
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

__all__ = ["Message", "read_messages"]

# The roles that only say how to behave.
INSTRUCTION_ROLES = ("system", "developer")

# Where an action or an observation may hold what it says, the likeliest first.
TEXT_FIELDS = ("content", "message", "text", "prompt")


class Message(BaseModel):
    """One message of a conversation.

    It never changes: what a reward function is given is what was recorded.

    It takes OpenAI's chat format and gives it back without loss: fields that it doesn't know
    are kept. Besides attributes it offers a dict's look, ``message["content"]``.

    Example:
        >>> message = Message.model_validate({"role": "user", "content": "6 × 7?", "cache": True})
        >>> message.text, message["role"], message.get("name")
        ('6 × 7?', 'user', None)
        >>> message.to_openai()
        {'role': 'user', 'content': '6 × 7?', 'cache': True}

    Attributes:
        role: Who speaks.
        content: The text, or a list of parts, or None beside tool calls.
        name: The speaker's name, where several have the role.
        tool_call_id: The call that a tool's message answers.
        tool_calls: The calls that an assistant makes.
        reasoning_content: What the model thought before it answered, where it is told.
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
        """The content as text: that of all text parts, ``""`` where there is none."""
        content = self.content
        if isinstance(content, str):
            return content
        return "".join(str(part.get("text") or "") for part in content or ())

    def to_openai(self) -> dict[str, Any]:
        """The message as it came in, as a dict that JSON can hold."""
        return self.model_dump()

    @model_serializer(mode="wrap")
    def _as_it_came(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        given = self.model_fields_set
        return {name: value for name, value in dump(self).items() if name in given}

    def get(self, key: str, default: Any = None) -> Any:
        """A field by name, or `default`, as of a dict."""
        return self[key] if key in self.model_fields_set else default

    def __getitem__(self, key: str) -> Any:
        if key not in self.model_fields_set:
            raise KeyError(key)
        extra = self.model_extra or {}  # first: a field may be called as a method is
        return extra[key] if key in extra else getattr(self, key)

    def __contains__(self, key: object) -> bool:
        return key in self.model_fields_set


_adapter = TypeAdapter(list[Message])
_plain = {Message}


def read_messages(given: Any, where: str = "messages") -> list[Message]:
    """A list of messages of its own, made of `Message` or of dicts in OpenAI's chat format.

    Example:
        >>> from guerdon.types import read_messages
        >>> read_messages([{"role": "user", "content": "6 × 7?"}])[0].text
        '6 × 7?'

    Args:
        given: The conversation. What is a `Message` already is not copied.
        where: What it is called, for the error.

    Raises:
        InvalidArgumentError: It is no list, or a message isn't one.
    """
    if not isinstance(given, (list, tuple)):
        raise InvalidArgumentError(
            f"{where} is {reprlib.repr(given)}; it takes a list of messages {{role, content}}"
        )
    if _plain.issuperset(map(type, given)):
        return list(given)
    try:
        return _adapter.validate_python(given)
    except ValidationError as invalid:
        problem = invalid.errors(include_url=False)[0]
        place, *fields = problem["loc"]
        at = ".".join([f"{where}[{place}]", *map(str, fields)])
        raise InvalidArgumentError(
            f"{at}: {problem['msg']}, not {reprlib.repr(problem['input'])}"
        ) from None
