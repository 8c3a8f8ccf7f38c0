"""JSON-RPC, and the methods of MCP for the tools of an environment.

Requests arrive over HTTP, on a WebSocket of their own, and in frames of a session; each of them
answers a request with a table of the methods that it has. Methods and results are those of OpenEnv,
and those of the Model Context Protocol for its own clients (https://modelcontextprotocol.io,
revision 2025-11-25, "Tools").

A call of a tool is made like a step of its session: by the same runner, with the same time limit,
and never while another call of that session runs. It is not a step of the episode: it advances no
count, and its result has no reward. To be rewarded, a client takes a step with `CallToolAction`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from guerdon._validation import shown, summarize
from guerdon.envs.server.protocol import ErrorCode, ProtocolError
from guerdon.envs.wire import read_json
from guerdon.types.tool_calls import (
    CallToolAction,
    Tool,
    ToolError,
    ToolOutcome,
    ToolResult,
    plain,
)

# JSON-RPC's codes of errors; SERVER_ERROR is the first of those that it leaves to servers.
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
SERVER_ERROR = -32000

_CODES = {
    ErrorCode.VALIDATION_ERROR: INVALID_PARAMS,
    ErrorCode.SESSION_ERROR: INVALID_REQUEST,
    ErrorCode.EXECUTION_ERROR: INTERNAL_ERROR,
}

# Computes the result of a request from its parameters.
Method: TypeAlias = Callable[[dict[str, Any]], Awaitable[Any]]


class RpcError(Exception):
    """A request that is answered with an error.

    Attributes:
        code: JSON-RPC's code.
        message: What was wrong.
        data: Further fields.
        number: The ID of what is not a request, as far as it has one.
    """

    def __init__(self, code: int, message: str, data: Any = None, *, number: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.number = number


class RpcRequest(BaseModel):
    """A request, or a notification, which has no `id`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    jsonrpc: Literal["2.0"]
    method: str
    params: dict[str, Any] = Field(default_factory=dict)
    id: int | str | None = None

    @property
    def is_notification(self) -> bool:
        """Whether it is a notification of MCP, which is not answered."""
        return self.method.startswith("notifications/") and "id" not in self.model_fields_set


class ToolCallParams(BaseModel):
    """The parameters of ``tools/call``; others are ignored."""

    name: str
    arguments: dict[str, Any] | None = None


def parse_request(text: str | bytes) -> RpcRequest:
    """Parse a request.

    Raises:
        RpcError: It is not one.
    """
    try:
        content = read_json(text)
    except (ValueError, RecursionError):
        raise RpcError(PARSE_ERROR, "the request is not JSON") from None
    return check_request(content)


def check_request(content: Any) -> RpcRequest:
    """Return the content of a JSON text as a request.

    Raises:
        RpcError: It is not one.
    """
    try:
        return RpcRequest.model_validate(content)
    except ValidationError as error:
        number = content.get("id") if isinstance(content, dict) else None
        number = number if type(number) in (int, str) else None
        message = f"the request is not valid: {summarize(error)}"
        raise RpcError(INVALID_REQUEST, message, number=number) from None


async def answer(request: RpcRequest, methods: Mapping[str, Method]) -> dict[str, Any]:
    """Call the method that a request names, and return the answer.

    Args:
        request: The request.
        methods: The methods by name.
    """
    method = methods.get(request.method)
    try:
        if method is None:
            known = ", ".join(methods)
            message = f"unknown method {shown(request.method)}; the methods are {known}"
            raise RpcError(METHOD_NOT_FOUND, message)
        return {"jsonrpc": "2.0", "id": request.id, "result": await method(request.params)}
    except (RpcError, ProtocolError) as error:
        return error_answer(error, request.id)


async def answer_content(content: Any, methods: Mapping[str, Method]) -> dict[str, Any]:
    """Answer the content of a JSON text, which may not be a request.

    Example:
        >>> import asyncio
        >>> async def ping(params):
        ...     return {}
        >>> asyncio.run(answer_content({"jsonrpc": "2.0", "id": 1, "method": "a"}, {"a": ping}))
        {'jsonrpc': '2.0', 'id': 1, 'result': {}}

    """
    try:
        return await answer(check_request(content), methods)
    except RpcError as error:
        return error_answer(error)


