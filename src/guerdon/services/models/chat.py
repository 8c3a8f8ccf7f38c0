"""`ChatModel`: a language model behind any endpoint that speaks OpenAI's protocol."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from guerdon._background import run
from guerdon.errors import InvalidArgumentError, MissingExtraError, ServiceError
from guerdon.rubrics.checks.inputs import number_within
from guerdon.rubrics.judge.template import as_text
from guerdon.services.bridging import on_background
from guerdon.services.models.endpoint import Endpoint, RefusedError, address, passing
from guerdon.services.models.retrying import Backoff, retrying
from guerdon.services.models.usage import Prices, Usage

__all__ = ["ChatModel", "Reply"]

# What the settings of a request say themselves.
OWN_KEYS = frozenset(("messages", "model", "n", "stream", "temperature", "max_tokens"))
MAX_CONCURRENCY = 10_000
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answered.

    Example:
        >>> from guerdon.services import Reply
        >>> Reply("Fair.", finish_reason="stop", completion_tokens=2).text
        'Fair.'

    Attributes:
        text: The text.
        finish_reason: Why it ended: ``"stop"``, ``"length"`` where it was cut off, ….
        prompt_tokens: As the endpoint counts them; None where it doesn't say.
        completion_tokens: As the endpoint counts them; None where it doesn't say.
        is_structured: Whether the endpoint was asked to hold the model to a schema, and took it.
    """

    text: str
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    is_structured: bool = False


class ChatModel:
    """A language model: OpenAI's own, or any behind a compatible endpoint (vLLM, SGLang, Ollama).

    It needs the extra ``judge``: ``pip install 'guerdon[judge]'``. Its connections are opened when
    they are first needed and shared by whoever asks, from sync and async code; copies of it are
    the same one. What may pass is tried again: 429, 5xx, a timeout, a lost connection, an answer
    that is no JSON.

    Example:
        >>> from guerdon.services import ChatModel
        >>> async def main():
        ...     async with ChatModel("http://localhost:8000", "qwen3-8b") as chat:
        ...         return (await chat.complete([{"role": "user", "content": "6 × 7?"}])).text

    Args:
        endpoint: The server's address; where it names no path, ``/v1`` is meant.
        model: The model's name.
        api_key: The key; a server of one's own needs none. It travels in a pickle.
        api_key_env: The environment variable that holds it instead, read when it is needed.
        temperature: Of sampling, in [0, 2]; None leaves it to the endpoint.
        max_tokens: The longest answer, at least 1; None leaves it to the endpoint.
        timeout_s: Seconds that one attempt may take.
        retries: How often to try again, from 0 to 100, or a `Backoff`.
        concurrency: How many requests may be under way at once, from 1 to 10,000.
        extra_body: What else the request says, such as ``{"top_k": 20}``.
        structured: Whether to ask for structured output where a schema is given; False for an
            endpoint that answers such a request with anything but 400 or 422.
        prices: What tokens cost.

    Attributes:
        usage: What was asked so far, see `Usage`.

    Raises:
        InvalidArgumentError: An argument can't be meant.
        MissingExtraError: The package ``openai`` isn't there.
    """

    def __init__(
        self,
        endpoint: str,
        model: str,
        *,
        api_key: str | None = None,
        api_key_env: str | None = None,
        temperature: float | None = 0.0,
        max_tokens: int | None = None,
        timeout_s: float = 60.0,
        retries: int | Backoff = 3,
        concurrency: int = 64,
        extra_body: Mapping[str, Any] | None = None,
        structured: bool = True,
        prices: Prices | None = None,
    ) -> None:
        _need_openai()
        if api_key is not None and api_key_env is not None:
            raise InvalidArgumentError("give api_key or api_key_env, not both")
        if not isinstance(model, str) or not model:
            raise InvalidArgumentError(f"model is {model!r:.80}; it takes the name of a model")
        self.endpoint = address(endpoint)
        self.model = model
        self.temperature = _temperature(temperature)
        self.max_tokens = _count("max_tokens", max_tokens, None)
        self.timeout_s = number_within(timeout_s, "timeout_s", low=0.001, high=DAY_S)
        self.backoff = retries if isinstance(retries, Backoff) else Backoff(retries)
        self.concurrency = _count("concurrency", concurrency, MAX_CONCURRENCY) or 1
        self.extra_body = dict(extra_body or {})
        if self.extra_body.keys() & OWN_KEYS:
            raise InvalidArgumentError(
                f"extra_body says {sorted(self.extra_body.keys() & OWN_KEYS)}, which isn't its to "
                "say: they are arguments, or can't be chosen"
            )
        self.usage = Usage(prices=prices)
        self._prices, self._api_key, self._api_key_env = prices, api_key, api_key_env
        self._structured = self._takes_schema = bool(structured)
        self._connection = Endpoint(
            self.endpoint, f"{model} at {self.endpoint}", api_key=api_key, api_key_env=api_key_env,
            timeout_s=self.timeout_s, concurrency=self.concurrency,
        )  # fmt: skip

    @property
    def name(self) -> str:
        """What messages call it: the model and its address."""
        return f"{self.model} at {self.endpoint}"

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        schema: Mapping[str, Any] | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        seed: int | None = None,
    ) -> Reply:
        """Ask the model, from any event loop.

        Args:
            messages: The conversation, in OpenAI's format.
            schema: A JSON Schema that the endpoint should hold the answer to. One that takes none
                (400 or 422) is asked without, now and later.
            temperature: Instead of the model's own.
            max_tokens: Instead of the model's own.
            seed: Of sampling, where the endpoint takes one.

        Raises:
            ServiceUnavailableError: The endpoint isn't there, or has no place for one more.
            ServiceTimeoutError: It took too long.
            ServiceError: It failed in another way, or gave no answer that can be read.
        """
        body: dict[str, Any] = {"model": self.model, "messages": list(messages)}
        settings = {
            "temperature": self.temperature if temperature is None else temperature,
            "max_tokens": self.max_tokens if max_tokens is None else max_tokens,
            "seed": seed,
        }
        body |= {name: value for name, value in settings.items() if value is not None}
        return await on_background(self._complete(body | self.extra_body, schema))

    def with_model(self, model: str) -> ChatModel:
        """Another model at the same endpoint, with the same settings and its own connections."""
        return type(self)(self.endpoint, model, **self._arguments())

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        run(self._connection.close())

    async def close_async(self) -> None:
        """Like `close`, in async code."""
        await on_background(self._connection.close())

    async def _complete(self, body: dict[str, Any], schema: Mapping[str, Any] | None) -> Reply:
        """Ask, with the schema as long as the endpoint takes it."""
        try:
            if schema is None or not self._takes_schema:
                return await self._ask(body)
            try:
                return await self._ask({**body, "response_format": _format(schema)})
            except RefusedError:
                reply = await self._ask(body)  # refused for another reason, it is so again
                self._takes_schema = False
                return reply
        except ServiceError:
            self.usage.failures += 1
            raise

    async def _ask(self, body: Mapping[str, Any]) -> Reply:
        async def attempt() -> Reply:
            return self._read(await self._connection.post(body), "response_format" in body)

        def count(error: Exception) -> None:
            self.usage.retries += 1

        return await retrying(attempt, self.backoff, passing=passing, on_retry=count)

    def _read(self, said: Mapping[str, Any], is_structured: bool) -> Reply:
        try:
            choice = said["choices"][0]
            message, finish = choice["message"], choice.get("finish_reason")
            # JSON may name half a surrogate pair, which nobody could pass on.
            text = as_text(_text(message.get("content")))
            refusal = as_text(message.get("refusal") or "")
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ServiceError(
                f"{self.name} gave an answer with no choices: {str(said)[:200]}", service=self.name
            ) from error
        tokens = _tokens(said.get("usage"))
        self.usage.count(*tokens)
        if refusal and not text:
            raise ServiceError(f"{self.name} refused: {refusal:.500}", service=self.name)
        if finish == "content_filter":
            raise ServiceError(f"{self.name}: the answer was filtered", service=self.name)
        return Reply(text, finish, *tokens, is_structured)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def _arguments(self) -> dict[str, Any]:
        return {
            "api_key": self._api_key, "api_key_env": self._api_key_env,
            "temperature": self.temperature, "max_tokens": self.max_tokens,
            "timeout_s": self.timeout_s, "retries": self.backoff, "concurrency": self.concurrency,
            "extra_body": self.extra_body, "structured": self._structured, "prices": self._prices,
        }  # fmt: skip

    def __reduce__(self) -> tuple[Any, ...]:
        return _make, (type(self), self.endpoint, self.model, self._arguments())

    def __repr__(self) -> str:
        return f"ChatModel({self.endpoint!r}, {self.model!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close_async()


