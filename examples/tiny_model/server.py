"""`create_app`: serves a `TinyModel` with OpenAI's protocol; `serving` runs it in a thread."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, Literal

import anyio
import uvicorn
from pydantic import BaseModel, Field, ValidationError, field_validator
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from examples.tiny_model.grammar import Grammar, answer, json_value, tool_call
from examples.tiny_model.model import Sampled, Sampling, TinyModel
from examples.tiny_model.tokens import END, MessageReader, prompt_of, token_text
from guerdon._http import bound_socket, url_of
from guerdon._validation import summarize

__all__ = ["create_app", "serving"]

MAX_BODY = 2**20  # bytes of a request
MAX_REQUESTS = 256  # at once; others are answered 503
MAX_THREADS = 2  # that compute
DEFAULT_TOKENS = 64  # of an answer

Record = dict[str, Any]


class BadRequestError(Exception):
    """A request can't be answered; it is the server's answer 400."""

    def __init__(self, message: str, code: str = "invalid_request") -> None:
        super().__init__(message)
        self.code = code


# Requests -----------------------------------------------------------------------------------------


class Function(BaseModel):
    """A function that the model may call."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    parameters: Record = Field(default_factory=dict)


class ToolSpec(BaseModel):
    """A tool of a request."""

    type: Literal["function"]
    function: Function


class NamedFunction(BaseModel):
    """The name of a function."""

    name: str


class NamedTool(BaseModel):
    """The tool that the model must call."""

    type: Literal["function"]
    function: NamedFunction


class JsonSchema(BaseModel):
    """The schema of a structured answer."""

    value: Record = Field(alias="schema")


class Format(BaseModel):
    """The form of the answer."""

    type: Literal["text", "json_schema"]
    json_schema: JsonSchema | None = None


class StreamOptions(BaseModel):
    """What a stream contains."""

    include_usage: bool = False


