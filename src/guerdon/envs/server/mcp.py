"""The MCP face: JSON-RPC over HTTP, a WebSocket or a session; environments here offer no tools."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from pydantic_core import from_json

from guerdon.envs.server.connection import ClientGoneError, Connection

__all__ = ["answer", "answer_text", "converse", "error"]

INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
PARSE_ERROR = -32700


def answer(request: Any) -> dict[str, Any]:
    """Answer a JSON-RPC request.

    Example:
        >>> answer({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        {'jsonrpc': '2.0', 'id': 1, 'result': {'tools': []}}
    """
    if (
        not isinstance(request, dict)
        or request.get("jsonrpc") != "2.0"
        or not isinstance(request.get("method"), str)
    ):
        given = request.get("id") if isinstance(request, dict) else None
        number = given if type(given) in (str, int) else None
        said = 'a request has "jsonrpc": "2.0" and a "method"'
        return error(number, INVALID_REQUEST, said)
    number = request.get("id")
    if not isinstance(number, (str, int, type(None))) or isinstance(number, bool):
        return error(None, INVALID_REQUEST, "an id is a string or a whole number")
    if request["method"] == "tools/list":
        return {"jsonrpc": "2.0", "id": number, "result": {"tools": []}}
    if request["method"] == "tools/call":
        return error(number, INVALID_PARAMS, "there is no such tool; tools/list lists none")
    said = f"there is no method {request['method']!r:.60}; there are tools/list and tools/call"
    return error(number, METHOD_NOT_FOUND, said)


def answer_text(text: str | bytes | None) -> str:
    """Answer a JSON-RPC request as it came, None standing for a binary frame.

    Example:
        >>> answer_text('{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}')
        '{"jsonrpc": "2.0", "id": 1, "result": {"tools": []}}'
    """
    try:
        request = from_json(text or b"", allow_inf_nan=False)
    except (ValueError, RecursionError):
        return json.dumps(error(None, PARSE_ERROR, "this is no JSON"))
    return json.dumps(answer(request))


async def converse(connection: Connection, idle_timeout_s: float) -> None:
    """Answer the requests of a WebSocket, until it is silent for too long or its client leaves."""
    try:
        while True:
            async with asyncio.timeout(idle_timeout_s):
                text = await connection.receive()
            await connection.send(answer_text(text))
    except TimeoutError:
        await connection.close(1000, "idle")
    except ClientGoneError:
        return  # as it may, at any time


def error(number: Any, code: int, message: str) -> dict[str, Any]:
    """A JSON-RPC error."""
    said = {"code": code, "message": message, "data": None}
    return {"jsonrpc": "2.0", "id": number, "error": said}
