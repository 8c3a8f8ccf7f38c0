"""Descriptions of services, made of what a person gave for one, and checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from guerdon.errors import RewardConfigError
from guerdon.services.config import CallSettings, McpService, OpenAIService, ServiceConfig

__all__ = ["SdkService", "parse_service", "parse_settings"]

_service: TypeAdapter[McpService | OpenAIService] = TypeAdapter(ServiceConfig)


@dataclass(frozen=True, slots=True)
class SdkService:
    """An MCP server as the SDK itself describes one; it stands in no file.

    Args:
        server: An ``MCPServer`` or ``Server`` of this process, or ``StdioServerParameters``.
        settings: How it is called.
    """

    server: Any
    settings: CallSettings

    def public(self) -> dict[str, Any]:
        """What may be told to whoever asks."""
        told = getattr(self.server, "name", None) or getattr(self.server, "command", None)
        return {"type": "mcp", "server": told}


def parse_service(where: str, config: object) -> McpService | OpenAIService:
    """Make the description of a service from a dictionary.

    Example:
        >>> service = {"type": "mcp", "endpoint": "http://localhost:8000/mcp"}
        >>> parse_service("mcp_services.judge", service).type
        'mcp'

    Args:
        where: Where it stands, for messages; ``""`` for nowhere in particular.
        config: A dictionary, or the description itself, which is given back.

    Raises:
        RewardConfigError: It can't be meant; ``problems`` says everything that is wrong.
    """
    if isinstance(config, (McpService, OpenAIService)):
        return config
    try:
        return _service.validate_python(config)
    except ValidationError as error:
        raise _refusal(where, error) from None


def parse_settings(**settings: Any) -> CallSettings:
    """Check how a service is to be called.

    Raises:
        RewardConfigError: It can't be meant; ``problems`` says everything that is wrong.
    """
    try:
        return CallSettings(**settings)
    except ValidationError as error:
        raise _refusal("", error) from None


def _refusal(where: str, error: ValidationError) -> RewardConfigError:
    problems = []
    for told in error.errors(include_url=False):
        path = [str(part) for part in told["loc"]]
        if path[:1] in (["mcp"], ["openai_llm"]):  # the type, which pydantic puts in front
            del path[0]
        problems.append(
            ": ".join(filter(None, (".".join(filter(None, [where, *path])), _say(told))))
        )
    return RewardConfigError("; ".join(problems), problems=problems)


def _say(told: Any) -> str:
    if told["type"] == "union_tag_not_found":
        return 'type is missing; it takes "mcp" or "openai_llm"'
    if told["type"] == "union_tag_invalid":
        return f'type is {told["ctx"]["tag"]!r:.100}; it takes "mcp" or "openai_llm"'
    if told["type"] == "value_error":
        return str(told["ctx"]["error"])
    if told["type"] == "extra_forbidden":
        return "there is no such key"
    return str(told["msg"])
