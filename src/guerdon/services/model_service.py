"""A service that is a chat model, and the prompt that turns arguments into a question."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic_core import from_json

from guerdon.errors import InvalidArgumentError, ServiceError, ServiceUnavailableError
from guerdon.rubrics.judge.question import ChatClient, Question, ask_model, naming_service
from guerdon.rubrics.judge.template import Template
from guerdon.rubrics.judge.verdict import parse_verdict, verdict_schema
from guerdon.services.chat_model import ChatModel
from guerdon.services.config import OpenAIService, ServiceTool, read_secret

Returns: TypeAlias = Literal["text", "json", "verdict"]

# The arguments that an `LLMJudge` passes, whether the prompt has a field for them or not.
JUDGED = ("action", "observation")
FENCED = re.compile(r"\A\s*```(?:json)?\s*\n(.*?)\n\s*```\s*\Z", re.DOTALL)


class Prompting:
    """Turns arguments into messages, and the reply into a result.

    Args:
        template: The prompt; without one, the arguments are ``prompt`` or ``messages``.
        returns: What is returned: the ``text``, the ``json`` in it, or a ``verdict``. The values
            in the prompt of a verdict are fenced, so that they can't pass for one.
    """

    def __init__(self, template: Template | None, returns: Returns) -> None:
        self.template, self.returns = template, returns

    def input_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments."""
        if self.template is not None:
            # Without fields, the arguments in `JUDGED` are accepted but not listed.
            schema = _part_schema("", [field.split(".") for field in self.template.fields])
            is_closed = set(JUDGED) <= schema["properties"].keys()
            return schema | ({"additionalProperties": False} if is_closed else {})
        messages = {"type": "array", "items": {"type": "object"}, "minItems": 1}
        properties = {"prompt": {"type": "string"}, "messages": messages}
        return {"type": "object", "properties": properties, "additionalProperties": False}

    async def ask(self, chat: ChatClient, arguments: Mapping[str, Any]) -> dict[str, Any] | str:
        """Ask a model.

        Raises:
            InvalidArgumentError: An argument is unknown.
            MissingInputError: A field of the prompt has no value.
            ServiceError: The model failed, or its reply is invalid.
        """
        if self.template is None:
            messages = _conversation(arguments)
        else:
            _check_names(arguments, self.template)
            if self.returns == "verdict":
                question = Question(self.template.fill_fenced(arguments))
                return (await ask_model(chat, question)).to_dict()
            messages = [{"role": "user", "content": self.template.fill(arguments)}]
        schema = verdict_schema() if self.returns == "verdict" else None
        reply = await chat.complete(messages, schema=schema)
        if self.returns == "verdict":
            return parse_verdict(reply.text, service=chat.name).to_dict()
        return _parsed(reply.text, chat.name) if self.returns == "json" else str(reply.text)


def _check_names(arguments: Mapping[str, Any], template: Template) -> None:
    names = dict.fromkeys(field.partition(".")[0] for field in template.fields)
    unknown = sorted(arguments.keys() - names.keys() - set(JUDGED))
    if unknown:
        raise InvalidArgumentError(
            f"the prompt has no field {', '.join(unknown)}; its fields are "
            f"{', '.join(names) or 'none'}"
        )


def _part_schema(path: str, parts: Sequence[Sequence[str]]) -> dict[str, Any]:
    """The schema of the value at a path, of which the prompt uses these parts."""
    described = {"description": f"The value of {{{path}}} in the prompt."} if path else {}
    names = dict.fromkeys(each[0] for each in parts if each)
    if not names:
        return {"type": "string", **described}
    if any(name.isdecimal() for name in names):
        return {"type": "array", **described}
    properties = {
        name: _part_schema(
            f"{path}.{name}".removeprefix("."), [each[1:] for each in parts if each[:1] == [name]]
        )
        for name in names
    }
    return {"type": "object", **described, "properties": properties, "required": list(names)}


def _conversation(arguments: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    prompt, messages = arguments.get("prompt"), arguments.get("messages")
    if len(arguments) == 1 and isinstance(prompt, str) and prompt:
        return [{"role": "user", "content": prompt}]
    if (
        len(arguments) == 1
        and isinstance(messages, (list, tuple))
        and messages
        and all(isinstance(message, Mapping) and "role" in message for message in messages)
    ):
        return messages
    raise InvalidArgumentError(
        "a service without a prompt of its own requires prompt=, a string, or messages=, a list "
        f'of {{"role", "content"}}, got {", ".join(sorted(arguments)) or "no arguments"}'
    )


def _parsed(text: str, service: str) -> dict[str, Any]:
    """The JSON of a reply, with or without a fence."""
    fenced = FENCED.match(text)
    try:
        value = from_json(fenced[1] if fenced else text, allow_inf_nan=False)
    except ValueError as error:
        raise ServiceError(
            f"the reply of {service} is not JSON: {error}: {text[:200]!r}", service=service
        ) from error
    return value if isinstance(value, dict) else {"result": value}


class ModelService:
    """Calls a chat model; connects on first use.

    Args:
        name: The service's name.
        config: The model and its prompt.
    """

    def __init__(self, name: str, config: OpenAIService) -> None:
        self.name = name
        self.config = config
        template = None if config.prompt is None else Template(config.prompt)
        self._prompting = Prompting(template, config.returns)
        self._chat: ChatModel | None = None

    def model(self) -> ChatModel:
        """Return the model, with or without a prompt.

        Raises:
            MissingExtraError: The package ``openai`` is not installed.
        """
        if self._chat is None:
            settings = self.config.model_dump(exclude={"type", "prompt", "returns", "private"})
            self._chat = ChatModel(**settings)
        return self._chat

    async def call(self, tool: str | None, arguments: Mapping[str, Any]) -> dict[str, Any] | str:
        """Ask the model; it has no tools but itself."""
        if tool is not None and tool != self.name:
            raise InvalidArgumentError(
                f"service {self.name!r} is a model and has no tool {tool!r}; call {self.name!r}"
            )
        with naming_service(self.name):
            return await self._prompting.ask(self.model(), arguments)

    def chat_model(self) -> ChatModel | None:
        """Return the model, if it has no prompt of its own."""
        return self.model() if self.config.prompt is None else None

    async def tools(self) -> list[ServiceTool]:
        """Return the model as a tool."""
        return [
            ServiceTool(
                name=self.name,
                service=self.name,
                description=f"Asks {self.config.model}",
                input_schema=self._prompting.input_schema(),
            )
        ]

    async def check(self, timeout_s: float, *, for_tool: bool) -> None:
        """Check that something listens at the address; the model isn't asked."""
        self.model()  # raises if openai is missing
        key = self.config.api_key_env
        if key is not None:
            read_secret(key, f"service {self.name!r}", service=self.name)
        parts = urlsplit(self.config.endpoint)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        try:
            async with asyncio.timeout(timeout_s):
                _, writer = await asyncio.open_connection(parts.hostname, port)
        except OSError as error:  # a timeout is one, too
            reason = str(error) or f"no answer in {timeout_s:g} s"
            raise ServiceUnavailableError(
                f"service {self.name!r} can't be reached at {parts.hostname}:{port}: {reason}",
                service=self.name,
            ) from error
        writer.transport.abort()

    async def close(self) -> None:
        """Close the connections."""
        if self._chat is not None:
            await self._chat.close_async()

    def abandon(self) -> None:
        """Do nothing: the model closes its connections when it is no longer referenced."""

    def __reduce__(self) -> tuple[type[ModelService], tuple[str, OpenAIService]]:
        return type(self), (self.name, self.config)
