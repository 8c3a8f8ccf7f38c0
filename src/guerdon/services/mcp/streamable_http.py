"""The HTTP client under a connection to an MCP server: what fails is one request's own failure.

The SDK's transport gives up the whole connection, with every other call on it, when one request
can't be sent or its answer breaks off. So such a failure becomes an answer here: a JSON-RPC error,
which says what happened. It imports httpx2, which comes with mcp.
"""

from __future__ import annotations

import json
from typing import Any

import httpx2
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR

__all__ = ["HTTP_STATUS", "McpHttpClient"]

# Bytes that an answer may have.
MAX_ANSWER = 16 * 2**20
# How much of an answer that can't be meant an error repeats, in bytes.
SHOWN = 200
# Seconds that an idle connection is kept: less than servers do, so that none closes under a call.
KEPT_S = 2.0
# Where an error's data says with what status a server answered.
HTTP_STATUS = "http_status"


class McpHttpClient(httpx2.AsyncClient):
    """Sends what MCP's streamable HTTP transport has to send.

    Args:
        headers: Sent with each request.
        timeout_s: Seconds that sending, or each pause of an answer, may take.
    """

    def __init__(self, headers: dict[str, str], timeout_s: float) -> None:
        super().__init__(
            headers=headers,
            timeout=timeout_s,
            limits=httpx2.Limits(keepalive_expiry=KEPT_S),
        )

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request; a failure of a POST is an answer, too."""
        if request.method != "POST":  # the SDK copes with failures of those
            return await super().send(request, **options)
        try:
            return await self._posted(request, **options)
        except httpx2.TransportError as error:
            said = str(error) or type(error).__name__
            return _error(request, 502, CONNECTION_CLOSED, f"no answer: {said}")

    async def _posted(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        response = await super().send(request, **options)
        kind = response.headers.get("content-type", "").lower()
        failed = response.status_code >= 400
        if not failed and not kind.startswith("application/json"):
            return response
        try:
            body = await _read(response)
        finally:
            await response.aclose()
        if body is None:
            said = f"an answer of more than {MAX_ANSWER} bytes"
            return _error(request, 502, INTERNAL_ERROR, said)
        if failed and not _is_error(body):
            said = f"HTTP {response.status_code} {response.reason_phrase}".rstrip()
            data = {HTTP_STATUS: response.status_code}
            return _error(request, response.status_code, INTERNAL_ERROR, said, data)
        if not failed and b'"jsonrpc"' not in body:
            said = f"what answers there doesn't speak MCP: {body[:SHOWN].decode(errors='replace')}"
            return _error(request, 502, INTERNAL_ERROR, said)
        headers = {
            name: value
            for name, value in response.headers.items()
            if name not in ("content-encoding", "content-length", "transfer-encoding")
        }
        return httpx2.Response(response.status_code, headers=headers, content=body, request=request)


async def _read(response: httpx2.Response) -> bytes | None:
    """The body; None where it is too long."""
    parts, length = [], 0
    async for part in response.aiter_bytes():
        length += len(part)
        if length > MAX_ANSWER:
            return None
        parts.append(part)
    return b"".join(parts)


def _is_error(body: bytes) -> bool:
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(told, dict) and "jsonrpc" in told and isinstance(told.get("error"), dict)


def _error(
    request: httpx2.Request, status: int, code: int, message: str, data: Any = None
) -> httpx2.Response:
    said = {"code": code, "message": message} | ({} if data is None else {"data": data})
    content = {"jsonrpc": "2.0", "id": None, "error": said}
    return httpx2.Response(status, json=content, request=request)
