"""A service that is a language model."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from guerdon.errors import InvalidArgumentError, ServiceUnavailableError
from guerdon.rubrics.judge.template import Template
from guerdon.services.config import OpenAIService
from guerdon.services.models.prompting import Prompting
from guerdon.services.models.secret import secret_of
from guerdon.services.service import told_as
from guerdon.services.service_tool import ServiceTool

if TYPE_CHECKING:
    from guerdon.services.models.chat import ChatModel

__all__ = ["ModelService", "chat_of"]


def chat_of(config: OpenAIService) -> ChatModel:
    """The model that a description means.

    Example:
        >>> from guerdon.services import OpenAIService
        >>> chat_of(OpenAIService(endpoint="http://localhost:8000", model="m")).name
        'm at http://localhost:8000/v1'

    Raises:
        MissingExtraError: The package ``openai`` isn't there.
    """
    from guerdon.services.models.chat import ChatModel

    return ChatModel(
        config.endpoint,
        config.model,
        api_key_env=config.api_key_env,
        temperature=config.temperature,
        max_tokens=config.max_tokens,
        timeout_s=config.timeout_s,
        retries=config.retries,
        concurrency=config.concurrency,
        extra_body=config.extra_body,
    )


class ModelService:
    """Asks a model; connects when that is needed first.

    Args:
        name: The service's name.
        config: Which model, and what it is asked.
    """

    def __init__(self, name: str, config: OpenAIService) -> None:
        self.name = name
        self.config = config
        self._prompting = Prompting(
            None if config.prompt is None else Template(config.prompt), config.returns
        )
        self._chat: ChatModel | None = None

    def _model(self) -> ChatModel:
        if self._chat is None:
            self._chat = chat_of(self.config)
        return self._chat

    async def call(self, tool: str | None, arguments: Mapping[str, Any]) -> dict[str, Any] | str:
        """Ask the model; it has no tools."""
        if tool is not None and tool != self.name:
            raise InvalidArgumentError(
                f"service {self.name!r} is a model, and has no tool {tool!r}; call {self.name!r}"
            )
        with told_as(self.name):
            return await self._prompting.ask(self._model(), arguments)

    def chat_model(self) -> ChatModel | None:
        """The model, where it has no prompt of its own."""
        return self._model() if self.config.prompt is None else None

    async def tools(self) -> list[ServiceTool]:
        """What it takes, as if it were a tool."""
        return [
            ServiceTool(
                name=self.name,
                service=self.name,
                description=f"Asks {self.config.model}",
                input_schema=self._prompting.input_schema(),
            )
        ]

    async def check(self, timeout_s: float, *, for_tool: bool) -> None:
        """See whether something listens at its address; the model itself isn't asked."""
        self._model()  # whose package must be there
        key = self.config.api_key_env
        if key is not None:
            secret_of(key, f"service {self.name!r}", service=self.name)
        parts = urlsplit(self.config.endpoint)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        try:
            async with asyncio.timeout(timeout_s):
                _, writer = await asyncio.open_connection(parts.hostname, port)
        except OSError as error:  # a timeout is one, too
            said = str(error) or f"no answer within {timeout_s:g} s"
            where = f"{parts.hostname}:{port}"
            raise ServiceUnavailableError(
                f"service {self.name!r} can't be reached at {where}: {said}", service=self.name
            ) from error
        writer.transport.abort()

    async def close(self) -> None:
        """Close the connections."""
        if self._chat is not None:
            await self._chat.close_async()

    def abandon(self) -> None:
        """Nothing is to be done: the model's connections close when nobody holds it."""

    def __reduce__(self) -> tuple[type[ModelService], tuple[str, OpenAIService]]:
        return type(self), (self.name, self.config)