def _make(kind: type[ChatModel], endpoint: str, model: str, settings: dict[str, Any]) -> ChatModel:
    return kind(endpoint, model, **settings)


def _need_openai() -> None:
    if importlib.util.find_spec("openai") is None:
        raise MissingExtraError(
            "ChatModel needs the package openai: pip install 'guerdon[judge]'", extra="judge"
        )


def _temperature(temperature: float | None) -> float | None:
    if temperature is None:
        return None
    return number_within(temperature, "temperature", low=0.0, high=2.0)


def _count(name: str, count: int | None, most: int | None) -> int | None:
    if count is None and most is None:
        return None
    if type(count) is not int or count < 1 or (most is not None and count > most):
        wanted = "at least 1" if most is None else f"from 1 to {most}"
        raise InvalidArgumentError(f"{name} is {count!r:.80}; it takes an int {wanted}")
    return count


def _format(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "json_schema",
        "json_schema": {"name": "answer", "strict": True, "schema": dict(schema)},
    }


def _text(content: Any) -> str:
    if isinstance(content, list):  # in parts
        return "".join(part["text"] for part in content if part.get("type") == "text")
    if content is not None and not isinstance(content, str):
        raise TypeError(f"the content is {type(content).__name__}")
    return content or ""


def _tokens(usage: Any) -> tuple[int | None, int | None]:
    if not isinstance(usage, Mapping):
        return None, None
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    return (
        prompt if type(prompt) is int else None,
        completion if type(completion) is int else None,
    )
