"""`McpEndpoint`: ``/mcp``, for OpenEnv's clients and for any client of MCP.

OpenEnv's clients send requests of JSON-RPC without a header: a fresh environment answers, or the
session of ``params.session_id``. A client of MCP begins with ``initialize``, which makes a session
and begins an episode, and sends the session's ID as ``Mcp-Session-Id`` from then on. That is the
transport "Streamable HTTP" of the Model Context Protocol, revision 2025-11-25, section "Transports"
(https://modelcontextprotocol.io), with answers in JSON: the server opens no stream, and a GET is
answered with 405, which the transport allows.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from importlib.metadata import version
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from guerdon._validation import shown
from guerdon.envs.server.mcp import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    Method,
    RpcError,
    answer,
    answer_text,
    error_answer,
    error_text,
    parse_request,
    tool_call,
)
from guerdon.envs.server.protocol import ResetRequest
from guerdon.envs.server.sessions import Connection, Session, SessionManager
from guerdon.envs.server.shared_sessions import SharedSession, SharedSessions
from guerdon.envs.server.workers import Runner

SESSION_HEADER = "mcp-session-id"
VERSION_HEADER = "mcp-protocol-version"

# The revisions of MCP whose requests are answered as `initialize` promises, the latest first.
VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26")

# Calls a fresh environment: the request, what is called for errors, and what calls its runner.
FreshCall = Callable[[Request, str, Callable[[Runner], Awaitable[Any]]], Awaitable[Any]]


class McpEndpoint:
    """The endpoint of MCP.

    Args:
        manager: The sessions of the server.
        shared: Those that have an ID.
        call_fresh: Calls a fresh environment.
    """

    def __init__(
        self, manager: SessionManager, shared: SharedSessions, call_fresh: FreshCall
    ) -> None:
        self._manager = manager
        self._shared = shared
        self._call_fresh = call_fresh

    async def http(self, request: Request) -> Response:
        """Answer a POST with a request, or a DELETE, which ends a session of MCP."""
        key = request.headers.get(SESSION_HEADER)
        session = self._shared.find(key)
        if request.method == "DELETE":
            return await self._delete(session)
        try:
            sent = parse_request(await request.body())
        except RpcError as error:
            return _response(error_answer(error))
        if sent.is_notification:
            return Response(status_code=202)
        headers: dict[str, str] = {}
        if key is None or sent.method == "initialize":
            methods = self._methods(request, headers)
        elif session is None:  # a client of MCP then begins another
            unknown = RpcError(INVALID_REQUEST, f"there is no session {shown(key)}")
            return _response(error_answer(unknown, sent.id), 404)
        elif request.headers.get(VERSION_HEADER, VERSIONS[0]) not in VERSIONS:
            versions = ", ".join(VERSIONS)
            unknown = RpcError(INVALID_REQUEST, f"the versions of MCP here are {versions}")
            return _response(error_answer(unknown, sent.id), 400)
        else:
            methods = {"ping": _ping, **self._tools(session, is_standard=True)}
        return _response(await answer(sent, methods), headers=headers)

    async def websocket(self, websocket: WebSocket) -> None:
        """Serve a session of JSON-RPC over a WebSocket, with an environment of its own."""
        manager, limit = self._manager, self._manager.limits.send_timeout_s
        connection = Connection(websocket.receive, websocket.send, limit, error_text=error_text)
        await manager.serve(connection, lambda: manager.begin(RpcSession, connection))

    # A client of MCP ----------------------------------------------------------------------------

    async def _initialize(self, headers: dict[str, str], params: dict[str, Any]) -> dict[str, Any]:
        """Make a session and begin an episode, whose first messages are the instructions."""
        manager, first = self._manager, ""

        def read(observation: Any) -> bytes:
            nonlocal first
            first = _instructions(observation)
            return b""

        async def begin(session: SharedSession) -> None:
            await manager.reset(session.runner, ResetRequest(), session=session.id, encode=read)

        await manager.configuration()  # has the name, also of an application without a lifespan
        session = await self._shared.create(begin)
        headers[SESSION_HEADER] = session.key
        asked = params.get("protocolVersion")
        return {
            "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": manager.metadata["name"], "version": version("guerdon")},
            **({"instructions": first} if first else {}),
        }

    async def _delete(self, session: SharedSession | None) -> Response:
        if session is None:
            return _response({"detail": "there is no such session"}, 404)
        await self._shared.close(session)
        return Response(status_code=204)

    # A client of OpenEnv ------------------------------------------------------------------------

    def _methods(self, request: Request, headers: dict[str, str]) -> dict[str, Method]:
        """Return the methods outside of a session of MCP."""
        return {
            "tools/list": partial(self._call_tools, request, "tools/list"),
            "tools/call": partial(self._call_tools, request, "tools/call"),
            "openenv/session/create": self._create,
            "openenv/session/close": self._close,
            "initialize": partial(self._initialize, headers),
            "ping": _ping,
        }

    async def _call_tools(self, request: Request, method: str, params: dict[str, Any]) -> Any:
        if method == "tools/call":
            tool_call(params)  # before an environment is made
        if params.get("session_id"):
            return await self._tools(self._find(params))[method](params)

        async def call(runner: Runner) -> Any:
            await runner.configure()
            return await self._manager.tools(runner).table()[method](params)

        return await self._call_fresh(request, method, call)

    async def _create(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"session_id": (await self._shared.create()).key}

    async def _close(self, params: dict[str, Any]) -> dict[str, Any]:
        session = self._find(params)
        if await self._shared.close(session):
            return {"session_id": session.key, "closed": True}
        return {"session_id": session.key, "closed": False, "closing": True}

    def _find(self, params: dict[str, Any]) -> SharedSession:
        key = params.get("session_id")
        session = self._shared.find(key)
        if session is not None:
            return session
        problem = f"Unknown session_id: {shown(key)}" if key else "`session_id` is required"
        raise RpcError(INVALID_PARAMS, problem)

    def _tools(self, session: SharedSession, *, is_standard: bool = False) -> dict[str, Method]:
        """Return the methods of a session's tools, each of which waits for its turn."""
        tools = self._manager.tools(session.runner, session=session.id, is_standard=is_standard)

        def in_turn(method: Method) -> Method:
            return lambda params: session.call(partial(method, params))

        return {name: in_turn(method) for name, method in tools.table().items()}


class RpcSession(Session):
    """A WebSocket that sends requests of JSON-RPC, and its environment."""

    async def _answer(self, text: str | bytes) -> str:
        return await answer_text(text, self.rpc_methods())


async def _ping(params: dict[str, Any]) -> dict[str, Any]:
    return {}


def _instructions(observation: Any) -> str:
    """Return the texts of an observation that begins an episode."""
    messages = getattr(observation, "messages", ())
    texts = [each.get("content") for each in messages if isinstance(each, Mapping)]
    return "\n\n".join(each for each in texts if isinstance(each, str))


def _response(
    content: Any, status: int = 200, *, headers: Mapping[str, str] | None = None
) -> Response:
    text = json.dumps(content, default=str)
    return Response(text, status, headers, media_type="application/json")