async def answer_text(text: str | bytes, methods: Mapping[str, Method]) -> str:
    """Answer a request that is not parsed yet."""
    try:
        return json.dumps(await answer(parse_request(text), methods))
    except RpcError as error:
        return json.dumps(error_answer(error))


def error_answer(
    error: RpcError | ProtocolError, number: int | str | None = None
) -> dict[str, Any]:
    """Return the answer for an error; `number` is the ID of the request."""
    if isinstance(error, ProtocolError):
        error = RpcError(_CODES.get(error.code, SERVER_ERROR), error.message, error.details or None)
    content = {"code": error.code, "message": error.message, "data": error.data}
    return {"jsonrpc": "2.0", "id": error.number if number is None else number, "error": content}


def error_text(error: ProtocolError) -> str:
    """Return the text of an error that answers no request: why a connection is closed."""
    return json.dumps(error_answer(error), default=str)


# The tools of an environment ------------------------------------------------------------------


class ToolMethods:
    """The methods of one environment's tools.

    Args:
        tools: Returns the tools.
        call: Makes a call.
        is_standard: Whether results have the form of MCP, not that of OpenEnv: with an error of a
            tool as a result, which a model can read.
    """

    def __init__(
        self,
        tools: Callable[[], Awaitable[list[Tool]]],
        call: Callable[[CallToolAction], Awaitable[ToolOutcome]],
        *,
        is_standard: bool = False,
    ) -> None:
        self._tools = tools
        self._call = call
        self._is_standard = is_standard

    def table(self) -> dict[str, Method]:
        """Return the methods by name."""
        return {"tools/list": self.list_tools, "tools/call": self.call_tool}

    async def list_tools(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return the tools that the agent may call now."""
        described = [_described(each) for each in await self._tools()]
        try:
            return {"tools": plain(described)}
        except ValueError as error:
            raise RpcError(INTERNAL_ERROR, f"the tools can't be sent: {error}") from None

    async def call_tool(self, params: dict[str, Any]) -> dict[str, Any]:
        """Call a tool."""
        outcome = await self._call(tool_call(params))
        failure = outcome.error
        if failure is None:
            try:
                return self._result(outcome.result or ToolResult())
            except ValueError as error:
                message = f"the result can't be sent: {error}"
                failure = ToolError(error_type="execution_error", message=message)
        if not self._is_standard:
            raise RpcError(INTERNAL_ERROR, failure.message, {"error_type": failure.error_type})
        if failure.error_type == "tool_not_found":
            raise RpcError(INVALID_PARAMS, failure.message)
        content = [{"type": "text", "text": failure.message}]
        return self._result(ToolResult(content=content, is_error=True))

    def _result(self, result: ToolResult) -> dict[str, Any]:
        fields: dict[str, Any] = plain(result)
        if not self._is_standard:
            return {**fields, "meta": None}
        made = {"content": fields["content"], "isError": fields["is_error"]}
        structured = fields["structured_content"]
        return made if structured is None else {**made, "structuredContent": structured}


def tool_call(params: Any) -> CallToolAction:
    """Return the call that the parameters of ``tools/call`` describe.

    Raises:
        RpcError: They are invalid.
    """
    try:
        parsed = ToolCallParams.model_validate(params)
    except ValidationError as error:
        message = f"the params of tools/call are not valid: {summarize(error)}"
        raise RpcError(INVALID_PARAMS, message) from None
    return CallToolAction(tool_name=parsed.name, arguments=parsed.arguments or {})


def _described(tool: Tool) -> dict[str, Any]:
    """Return a tool with its schema under both names: MCP's, and that of OpenEnv's actions."""
    return {**tool.model_dump(), "inputSchema": tool.input_schema}


def socket_methods(tools: ToolMethods, key: str) -> dict[str, Method]:
    """Return the methods of a WebSocket's session.

    Args:
        tools: Its tools.
        key: Its ID.
    """
    return {
        **tools.table(),
        "openenv/session/create": partial(_created, key),
        "openenv/session/close": _not_closed,
    }


async def _created(key: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"session_id": key}  # it has one already


async def _not_closed(params: dict[str, Any]) -> Any:
    raise RpcError(INVALID_REQUEST, "the session of a WebSocket ends when that is closed")
