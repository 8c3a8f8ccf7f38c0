"""The configuration of services: the entries of ``mcp_services`` in a reward's file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from guerdon._http import shown_url
from guerdon._problems import Place, problems_of
from guerdon.errors import InvalidArgumentError, RewardConfigError, ServiceError

__all__ = ["McpService", "OpenAIService", "ServiceTool", "share_limits"]

# The fields of a request to a model that its settings set.
OWN_FIELDS = frozenset(("messages", "model", "n", "stream", "temperature", "max_tokens"))


def _check_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, named = parts.hostname, parts.username is not None or parts.password is not None
        _ = parts.port  # raises if it is invalid
    except ValueError as error:
        raise ValueError(f"invalid address: {error}") from None
    if named:  # the message doesn't repeat it
        raise ValueError(
            "an address must not contain a user or password: set token_env or api_key_env to the "
            "name of an environment variable with the secret"
        )
    if parts.scheme not in ("http", "https") or not host or any(map(str.isspace, url)):
        raise ValueError("invalid address; expected one like http://localhost:8000")
    return url


def _check_extra(body: dict[str, Any]) -> dict[str, Any]:
    if own := sorted(body.keys() & OWN_FIELDS):
        raise ValueError(f"must not contain {', '.join(own)}, which other settings set")
    return body


Url: TypeAlias = Annotated[str, Field(max_length=2048), AfterValidator(_check_url)]
# The name of an environment variable with a secret, which is never in a file itself.
EnvName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=200)]
Words: TypeAlias = Annotated[str, Field(min_length=1, max_length=200)]
Seconds: TypeAlias = Annotated[
    float, Field(strict=True, gt=0, le=86_400, allow_inf_nan=False, description="Of one attempt.")
]
Concurrency: TypeAlias = Annotated[
    int, Field(strict=True, ge=1, le=10_000, description="The most calls at once.")
]
Retries: TypeAlias = Annotated[
    int, Field(strict=True, ge=0, le=20, description="How often a call is retried.")
]


# The number of processes that the limits of services are divided by.
_sharing = 1


def share_limits(processes: int) -> None:
    """Divide the limits of the services that this process opens from now on.

    So many processes that call the same services keep to the services' `concurrency` together.

    Example:
        >>> from guerdon.services.config import CallSettings, share_limits
        >>> share_limits(2)
        >>> CallSettings(concurrency=64).own_concurrency
        32
        >>> share_limits(1)

    Args:
        processes: The number of processes, this one included, at least 1.
    """
    global _sharing
    _sharing = processes


class CallSettings(BaseModel):
    """How a service is called.

    Example:
        >>> CallSettings(timeout_s=5.0).concurrency
        64

    Args:
        timeout_s: The timeout of one attempt in seconds, connecting included, above 0.
        concurrency: The most calls at once, at least 1; further ones wait. The workers of
            `guerdon score` share it.
        retries: How often a call is retried if the service is unavailable or too slow, at least
            0. The default is 0, since a tool may have side effects; a judge has none.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    timeout_s: Seconds = 60.0
    concurrency: Concurrency = 64
    retries: Retries = 0

    @property
    def own_concurrency(self) -> int:
        """The most calls at once of this process, which may share the limit with others.

        Raises:
            InvalidArgumentError: More processes share the limit than it allows calls.
        """
        if self.concurrency < _sharing:
            raise InvalidArgumentError(
                f"{_sharing} workers share a service whose `concurrency` is {self.concurrency}; "
                f"use at most {self.concurrency} workers"
            )
        return self.concurrency // _sharing

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        # An address may contain a key in its query.
        for name, value in super().__repr_args__():
            yield name or "", shown_url(value) if name == "endpoint" and value else value


