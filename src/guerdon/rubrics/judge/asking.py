"""Asking one judge: a model, or a service behind a name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from guerdon.errors import InvalidArgumentError, JudgeError
from guerdon.rubrics.judge.judge_prompt import judge_messages
from guerdon.rubrics.judge.judge_settings import JudgeSettings
from guerdon.rubrics.judge.template import Filled
from guerdon.rubrics.judge.verdict import (
    JudgeVerdict,
    parse_verdict,
    read_verdict,
    verdict_schema,
)
from guerdon.services.models.chat import ChatModel
from guerdon.services.service import told_as

__all__ = [
    "ModelJudge",
    "OneJudge",
    "Question",
    "ServiceJudge",
    "ToolCaller",
    "judges_of",
    "question_of",
]


@dataclass(frozen=True, slots=True)
class Question:
    """What a judge is asked.

    Attributes:
        messages: The conversation, of a judge with a prompt.
        filled: The prompt by itself, with its mark.
        arguments: What a service without a prompt is given instead.
        schema: The JSON Schema of the answer.
        criteria: What is scored one by one.
        settings: The judge's.
    """

    messages: Sequence[Mapping[str, Any]]
    filled: Filled | None
    arguments: Mapping[str, str]
    schema: Mapping[str, Any]
    criteria: tuple[str, ...]
    settings: JudgeSettings

    def parse(self, text: str, service: str) -> JudgeVerdict:
        """Read the verdict out of a text."""
        quotes = self.filled.parts if self.filled is not None else self.arguments
        return parse_verdict(
            text, score_range=self.settings.score_range, criteria=self.criteria, service=service,
            mark=None if self.filled is None else self.filled.mark, quotes=tuple(quotes.values()),
        )  # fmt: skip


def question_of(
    filled: Filled,
    *,
    settings: JudgeSettings | None = None,
    criteria: Mapping[str, str] | None = None,
) -> Question:
    """The question that a filled prompt makes.

    Example:
        >>> from guerdon.rubrics import Template
        >>> filled = Template("Is this polite? {action}").fill_fenced(action="Please come.")
        >>> question_of(filled).schema["required"]
        ['mark', 'reasoning', 'score']

    Args:
        filled: The prompt.
        settings: By default, a score from 0 to 1.
        criteria: What is scored one by one, with what each means.
    """
    settings = settings or JudgeSettings()
    messages = judge_messages(
        filled, system=settings.system, criteria=criteria, score_range=settings.score_range
    )
    names = tuple(criteria or ())
    schema = verdict_schema(names, score_range=settings.score_range, marked=True)
    return Question(messages, filled, {}, schema, names, settings)


class OneJudge(Protocol):
    """One of the judges that are asked."""

    @property
    def name(self) -> str:
        """What messages call it."""

    def identity(self, question: Question) -> Any:
        """What its verdict depends on beside the question, as JSON holds it."""

    async def ask(self, question: Question) -> JudgeVerdict:
        """Ask it, on any event loop."""

    async def close(self) -> None:
        """Close the connections that are its own."""


class ModelJudge:
    """A judge that is a model.

    Args:
        chat: The model.
        is_own: Whether nobody else has it, so that it is closed with the judge.
    """

    def __init__(self, chat: ChatModel, *, is_own: bool = False) -> None:
        self.chat = chat
        self._is_own = is_own

    @property
    def name(self) -> str:
        """The model and its address."""
        return self.chat.name

    def identity(self, question: Question) -> Any:
        """Model, address and settings."""
        chat = self.chat
        return [chat.endpoint, chat.model, chat.extra_body,
                *self._settings(question)]  # fmt: skip

    async def ask(self, question: Question) -> JudgeVerdict:
        """Ask the model."""
        temperature, max_tokens = self._settings(question)
        reply = await self.chat.complete(
            question.messages, schema=question.schema, temperature=temperature,
            max_tokens=max_tokens,
        )  # fmt: skip
        try:
            return question.parse(reply.text, self.name)
        except JudgeError as error:
            if reply.finish_reason == "length":
                said = f"{error}; it was cut off: give the judge a higher max_tokens"
                raise JudgeError(said, service=error.service, answer=error.answer) from error
            raise

    async def close(self) -> None:
        """Close the model's connections, if it is nobody else's."""
        if self._is_own:
            await self.chat.close_async()

    def _settings(self, question: Question) -> tuple[float | None, int | None]:
        chat, settings = self.chat, question.settings
        temperature = settings.temperature
        several = settings.samples > 1
        if temperature is None:  # at 0, several samples would all be the same
            temperature = 1.0 if several and chat.temperature == 0 else chat.temperature
        return temperature, settings.max_tokens or chat.max_tokens


class ToolCaller(Protocol):
    """What calls services by their names, such as an `MCPClient`."""

    async def call_tool_async(self, service: str, /, **arguments: Any) -> Any:
        """Call one."""

    def fingerprint(self, service: str) -> str:
        """A digest of what a service's answers depend on."""


