"""`ChatModel`: a chat model at any endpoint with OpenAI's protocol."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
import os
import weakref
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from pydantic import ValidationError

from guerdon._background import SharedClient, background_loop, close_at_exit, on_background
from guerdon._http import ACCEPTED, hide_query, httpx_options, read_answer, shown_url
from guerdon._problems import problems_of
from guerdon._work_clock import Turn
from guerdon.errors import (
    InvalidArgumentError,
    ServiceError,
    ServiceTimeoutError,
    ServiceUnavailableError,
)
from guerdon.rubrics.judge.template import as_text
from guerdon.services.config import OpenAIService, fits_header, read_secret
from guerdon.services.retries import retry
from guerdon.types.content import joined_text

if TYPE_CHECKING:
    from httpx import AsyncClient

__all__ = ["ChatModel", "Prices", "Reply", "Usage"]

NO_KEY = "none"  # sent to servers without keys
REFUSED = (400, 422)
RETRIED = (408, 409, 429)  # and 5xx
LONGEST_RETRY_AFTER_S = 60.0
UNAVAILABLE = (401, 403, 404, 408, 409, 429, 502, 503, 504)
SHOWN = 500  # characters of a server's message in an error


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply of a chat model.

    Example:
        >>> from guerdon.services import Reply
        >>> Reply("Fair.", finish_reason="stop", completion_tokens=2).text
        'Fair.'

    Attributes:
        text: The text.
        finish_reason: Why it ended: ``"stop"``, ``"length"`` if it was cut off, ….
        prompt_tokens: As the endpoint counts them; None if it doesn't.
        completion_tokens: As the endpoint counts them; None if it doesn't.
        is_structured: Whether the endpoint accepted a schema for the reply.
    """

    text: str
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    is_structured: bool = False


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices of a model.

    Example:
        >>> from guerdon.services import Prices
        >>> Prices(prompt=0.15, completion=0.6).cost(prompt_tokens=1_000_000, completion_tokens=0)
        0.15

    Args:
        prompt: Per million tokens of the prompt, in any currency.
        completion: Per million tokens of the reply.
    """

    prompt: float
    completion: float

    def cost(self, *, prompt_tokens: int, completion_tokens: int) -> float:
        """Return the cost of a call."""
        return (self.prompt * prompt_tokens + self.completion * completion_tokens) / 1_000_000


@dataclass(slots=True)
class Usage:
    """Counters of what was asked, and its cost.

    Example:
        >>> from guerdon.services import Usage
        >>> Usage().calls
        0

    Attributes:
        calls: Replies.
        prompt_tokens: Tokens of the prompts, as the endpoint counts them.
        completion_tokens: Tokens of the replies.
        cost: Their cost in the currency of the prices; None without prices.
        retries: Attempts beyond the first.
        failures: Calls without a reply after all attempts.
        without_usage: Replies without token counts, which the counters above lack.
    """

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
    retries: int = 0
    failures: int = 0
    without_usage: int = 0
    prices: Prices | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.prices is not None and self.cost is None:
            self.cost = 0.0

    def count(self, prompt_tokens: int | None, completion_tokens: int | None) -> None:
        """Add one reply."""
        self.calls += 1
        if prompt_tokens is None or completion_tokens is None:
            self.without_usage += 1
            return
        self.prompt_tokens += prompt_tokens
        self.completion_tokens += completion_tokens
        if self.prices is not None:
            self.cost = (self.cost or 0.0) + self.prices.cost(
                prompt_tokens=prompt_tokens, completion_tokens=completion_tokens
            )


class ChatModel(SharedClient):
    """A chat model: OpenAI's own, or any at a compatible endpoint (vLLM, SGLang, Ollama).

    Connections are opened on first use and shared by all callers, sync and async; copies are the
    model itself. 408, 409, 429, 5xx, a timeout, a lost connection and an answer that is not JSON or
    larger than 16 MiB are retried, after pauses that double from half a second, or after
    ``Retry-After``, a minute at most.

    Example:
        >>> from guerdon.services import ChatModel
        >>> async def main():
        ...     async with ChatModel("http://localhost:8000", "qwen3-8b") as chat:
        ...         return (await chat.complete([{"role": "user", "content": "6 × 7?"}])).text

    Args:
        endpoint: The server's address; without a path, ``/v1`` is added.
        model: The model's name.
        api_key: The key; your own server may need none. A pickle contains it.
        api_key_env: Instead, the environment variable with the key, read on use.
        temperature: The sampling temperature, in [0, 2]; None leaves it to the endpoint.
        max_tokens: The most tokens of a reply, at least 1; None leaves it to the endpoint.
        timeout_s: The timeout of one attempt in seconds.
        retries: How often a request is retried, in [0, 20].
        concurrency: The most requests at once, in [1, 10000]; further ones wait.
        extra_body: Further fields of the request, such as ``{"top_k": 20}``.
        structured: Whether to request structured output if a schema is given; False for an
            endpoint that answers such a request with anything but 400 or 422.
        prices: The prices of tokens.

    Attributes:
        usage: What was asked so far, see `Usage`.

    Raises:
        InvalidArgumentError: An argument is invalid.
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
        retries: int = 3,
        concurrency: int = 64,
        extra_body: Mapping[str, Any] | None = None,
        structured: bool = True,
        prices: Prices | None = None,
    ) -> None:
        if api_key is not None and api_key_env is not None:
            raise InvalidArgumentError("pass either api_key or api_key_env, not both")
        if api_key and not fits_header(api_key):  # the message doesn't repeat it
            raise InvalidArgumentError(
                "`api_key` must be printable ASCII without white space at its ends"
            )
        settings: dict[str, Any] = {
            "endpoint": endpoint, "model": model, "api_key_env": api_key_env,
            "temperature": temperature, "max_tokens": max_tokens, "timeout_s": timeout_s,
            "retries": retries, "concurrency": concurrency, "extra_body": extra_body or {},
        }  # fmt: skip
        try:
            self._settings = OpenAIService(**settings)
        except ValidationError as error:
            problems = problems_of(error, settings)
            raise InvalidArgumentError("; ".join(map(str, problems))) from None
        _ = self._settings.own_concurrency  # raises here, not at each call
        self._arguments: dict[str, Any] = {
            **settings, "extra_body": self._settings.extra_body, "api_key": api_key,
            "structured": structured, "prices": prices,
        }  # fmt: skip
        self.endpoint, self._query = _base_url(self._settings.endpoint)
        self.model = self._settings.model
        self.temperature, self.max_tokens = self._settings.temperature, self._settings.max_tokens
        self.extra_body = self._settings.extra_body
        self.usage = Usage(prices=prices)
        self._accepts_schema = bool(structured)
        self._open: _Connections | None = None

    @property
    def name(self) -> str:
        """The model and its address, for messages."""
        return f"{self.model} at {self.endpoint}"

    def fingerprint(self) -> str:
        """Return a digest of everything that the replies depend on.

        Example:
            >>> from guerdon.services import ChatModel
            >>> first, second = (ChatModel("http://localhost:8000", name) for name in ("m", "n"))
            >>> first.fingerprint() == second.fingerprint()
            False
        """
        what: list[Any] = [self.endpoint, *([self._query] if self._query else [])]
        what += [self.model, self.temperature, self.max_tokens, self.extra_body]
        return hashlib.blake2b(json.dumps(what, default=str).encode(), digest_size=16).hexdigest()

    async def complete(
        self,
        messages: Sequence[Any],
        *,
        schema: Mapping[str, Any] | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        seed: int | None = None,
    ) -> Reply:
        """Ask the model, from any event loop.

        Args:
            messages: The conversation: dicts in OpenAI's format, or `Message` objects.
            schema: A JSON Schema for the reply. If the endpoint rejects it (400 or 422), it is
                asked without, now and later.
            temperature: Overrides the model's own.
            max_tokens: Overrides the model's own.
            seed: The sampling seed, if the endpoint supports one.

        Raises:
            ServiceUnavailableError: The endpoint can't be reached, has no capacity, or refuses the
                key or the model.
            ServiceTimeoutError: It took too long.
            ServiceError: It failed in another way, or the answer can't be read.
        """
        body: dict[str, Any] = {"model": self.model, "messages": list(messages)}
        settings = {
            "temperature": self.temperature if temperature is None else temperature,
            "max_tokens": self.max_tokens if max_tokens is None else max_tokens,
            "seed": seed,
        }
        body |= {name: value for name, value in settings.items() if value is not None}
        return await on_background(self._complete(body | self.extra_body, schema))

    # On the background loop ------------------------------------------------------------------

    async def _close(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            await opened.close()

    async def _complete(self, body: dict[str, Any], schema: Mapping[str, Any] | None) -> Reply:
        """Ask, with the schema while the endpoint accepts it."""
        try:
            if schema is None or not self._accepts_schema:
                return self._reply(await self._post(body))
            try:
                format = {"name": "answer", "strict": True, "schema": dict(schema)}
                with_schema = {"type": "json_schema", "json_schema": format}
                answer = await self._post({**body, "response_format": with_schema})
            except _RefusedError:
                reply = self._reply(await self._post(body))  # raises if the schema isn't the reason
                self._accepts_schema = False
                return reply
            return self._reply(answer, is_structured=True)
        except ServiceError:
            self.usage.failures += 1
            raise

    def _reply(self, answer: Mapping[str, Any], *, is_structured: bool = False) -> Reply:
        try:
            choice = answer["choices"][0]
            message, finish_reason = choice["message"], choice.get("finish_reason")
            # JSON may contain half a surrogate pair, which UTF-8 can't encode.
            text = as_text(_content(message.get("content")))
            refusal = as_text(message.get("refusal") or "")
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ServiceError(
                f"{self.name} answered without choices: {str(answer)[:200]}", service=self.name
            ) from error
        tokens = _tokens(answer.get("usage"))
        self.usage.count(*tokens)
        if refusal and not text:
            raise ServiceError(f"{self.name} refused: {refusal:.500}", service=self.name)
        if finish_reason == "content_filter":
            raise ServiceError(f"{self.name}: the reply was filtered", service=self.name)
        return Reply(text, finish_reason, *tokens, is_structured)

    async def _post(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request, and return the answer, a JSON object."""
        key = self._key()
        try:
            text = json.dumps(body, ensure_ascii=False, allow_nan=False, default=_fields_of)
            content = text.encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidArgumentError(
                f"messages to {self.name} must fit into JSON in UTF-8: {error}"
            ) from error
        async with self._connections().client() as client:

            def attempt(number: int) -> Awaitable[dict[str, Any]]:
                self.usage.retries += number > 1
                return self._attempt(client, content, key)

            return await retry(attempt, self._settings.retries, _pause)

    async def _attempt(self, client: AsyncClient, content: bytes, key: str) -> dict[str, Any]:
        import httpx

        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        request = client.build_request("POST", "chat/completions", content=content, headers=headers)
        hide_query(request)
        try:
            async with asyncio.timeout(self._settings.timeout_s):  # also if it sends byte by byte
                response = await read_answer(await client.send(request, stream=True))
            if not response.is_success:
                # The message of raise_for_status has the address of a redirect, with its query.
                raise httpx.HTTPStatusError("no success", request=request, response=response)
            answer = json.loads(response.text)
            if not isinstance(answer, dict):
                raise ValueError("not an object")
        except (TimeoutError, httpx.TimeoutException) as error:
            what = f"gave no answer in {self._settings.timeout_s:g} s"
            raise ServiceTimeoutError(f"{self.name} {what}", service=self.name) from error
        except (httpx.HTTPError, RuntimeError, ValueError) as error:
            kind, what = _reason(error)
            # Some servers repeat the key.
            what = what if key == NO_KEY else what.replace(key, "…")
            raise kind(f"{self.name} {what}", service=self.name) from error
        return answer

    def _key(self) -> str:
        variable = self._settings.api_key_env
        if variable is None:
            return self._arguments["api_key"] or NO_KEY
        return read_secret(variable, self.name, service=self.name)

    def _connections(self) -> _Connections:
        opened = self._open
        if opened is None or opened.process != os.getpid():
            opened = self._open = _Connections(self.endpoint, self._query, self._settings)
            weakref.finalize(self, opened.close_soon).atexit = False
            close_at_exit(opened)
        return opened

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(type(self), **self._arguments), ()

    def __repr__(self) -> str:
        return f"ChatModel({self.endpoint!r}, {self.model!r})"


class _RefusedError(ServiceError):
    """The endpoint rejects the request."""


def _fields_of(value: Any) -> Any:
    """The fields of a `Message` or another model of pydantic."""
    if not hasattr(value, "model_dump"):
        raise TypeError(f"{type(value).__name__} is not JSON-serializable")
    return value.model_dump(mode="json")


def _reason(error: Exception) -> tuple[type[ServiceError], str]:
    """The class and the text of the error for an exception of a request."""
    import httpx

    if isinstance(error, httpx.HTTPStatusError):
        response, status = error.response, error.response.status_code
        what = f"answered {status}: {response.text[:SHOWN]}"
        if response.has_redirect_location:
            there = shown_url(response.headers["location"])
            what = f"answered {status}: redirects, here to {there!r:.200}, aren't followed"
        if status in REFUSED:
            return _RefusedError, what
        return (ServiceUnavailableError if status in UNAVAILABLE else ServiceError), what
    if isinstance(error, httpx.DecodingError):
        return ServiceError, str(error)
    if isinstance(error, ValueError | RecursionError):
        return ServiceError, f"answered with invalid JSON ({error})"
    return ServiceUnavailableError, f"can't be reached: {str(error) or type(error).__name__}"


def _pause(error: ServiceError) -> float | None:
    """The pause before a request that failed is sent again; None if it isn't."""
    response = getattr(error.__cause__, "response", None)
    if response is None:
        return 0.0
    if response.status_code not in RETRIED and response.status_code < 500:
        return None
    try:
        seconds = float(response.headers["retry-after"])
    except (KeyError, ValueError):
        return 0.0
    return min(seconds, LONGEST_RETRY_AFTER_S) if seconds > 0 else 0.0


def _base_url(endpoint: str) -> tuple[str, dict[str, str]]:
    """The base address of an endpoint: without a path, with ``/v1``; and its query."""
    parts = urlsplit(endpoint)
    path = parts.path.rstrip("/").removesuffix("/chat/completions")
    url = parts._replace(path=path or "/v1", query="", fragment="").geturl()
    return url, dict(parse_qsl(parts.query, keep_blank_values=True))


def _content(content: Any) -> str:
    if content is not None and not isinstance(content, str | list):
        raise TypeError(f"the content is {type(content).__name__}")
    return joined_text(content)


def _tokens(usage: Any) -> tuple[int | None, int | None]:
    counts = usage if isinstance(usage, Mapping) else {}
    prompt, completion = counts.get("prompt_tokens"), counts.get("completion_tokens")
    return (
        prompt if type(prompt) is int else None,
        completion if type(completion) is int else None,
    )


class _Connections:
    """The open connections of a model in one process; they belong to the background loop."""

    def __init__(self, url: str, query: Mapping[str, Any], settings: OpenAIService) -> None:
        self.process = os.getpid()
        self._url, self._query, self._timeout_s = url, query, settings.timeout_s
        self._clients: list[AsyncClient] = []
        self._idle: list[AsyncClient] = []
        self._turns = asyncio.Semaphore(settings.own_concurrency)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[AsyncClient]:
        """Wait for a turn, and occupy a client during a request.

        Each has one connection: httpx looks through all connections of a client at each request.
        """
        with Turn() as turn:
            async with self._turns:
                turn.begin()
                if not self._idle:
                    self._idle.append(self._connect())
                    self._clients += self._idle
                client = self._idle.pop()  # the last that was used, so that few are opened
                try:
                    yield client
                finally:
                    self._idle.append(client)

    def _connect(self) -> AsyncClient:
        import httpx

        # httpx follows no redirects: one to another host would send it the prompt.
        return httpx.AsyncClient(
            base_url=self._url,
            params=self._query,
            headers=ACCEPTED,
            timeout=self._timeout_s,
            **httpx_options(self._url),
        )

    async def close(self) -> None:
        clients, self._clients, self._idle = self._clients, [], []
        for client in clients:
            await client.aclose()

    def close_soon(self) -> None:
        """Close, from any thread and without waiting."""
        if self._clients and self.process == os.getpid() and not background_loop().is_closed():
            asyncio.run_coroutine_threadsafe(self.close(), background_loop())