class ChatRequest(BaseModel):
    """A request for a chat completion; other fields are ignored."""

    model: str
    messages: list[Record] = Field(min_length=1)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    temperature: float = Field(1.0, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    seed: int | None = Field(None, ge=0, lt=2**62)
    logit_bias: dict[int, float] = Field(default_factory=dict)
    logprobs: bool = False
    top_logprobs: int = Field(0, ge=0, le=20)
    tools: list[ToolSpec] = Field(default_factory=list)
    tool_choice: Literal["auto", "none", "required"] | NamedTool = "auto"
    response_format: Format | None = None
    n: Literal[1] = 1
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()

    @field_validator("messages")
    @classmethod
    def _check_arguments(cls, messages: list[Record]) -> list[Record]:
        """Refuse calls whose arguments are not JSON, as vLLM, SGLang and llama.cpp have done."""
        try:
            for message in messages:
                for call in message.get("tool_calls") or ():
                    json.loads(call["function"]["arguments"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"a call is invalid: {error!r}") from error
        return messages

    def schemas(self) -> dict[str, Record]:
        """Return the schemas of the tools that may be called, by name."""
        tools = {each.function.name: each.function.parameters for each in self.tools}
        if isinstance(self.tool_choice, NamedTool):
            name = self.tool_choice.function.name
            tools = {name: tools[name]} if name in tools else {}
        if self.tool_choice not in ("auto", "none") and not tools:
            raise BadRequestError("tool_choice requires a tool that isn't in tools")
        return {} if self.tool_choice == "none" else tools

    def grammar(self) -> Grammar:
        """Return what the answer may be."""
        tools = self.schemas()
        if self.tool_choice not in ("auto", "none"):
            return tool_call(tools)
        if self.response_format is not None and self.response_format.json_schema is not None:
            schema = self.response_format.json_schema.value
            return json_value(schema, schema.get("$defs", {}))
        return answer(tools)

    def sampling(self) -> Sampling:
        """Return how tokens are sampled."""
        return Sampling(
            self.temperature, self.top_p, self.seed, self.logit_bias,
            top_logprobs=self.top_logprobs if self.logprobs else None,
        )  # fmt: skip


async def _read(request: Request) -> ChatRequest:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise BadRequestError(f"the request must have at most {MAX_BODY} bytes")
    try:
        return ChatRequest.model_validate_json(body)
    except ValidationError as error:
        raise BadRequestError(summarize(error)) from error


# Answers ------------------------------------------------------------------------------------------


class Answer:
    """The answer to a request, while it is sampled.

    Args:
        model: The model.
        asked: The request.
        delay_s: Seconds to wait before each token.

    Raises:
        BadRequestError: The prompt is too long, or malformed.
    """

    def __init__(self, model: TinyModel, asked: ChatRequest, *, delay_s: float) -> None:
        self._asked, self._delay_s = asked, delay_s
        self._grammar = asked.grammar()
        try:
            prompt = prompt_of(asked.messages, asked.schemas())
        except (KeyError, TypeError, AttributeError) as error:
            raise BadRequestError(f"messages are invalid: {error!r}") from error
        limit = asked.max_completion_tokens or asked.max_tokens or DEFAULT_TOKENS
        if len(prompt) + limit > model.context:
            raise BadRequestError(
                f"the model's context has {model.context} tokens, but the prompt has "
                f"{len(prompt)} and the answer may have {limit}",
                "context_length_exceeded",
            )
        self._prompt_tokens, self._limit = len(prompt), limit
        self._sampler = model.start(prompt, asked.sampling())
        self._reader = MessageReader()
        self._logprobs: list[Record] = []
        self._count = 0
        self._head: Record = {
            "id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": asked.model
        }  # fmt: skip

    async def sample(self, threads: anyio.CapacityLimiter) -> AsyncIterator[tuple[Record, Record]]:
        """Sample the answer; yield what each token adds to the message, and its logprobs.

        Args:
            threads: Bounds the threads that compute.
        """
        try:
            allowed = next(self._grammar)
            while self._count < self._limit:
                if self._delay_s:
                    await anyio.sleep(self._delay_s)
                sampled = await anyio.to_thread.run_sync(
                    self._sampler.sample, allowed, limiter=threads
                )
                self._count += 1
                found = self._found(sampled)
                yield ({} if sampled.token == END else self._reader.feed(sampled.token)), found
                allowed = self._grammar.send(sampled.token)
            self._finish = "length"
        except StopIteration:  # the grammar's end
            self._finish = "tool_calls" if "tool_calls" in self._reader.message else "stop"
        yield self._reader.end(), {}

    def _found(self, sampled: Sampled) -> Record:
        """The logprobs of a token, in OpenAI's format."""
        if sampled.logprob is None:
            return {}
        pairs = [(sampled.token, sampled.logprob), *sampled.top]
        own, *top = (
            {"token": token_text(token), "logprob": logprob,
             "bytes": [token] if token < 256 else list(token_text(token).encode())}
            for token, logprob in pairs
        )  # fmt: skip
        self._logprobs.append({**own, "top_logprobs": top})
        return {"logprobs": {"content": self._logprobs[-1:]}}

    def _usage(self) -> Record:
        total = self._prompt_tokens + self._count
        return {"prompt_tokens": self._prompt_tokens, "completion_tokens": self._count,
                "total_tokens": total}  # fmt: skip

    async def whole(self, threads: anyio.CapacityLimiter) -> AsyncIterator[str]:
        """Yield the answer at once, as JSON."""
        async with aclosing(self.sample(threads)) as parts:  # type: ignore[type-var]
            async for _ in parts:
                pass
        logprobs = {"content": self._logprobs} if self._asked.logprobs else None
        choice = {"index": 0, "message": self._reader.message, "finish_reason": self._finish,
                  "logprobs": logprobs}  # fmt: skip
        yield json.dumps(
            {**self._head, "object": "chat.completion", "choices": [choice], "usage": self._usage()}
        )

    async def stream(self, threads: anyio.CapacityLimiter) -> AsyncIterator[str]:
        """Yield the answer in chunks, as server-sent events."""
        yield self._chunk({"role": "assistant", "content": ""})
        async with aclosing(self.sample(threads)) as parts:  # type: ignore[type-var]
            async for delta, found in parts:
                if delta or found:
                    yield self._chunk(delta, **found)
        yield self._chunk({}, finish_reason=self._finish)
        if self._asked.stream_options.include_usage:
            yield self._event({"choices": [], "usage": self._usage()})
        yield "data: [DONE]\n\n"

    def _chunk(self, delta: Record, **more: Any) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": None, **more}
        return self._event({"choices": [choice]})

    def _event(self, fields: Record) -> str:
        chunk = {**self._head, "object": "chat.completion.chunk", **fields}
        return f"data: {json.dumps(chunk)}\n\n"


# The server ---------------------------------------------------------------------------------------


def create_app(model: TinyModel, *, delay_s: float = 0.0) -> Starlette:
    """Return an application that answers ``POST /v1/chat/completions``.

    Args:
        model: The model.
        delay_s: Seconds to wait before each token, to imitate a slow model.
    """
    threads = anyio.CapacityLimiter(MAX_THREADS)

    async def complete(request: Request) -> Response:
        try:
            asked = await _read(request)
            made = Answer(model, asked, delay_s=delay_s)
        except BadRequestError as error:
            shown = {"message": str(error), "type": "invalid_request_error", "code": error.code}
            return JSONResponse({"error": shown}, 400)
        # Both end when the client disconnects.
        if asked.stream:
            return StreamingResponse(made.stream(threads), media_type="text/event-stream")
        return StreamingResponse(made.whole(threads), media_type="application/json")

    return Starlette(routes=[Route("/v1/chat/completions", complete, methods=["POST"])])


@contextmanager
def serving(app: Starlette, *, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """Run a server in a thread, and stop it at the end.

    Args:
        app: The application.
        host: The address to listen on.
        port: The port; 0 lets the system choose one.

    Yields:
        The base URL for clients, such as ``http://127.0.0.1:8000/v1``.

    Raises:
        LaunchError: The address can't be listened on.
    """
    with bound_socket(host, port) as bound:
        bound.listen()  # connections wait until the server accepts them
        config = uvicorn.Config(
            app, http="h11", ws="none", lifespan="off", limit_concurrency=MAX_REQUESTS,
            access_log=False, log_config=None, timeout_graceful_shutdown=1,
        )  # fmt: skip
        server = uvicorn.Server(config)
        thread = threading.Thread(
            target=server.run, kwargs={"sockets": [bound]}, name="tiny-model", daemon=True
        )
        thread.start()
        try:
            yield f"{url_of(bound)}/v1"
        finally:
            server.should_exit = True
            thread.join()
