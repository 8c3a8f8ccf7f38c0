"""`OpenAIPolicy`: a model behind an endpoint with OpenAI's protocol."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from typing import Any, Self

from pydantic import ValidationError

from guerdon._http import ACCEPTED, hide_query, read_answer
from guerdon._loading import import_extra
from guerdon._validation import check_integer, check_seconds
from guerdon.errors import InvalidArgumentError, PolicyError
from guerdon.rollouts.json_forms import as_json
from guerdon.rollouts.playing.observations import content_of, first_messages
from guerdon.rollouts.playing.policies import PolicyOutput, action_of, calls_of
from guerdon.services.chat_model import NO_KEY
from guerdon.types.content import joined_text
from guerdon.types.message import INSTRUCTION_ROLES, Message

__all__ = ["OpenAIPolicy"]

# Seconds that the client may wait before a retry.
RETRY_S = 8.0
# The fields of an assistant's message that the next request may contain.
KEPT = ("role", "content", "tool_calls", "reasoning_content")
# Fields of a tool's message that an endpoint may refuse.
OURS = ("is_error", "error_type")


class OpenAIPolicy:
    """Asks a model: OpenAI's own, or any behind a compatible endpoint (vLLM, SGLang, Ollama).

    It needs the extra ``judge``: ``pip install 'guerdon[judge]'``. Its only state is the
    connection, and any number of episodes may share it.

    The action is a `ToolAction` as JSON: the message's tool call, ``{"type": "call_tool",
    "tool_name", "arguments"}``; of several calls ``{"type": "call_tools", "calls": [...]}``;
    without calls ``{"type": "message", "content"}``. If the arguments are not a JSON object,
    ``arguments`` is empty and ``arguments_error`` contains the reason; the message has the model's
    text, and later requests have ``{"invalid_arguments": text}`` in its place, since vLLM and
    others refuse a conversation whose arguments are not JSON.

    Example:
        >>> from guerdon import OpenAIPolicy
        >>> async def main():
        ...     async with OpenAIPolicy("qwen3-8b", base_url="http://localhost:8000/v1") as policy:
        ...         return await policy.get_action({"text": "6 × 7?"})

    Args:
        model: The model's name.
        base_url: The endpoint; by default OpenAI's.
        api_key: By default that of the environment variable ``OPENAI_API_KEY``; a self-hosted
            endpoint needs none.
        client: An ``openai.AsyncOpenAI`` to use instead; it isn't closed here, and keeps its own
            key, address and retries.
        tool_choice: ``"auto"``, ``"required"``, ``"none"`` or a tool; only used if there are tools.
        system: Instructions, added to a conversation that doesn't begin with any.
        timeout: Seconds that one attempt may take; all attempts together may take as long for
            each, and a few seconds for the pauses between them.
        max_retries: The number of retries, at least 0.
        to_action: Returns the action of the assistant's `Message`.
        **request: Further parameters of the request, such as ``temperature``, ``max_tokens``,
            ``top_p``, ``seed``. With ``logprobs=True`` the output has a list of ``{"token",
            "logprob"}``, with ``top_logprobs`` if those were requested.

    Raises:
        InvalidArgumentError: An argument is invalid, or there is no key.
        MissingExtraError: The package ``openai`` is not installed.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        client: Any = None,
        tool_choice: Any = None,
        system: str | None = None,
        timeout: float = 60.0,
        max_retries: int = 2,
        to_action: Callable[[Message], Any] | None = None,
        **request: Any,
    ) -> None:
        if client is not None and (base_url is not None or api_key is not None):
            raise InvalidArgumentError("pass either `client`, or `base_url` and `api_key`")
        check_integer("max_retries", max_retries, low=0)
        reserved = sorted(request.keys() & {"messages", "tools", "stream", "n"})
        if reserved:
            raise InvalidArgumentError(f"OpenAIPolicy sets {reserved} itself; remove them")
        self.model = model
        self._system = system
        self._tool_choice = tool_choice
        self._to_action = to_action or action_of
        self._owns_client = client is None
        self._request = {name: value for name, value in request.items() if value is not None}
        self._request["timeout"] = check_seconds("timeout", timeout)
        self._limit = (timeout + RETRY_S) * (max_retries + 1)
        self._client = client if client is not None else _connect(base_url, api_key, max_retries)

    async def get_action(
        self,
        observation: Any,
        available_tools_specs: list[Any] | None = None,
        *,
        messages: Sequence[Message] | None = None,
    ) -> PolicyOutput:
        """Ask the model.

        Args:
            observation: The environment's observation; it is sent if there are no messages.
            available_tools_specs: The available tools, in OpenAI's format.
            messages: The conversation.

        Raises:
            PolicyError: The endpoint failed, was too slow, or returned no answer; or the model
                refused. Its cause is the client's exception, if there is one.
        """
        request = dict(self._request)
        if available_tools_specs:
            request["tools"] = available_tools_specs
            if self._tool_choice is not None:
                request["tool_choice"] = self._tool_choice
        conversation = self._conversation(messages or first_messages(content_of(observation)))
        try:
            async with asyncio.timeout(self._limit):  # bounds a slow stream, too
                completion = await self._client.chat.completions.create(
                    model=self.model, messages=conversation, **request
                )
        except Exception as error:
            raise PolicyError(f"{self.model} returned no answer: {_describe(error)}") from error
        try:
            choice = self._choice(completion)
            message = _message(choice.message, self.model)
            action = self._to_action(message)
            tokens = getattr(getattr(choice, "logprobs", None), "content", None)
            logprobs = None if tokens is None else [_token(token) for token in tokens]
        except (AttributeError, TypeError, ValueError, LookupError) as error:
            raise PolicyError(
                f"the answer of {self.model} is invalid: {_describe(error)}"
            ) from error
        text = joined_text(message.content)
        return PolicyOutput(action, text, logprobs, message=message, info=_info(completion))

    async def aclose(self) -> None:
        """Close the connections, unless the client was passed in."""
        if self._owns_client:
            await self._client.close()

    def _conversation(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        sent = [_sent(message) for message in messages]
        if self._system is not None and messages[0].role not in INSTRUCTION_ROLES:
            sent.insert(0, {"role": "system", "content": self._system})
        return sent

    def _choice(self, completion: Any) -> Any:
        """The answer of a completion."""
        choices = getattr(completion, "choices", None)
        message = getattr(choices[0], "message", None) if choices else None
        if not choices or message is None:
            raise PolicyError(f"the answer of {self.model} has no choices: {completion!r:.200}")
        has_content = message.content or message.tool_calls
        refusal = getattr(message, "refusal", None)
        if refusal and not has_content:
            raise PolicyError(f"{self.model} refused: {refusal}")
        if getattr(choices[0], "finish_reason", None) == "content_filter" and not has_content:
            raise PolicyError(f"{self.model} refused: its answer was filtered")
        return choices[0]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


def _connect(base_url: str | None, api_key: str | None, max_retries: int) -> Any:
    openai = import_extra("openai", "judge", "OpenAIPolicy")
    if api_key is None and base_url is not None and not os.environ.get("OPENAI_API_KEY"):
        api_key = NO_KEY

    class HttpClient(openai.DefaultAsyncHttpxClient):  # type: ignore[misc, name-defined]
        """Doesn't follow redirects, and reads no more than `MAX_ANSWER` bytes of an answer.

        A redirect may lead to another host, which would receive the prompt and return the answer.
        """

        async def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
            hide_query(request)
            return await read_answer(await super().send(request, stream=True, **options))

    http = HttpClient(headers=ACCEPTED, follow_redirects=False)
    try:
        return openai.AsyncOpenAI(
            base_url=base_url, api_key=api_key, max_retries=max_retries, http_client=http
        )
    except openai.OpenAIError as error:
        raise InvalidArgumentError(f"can't connect to the model's endpoint: {error}") from error


def _message(answer: Any, model: str) -> Message:
    """The assistant's message, as the conversation keeps it."""
    dump = answer.model_dump(exclude_none=True, warnings=False)
    fields = {name: dump[name] for name in KEPT if name in dump}
    for call in fields.get("tool_calls") or ():
        if isinstance(call.get("function"), dict):  # without them, the next request is refused
            call["function"].setdefault("arguments", "{}")
    if not fields.get("tool_calls"):
        fields.pop("tool_calls", None)
        fields.setdefault("content", "")
    try:
        return Message.model_validate({**fields, "role": "assistant"})
    except ValidationError as error:
        raise PolicyError(f"the message of {model} is invalid: {error}") from error


def _sent(message: Message) -> dict[str, Any]:
    """A message of the conversation, as every endpoint accepts it."""
    sent = message.to_openai()
    for name in OURS:
        sent.pop(name, None)
    actions = calls_of(action_of(message))
    for call, action in zip(sent.get("tool_calls") or (), actions, strict=False):
        if "arguments_error" in action:
            text = json.dumps({"invalid_arguments": call["function"]["arguments"]})
            call["function"]["arguments"] = text
        elif call.get("function", {}).get("arguments") == "":
            call["function"]["arguments"] = "{}"
    return sent


def _info(completion: Any) -> dict[str, Any]:
    """Why the model stopped, such as an answer that was cut off, and its usage."""
    usage = getattr(completion, "usage", None)
    info = {
        "finish_reason": getattr(completion.choices[0], "finish_reason", None),
        "usage": None if usage is None else as_json(usage),
        "model": getattr(completion, "model", None),
    }
    return {name: value for name, value in info.items() if value is not None}


def _token(token: Any) -> dict[str, Any]:
    form: dict[str, Any] = {"token": token.token, "logprob": as_json(token.logprob)}
    if getattr(token, "top_logprobs", None):
        form["top_logprobs"] = [_token(other) for other in token.top_logprobs]
    return form


def _describe(error: Exception) -> str:
    name = type(error).__name__
    # Its own message is "Connection error."
    cause = error.__cause__ if name == "APIConnectionError" else None
    return f"{name}: {cause or error}"