@runtime_checkable
class ModelHolder(Protocol):
    """A caller of services that gives the models among them, such as an `MCPClient`."""

    def chat_model(self, service: str) -> ChatModel | None:
        """The model behind a name, where one is and has no prompt of its own."""


class ServiceJudge:
    """A judge that is a service behind a name, a model or a tool.

    A model without a prompt of its own is asked as one at an address is. Anything else is called
    with ``prompt``, the whole of it, or, where there is none, with the arguments: a dictionary
    with a score is the verdict, a text is read as one.
    """

    def __init__(self, client: ToolCaller, service: str) -> None:
        self._client, self._service = client, service

    @property
    def name(self) -> str:
        """The service's name."""
        return self._service

    def identity(self, question: Question) -> Any:
        """What the client knows of it, and how a model is asked."""
        settings = question.settings
        asked = [settings.temperature, settings.max_tokens, settings.samples > 1]
        return [self._service, self._client.fingerprint(self._service), *asked]

    async def ask(self, question: Question) -> JudgeVerdict:
        """Ask the model, or call the service."""
        arguments: Mapping[str, Any] = question.arguments
        if question.messages:
            chat = self._chat()
            if chat is not None:
                with told_as(self._service):
                    return await ModelJudge(chat).ask(question)
            prompt = "\n\n".join(str(message["content"]) for message in question.messages)
            arguments = {"prompt": prompt}
        said = await self._client.call_tool_async(self._service, **arguments)
        if isinstance(said, Mapping):
            return self._read(question, said)
        return question.parse(str(said), self.name)

    async def close(self) -> None:
        """Nothing is to be closed: the client is somebody else's."""

    def _chat(self) -> ChatModel | None:
        client = self._client
        return client.chat_model(self._service) if isinstance(client, ModelHolder) else None

    def _read(self, question: Question, said: Mapping[str, Any]) -> JudgeVerdict:
        if said.keys() == {"result"}:  # what the SDK makes of a tool that gives something plain
            result = said["result"]
            if not isinstance(result, Mapping):
                return question.parse(
                    result if isinstance(result, str) else json.dumps(result), self.name
                )
            said = result
        if question.filled is not None:  # it may be what a model wrote, which may quote
            return question.parse(json.dumps(said, ensure_ascii=False), self.name)
        return read_verdict(
            said,
            score_range=question.settings.score_range,
            criteria=question.criteria,
            service=self.name,
        )


def judges_of(
    endpoint: str | ChatModel,
    others: Sequence[str | ChatModel],
    *,
    mcp_client: ToolCaller | None,
    connection: Mapping[str, Any],
) -> tuple[OneJudge, ...]:
    """The judges that the arguments of an `LLMJudge` mean.

    Args:
        endpoint: The first: a model, an address, or, with `mcp_client`, the name of a service.
        others: Further ones: models, or further names of models or services.
        mcp_client: What calls services. One that isn't needed does no harm: a pipeline hands it
            to every rubric that takes it.
        connection: How an address is asked; None for what isn't said.

    Raises:
        InvalidArgumentError: They can't be meant.
    """
    said = {name: value for name, value in connection.items() if value is not None}
    if isinstance(others, str) or not isinstance(others, Sequence):
        raise InvalidArgumentError(f"judges is {others!r:.80}; it takes a list")
    is_model = isinstance(endpoint, ChatModel)
    is_address = isinstance(endpoint, str) and "://" in endpoint
    is_service = mcp_client is not None and not is_model and not is_address
    if said and (is_model or is_service):
        whose = "the ChatModel's" if is_model else "the service's"
        hint = "" if is_model else f"; {endpoint!r:.60} is the name of one: an address holds ://"
        raise InvalidArgumentError(f"{', '.join(said)} can't be given here: they are {whose}{hint}")
    if mcp_client is not None and is_service:
        return tuple(ServiceJudge(mcp_client, _name(each)) for each in (endpoint, *others))
    if isinstance(endpoint, ChatModel):
        first = ModelJudge(endpoint)
    elif "model" in said:
        first = ModelJudge(ChatModel(endpoint, **said), is_own=True)
    elif is_address or not isinstance(endpoint, str):
        raise InvalidArgumentError("model is missing; an address takes the name of a model")
    else:
        raise InvalidArgumentError(
            f"endpoint is {endpoint!r:.60}, which is no address (it holds no ://), and there are "
            "no services that it could be one of"
        )
    rest = [
        ModelJudge(each) if isinstance(each, ChatModel)
        else ModelJudge(first.chat.with_model(each), is_own=True)
        for each in others
    ]  # fmt: skip
    return (first, *rest)


def _name(service: Any) -> str:
    if not isinstance(service, str) or not service:
        raise InvalidArgumentError(
            f"with mcp_client, a judge is the name of a service, not {service!r:.80}"
        )
    return service
