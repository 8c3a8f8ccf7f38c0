"""What services are: the entries of ``mcp_services``, as they stand in a reward's file."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    model_validator,
)

__all__ = ["McpService", "OpenAIService"]


def _check_url(url: str, like: str = "http://localhost:8000/mcp") -> str:
    try:
        parts = urlsplit(url)
        host, named = parts.hostname, parts.username is not None or parts.password is not None
        _ = parts.port  # raises where it is none
    except ValueError as error:
        raise ValueError(f"it is no address: {error}") from None
    if named:  # and is not repeated here
        raise ValueError(
            "an address holds no user or password: name the environment variable that holds the "
            "secret, as token_env or api_key_env"
        )
    if parts.scheme not in ("http", "https") or not host or any(map(str.isspace, url)):
        raise ValueError(f"it takes an address like {like}")
    return url


def _check_model_url(url: str) -> str:
    return _check_url(url, "http://localhost:8000/v1")


Url: TypeAlias = Annotated[str, Field(max_length=2048), AfterValidator(_check_url)]
ModelUrl: TypeAlias = Annotated[str, Field(max_length=2048), AfterValidator(_check_model_url)]
# The name of an environment variable: what stands in it never stands in a file.
EnvName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=200)]
Words: TypeAlias = Annotated[str, Field(min_length=1, max_length=200)]
Seconds: TypeAlias = Annotated[
    float, Field(strict=True, gt=0, le=86_400, allow_inf_nan=False, description="Of one attempt.")
]
Concurrency: TypeAlias = Annotated[
    int, Field(strict=True, ge=1, le=10_000, description="How many calls may run at once.")
]
Retries: TypeAlias = Annotated[
    int, Field(strict=True, ge=0, le=20, description="How often a call is tried again.")
]


class CallSettings(BaseModel):
    """How a service is called.

    Example:
        >>> CallSettings(timeout_s=5.0).concurrency
        64

    Args:
        timeout_s: Seconds that an attempt may take, connecting included, over 0.
        concurrency: How many calls may run at once, at least 1; the others wait their turn.
        retries: How often a call is tried again where the service was away or too slow, at least
            0. By default 0, as a tool may have effects; a judge has none.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    timeout_s: Seconds = 60.0
    concurrency: Concurrency = 64
    retries: Retries = 0


class McpService(CallSettings):
    """A tool behind an MCP server: at an address, or a program that is started for it.

    Secrets never stand in it, only the names of the environment variables that hold them.

    Example:
        >>> McpService(endpoint="http://localhost:8000/mcp", tool="judge").timeout_s
        60.0

    Args:
        endpoint: The address of a server that speaks MCP's streamable HTTP.
        command: The program that is the server and its arguments, spoken to on its stdin and
            stdout; instead of an endpoint. It sees few environment variables, as the official SDK
            has it (``PATH``, ``HOME``, …), and those that ``env`` names.
        tool: The tool that is called; None where the server has only one.
        token_env: The environment variable with the token that is sent as
            ``Authorization: Bearer …``.
        headers_env: Header to the environment variable with its value.
        env: Environment variables that the program sees beside the few.
        connections: Over how many connections to an endpoint calls are spread, at least 1.
        **settings: See `CallSettings`.
    """

    type: Literal["mcp"] = "mcp"
    endpoint: Url | None = None
    command: Annotated[tuple[str, ...], Field(min_length=1, max_length=1000)] | None = None
    tool: Words | None = None
    token_env: EnvName | None = None
    headers_env: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")], EnvName] = {}
    env: tuple[EnvName, ...] = ()
    connections: Annotated[int, Field(strict=True, ge=1, le=256)] = 4

    @model_validator(mode="after")
    def _check_where(self) -> McpService:
        if (self.endpoint is None) == (self.command is None):
            raise ValueError("it takes an endpoint (an address) or a command, and not both")
        if self.command is not None and (self.token_env is not None or self.headers_env):
            raise ValueError("token_env and headers_env go with an endpoint; a command takes env")
        if self.endpoint is not None and self.env:
            raise ValueError("env goes with a command; an endpoint takes token_env, headers_env")
        if self.command is not None and not all(self.command):
            raise ValueError("a word of the command is empty")
        if self.command is not None and any("\0" in word for word in self.command):
            raise ValueError("a word of the command holds a NUL character")
        return self

    def public(self) -> dict[str, Any]:
        """What may be told to whoever asks: no query of an address, no arguments of a command.

        Example:
            >>> McpService(command=["judge", "--secret", "s"]).public()["command"]
            'judge'
        """
        told: dict[str, Any] = {"type": self.type}
        if self.endpoint is not None:
            told["endpoint"] = _without_query(self.endpoint)
        if self.command is not None:
            told["command"] = self.command[0]
        if self.tool is not None:
            told["tool"] = self.tool
        return told | {name: getattr(self, name) for name in ("timeout_s", "concurrency")}


class OpenAIService(CallSettings):
    """A language model behind an endpoint that speaks OpenAI's protocol.

    Example:
        >>> service = OpenAIService(endpoint="http://localhost:8000", model="qwen3-8b",
        ...                         prompt="Rate this code from 0 to 1: {code}", returns="verdict")
        >>> service.temperature
        0.0

    Args:
        endpoint: The server's address.
        model: The model's name.
        prompt: A template, filled with the arguments of a call; without one, a call says
            ``prompt=`` or ``messages=``.
        api_key_env: The environment variable with the key; a server of one's own needs none.
        temperature: Of sampling, in [0, 2].
        max_tokens: The longest answer, at least 1; by default the endpoint's.
        returns: What a call gives: the ``text``, the ``json`` that it holds, parsed, or a
            ``verdict``, ``{"score", "reasoning"}``.
        extra_body: What else a request says, such as ``{"top_k": 20}``.
        private: Whether the prompt is kept from those who ask a server for its configuration.
        **settings: See `CallSettings`; there are 3 retries by default.
    """

    type: Literal["openai_llm"] = "openai_llm"
    endpoint: ModelUrl
    model: Words
    prompt: Annotated[str, Field(min_length=1, max_length=1_000_000)] | None = None
    api_key_env: EnvName | None = None
    temperature: Annotated[float, Field(strict=True, ge=0, le=2, allow_inf_nan=False)] = 0.0
    max_tokens: Annotated[int, Field(strict=True, ge=1)] | None = None
    retries: Retries = 3
    returns: Literal["text", "json", "verdict"] = "text"
    extra_body: dict[str, JsonValue] = {}
    private: Annotated[bool, Field(strict=True)] = False

    def public(self) -> dict[str, Any]:
        """What may be told to whoever asks: no key, no query of the address, no private prompt.

        Example:
            >>> service = OpenAIService(endpoint="http://localhost:8000?key=s", model="m",
            ...                         prompt="The answer is 42. Score: {answer}", private=True)
            >>> told = service.public()
            >>> told["endpoint"], "prompt" in told
            ('http://localhost:8000', False)
        """
        told = self.model_dump(
            mode="json", exclude={"api_key_env", "extra_body", "private"}, exclude_none=True
        )
        told["endpoint"] = _without_query(self.endpoint)
        if self.private:
            told.pop("prompt", None)
        return told


ServiceConfig: TypeAlias = Annotated[McpService | OpenAIService, Discriminator("type")]


def _without_query(url: str) -> str:
    return urlsplit(url)._replace(query="", fragment="").geturl()
