"""The MCP face: JSON-RPC, of a server whose environments offer no tools."""

from __future__ import annotations

from typing import Any

__all__ = ["answer", "error"]

INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
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
        number = given if isinstance(given, (str, int)) else None
        said = 'a request has "jsonrpc": "2.0" and a "method"'
        return error(number, INVALID_REQUEST, said)
    number = request.get("id")
    if not isinstance(number, (str, int, type(None))):
        return error(None, INVALID_REQUEST, "an id is a string or a whole number")
    if request["method"] == "tools/list":
        return {"jsonrpc": "2.0", "id": number, "result": {"tools": []}}
    said = f"there is no method {request['method']!r:.60}; there is tools/list"
    return error(number, METHOD_NOT_FOUND, said)


def error(number: Any, code: int, message: str) -> dict[str, Any]:
    """A JSON-RPC error."""
    said = {"code": code, "message": message, "data": None}
    return {"jsonrpc": "2.0", "id": number, "error": said}
