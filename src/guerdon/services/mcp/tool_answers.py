"""What an MCP tool answered, as guerdon gives it: a dictionary, a text, or an error."""

from __future__ import annotations

from typing import Any

import mcp
from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT, CallToolResult, TextContent

from guerdon.errors import ServiceError, ServiceTimeoutError, ServiceUnavailableError
from guerdon.services.mcp.streamable_http import HTTP_STATUS

__all__ = ["answer_of", "failure"]

# How much of a tool's own words an error repeats.
SAID = 2000
# With what a server says that it is away, or that it has too much to do.
AWAY = (404, 408, 429, 500, 502, 503, 504)


def answer_of(service: str, tool: str, result: CallToolResult) -> dict[str, Any] | str:
    """What a call gives.

    Structured content is given as a dictionary, what is no object under the key ``result``;
    where there is none, the text. A tool that says ``-> str`` has the SDK send its text as
    structured content, too, and gives the text.

    Args:
        service: The service's name, for messages.
        tool: The tool's name, for messages.
        result: What the SDK gave.

    Raises:
        ServiceError: The tool says that it failed, or gave neither text nor structure.
    """
    texts = [block.text for block in result.content if isinstance(block, TextContent)]
    text = "\n".join(texts)
    if result.is_error:
        said = text[:SAID] or "without a word"
        raise ServiceError(f"service {service!r}: {tool} failed: {said}", service=service)
    structured = result.structured_content
    if isinstance(structured, dict):
        return text if structured == {"result": text} else structured
    if structured is not None:
        return {"result": structured}
    if len(texts) < len(result.content):
        kinds = sorted({block.type for block in result.content} - {"text"})
        raise ServiceError(
            f"service {service!r}: {tool} gave content of a kind that isn't taken, "
            f"{', '.join(kinds)}; it takes structured content or text",
            service=service,
        )
    return text


def failure(service: str, error: mcp.MCPError) -> ServiceError:
    """The error that an error of the protocol stands for."""
    status = error.data.get(HTTP_STATUS) if isinstance(error.data, dict) else None
    message = f"service {service!r}: {error.message[:SAID]}"
    if error.code == CONNECTION_CLOSED or status in AWAY:
        return ServiceUnavailableError(message, service=service)
    if error.code == REQUEST_TIMEOUT:
        return ServiceTimeoutError(message, service=service)
    return ServiceError(message, service=service)