class McpService(CallSettings):
    """A tool of an MCP server: at an address, or a program that is started for it.

    It contains no secrets, only the names of environment variables with them.

    Example:
        >>> McpService(endpoint="http://localhost:8000/mcp", tool="judge").timeout_s
        60.0

    Args:
        endpoint: The address of a server with MCP's streamable HTTP transport.
        command: Instead of an endpoint, a program and its arguments, which is the server on its
            stdin and stdout. Its environment has a few variables, those of the official SDK
            (``PATH``, ``HOME``, …), and those in `env`.
        tool: The tool that is called; None if the server has only one.
        token_env: The environment variable with the token for ``Authorization: Bearer …``.
        headers_env: Names of headers, each with the environment variable of its value.
        env: Further environment variables for the program.
        connections: The most connections to an endpoint, at least 1.
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
        is_program, words = self.command is not None, self.command or ()
        problems = {
            "set either endpoint (an address) or command": is_program == bool(self.endpoint),
            "token_env and headers_env require an endpoint; a command takes env": is_program
            and bool(self.token_env or self.headers_env),
            "env requires a command; an endpoint takes token_env, headers_env": not is_program
            and bool(self.env),
            "a word of the command is empty": "" in words,
            "a word of the command contains a NUL character": "\0" in "".join(words),
        }
        for problem, is_found in problems.items():
            if is_found:
                raise ValueError(problem)
        return self

    def public(self) -> dict[str, Any]:
        """Return what is public: no query of an address, no arguments of a command.

        Example:
            >>> McpService(command=["judge", "--secret", "s"]).public()["command"]
            'judge'
        """
        endpoint = None if self.endpoint is None else shown_url(self.endpoint)
        command = None if self.command is None else self.command[0]
        shown = {
            "type": self.type, "endpoint": endpoint, "command": command, "tool": self.tool,
            "timeout_s": self.timeout_s, "concurrency": self.concurrency,
        }  # fmt: skip
        return {name: value for name, value in shown.items() if value is not None}


class OpenAIService(CallSettings):
    """A chat model at an endpoint with OpenAI's protocol.

    Example:
        >>> service = OpenAIService(endpoint="http://localhost:8000", model="qwen3-8b",
        ...                         prompt="Rate this code from 0 to 1: {code}", returns="verdict")
        >>> service.temperature
        0.0

    Args:
        endpoint: The server's address.
        model: The model's name.
        prompt: A template, filled with the arguments of a call; without one, a call passes
            ``prompt=`` or ``messages=``.
        api_key_env: The environment variable with the key; your own server may need none.
        temperature: The sampling temperature, in [0, 2]; None leaves it to the endpoint.
        max_tokens: The most tokens of an answer, at least 1; None leaves it to the endpoint.
        returns: What a call returns: the ``text``, the ``json`` in it, parsed, or a ``verdict``,
            ``{"score", "reasoning"}``.
        extra_body: Further fields of a request, such as ``{"top_k": 20}``.
        private: Whether a server excludes the prompt from the configuration that it returns.
        **settings: See `CallSettings`; `retries` is 3 by default.
    """

    type: Literal["openai_llm"] = "openai_llm"
    endpoint: Url
    model: Words
    prompt: Annotated[str, Field(min_length=1, max_length=1_000_000)] | None = None
    api_key_env: EnvName | None = None
    temperature: Annotated[float, Field(strict=True, ge=0, le=2, allow_inf_nan=False)] | None = 0.0
    max_tokens: Annotated[int, Field(strict=True, ge=1)] | None = None
    retries: Retries = 3
    returns: Literal["text", "json", "verdict"] = "text"
    extra_body: Annotated[dict[str, JsonValue], AfterValidator(_check_extra)] = {}
    private: Annotated[bool, Field(strict=True)] = False

    def public(self) -> dict[str, Any]:
        """Return what is public: no key, no query of the address, no private prompt.

        Example:
            >>> service = OpenAIService(endpoint="http://localhost:8000?key=s", model="m",
            ...                         prompt="The answer is 42. Score: {answer}", private=True)
            >>> shown = service.public()
            >>> shown["endpoint"], "prompt" in shown
            ('http://localhost:8000', False)
        """
        hidden = {"api_key_env", "extra_body", "private", *(["prompt"] if self.private else ())}
        shown = self.model_dump(mode="json", exclude=hidden, exclude_none=True)
        return shown | {"endpoint": shown_url(self.endpoint)}


ServiceConfig: TypeAlias = Annotated[McpService | OpenAIService, Discriminator("type")]


class SdkService(CallSettings):
    """An MCP server as an object of the SDK.

    Args:
        server: An ``MCPServer`` or ``Server`` of this process, or ``StdioServerParameters``.
        **settings: See `CallSettings`.
    """

    server: Any
    tool: None = None  # the only one of the server, or that of the service's name

    def public(self) -> dict[str, Any]:
        """Return what is public: the name."""
        name = getattr(self.server, "name", None) or getattr(self.server, "command", None)
        return {"type": "mcp", "server": name}


@dataclass(frozen=True, slots=True)
class ServiceTool:
    """A tool of a service.

    Example:
        >>> from guerdon.services import ServiceTool
        >>> ServiceTool("judge", service="style_judge").description
        ''

    Args:
        name: The tool's name.
        service: The name of its service.
        description: What it does, in its author's words.
        input_schema: The JSON Schema of its arguments.
        output_schema: The JSON Schema of its structured content, if it declares one.
    """

    name: str
    service: str
    description: str = ""
    input_schema: Mapping[str, Any] | None = None
    output_schema: Mapping[str, Any] | None = None


_SERVICE: TypeAdapter[Any] = TypeAdapter(ServiceConfig)
CALL_SETTINGS: TypeAdapter[Any] = TypeAdapter(CallSettings)
SDK_SERVICE: TypeAdapter[Any] = TypeAdapter(SdkService)


def parse_service(place: Place, config: object, *, adapter: TypeAdapter[Any] = _SERVICE) -> Any:
    """Validate the configuration of a service.

    Example:
        >>> service = {"type": "mcp", "endpoint": "http://localhost:8000/mcp"}
        >>> parse_service(("mcp_services", "judge"), service).type
        'mcp'

    Args:
        place: The keys that lead to the configuration, for errors; may be empty.
        config: A dictionary, or a validated configuration, which is returned unchanged.
        adapter: Validates the dictionary; by default a service of a reward's file.

    Raises:
        RewardConfigError: It is invalid; ``problems`` lists every problem.
    """
    if isinstance(config, CallSettings):
        return config
    try:
        return adapter.validate_python(config)
    except ValidationError as error:
        problems = [str(each.within(*place)) for each in problems_of(error, config)]
        raise RewardConfigError("; ".join(problems), problems=problems) from None


# Secrets in environment variables --------------------------------------------------------------


def read_secret(variable: str, user: str, *, service: str = "", in_header: bool = True) -> str:
    """Return the secret in an environment variable.

    Example:
        >>> os.environ["THE_KEY"] = "sk-1"
        >>> read_secret("THE_KEY", "the model")
        'sk-1'

    Args:
        variable: The variable's name.
        user: What needs the secret, for errors.
        service: The service's name, for errors.
        in_header: Whether it is sent in an HTTP header.

    Raises:
        ServiceError: It isn't set, or can't be sent.
    """
    value = os.environ.get(variable)
    if not value:
        raise ServiceError(
            f"{user} needs the environment variable {variable}, which isn't set", service=service
        )
    # The HTTP client would reject it, too, and repeat it in its error.
    if in_header and not fits_header(value):
        raise ServiceError(
            f"{user} can't send the value of the environment variable {variable}: it must be "
            "printable ASCII without white space at its ends",
            service=service,
        )
    return value


def fits_header(value: str) -> bool:
    r"""Whether a value can be sent in an HTTP header.

    Example:
        >>> fits_header("Basic YQ=="), fits_header("sk-1\n")
        (True, False)
    """
    return value == value.strip() and value.isascii() and value.isprintable()
