"""The routes of a server: its stateless HTTP interface, and the WebSockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from guerdon.envs.runner import EnvRunner
from guerdon.envs.server.batches import WebSockets
from guerdon.envs.server.limits import BodyLimits
from guerdon.envs.server.mcp import RpcError
from guerdon.envs.server.mcp_endpoint import McpEndpoint
from guerdon.envs.server.monitoring import log
from guerdon.envs.server.openapi import EnvTypes, openapi_document
from guerdon.envs.server.protocol import (
    ErrorCode,
    ProtocolError,
    ResetRequest,
    StepRequest,
    config_error,
    error_data,
)
from guerdon.envs.server.sessions import SessionManager
from guerdon.envs.server.shared_sessions import SharedSessions
from guerdon.envs.server.tasks import TaskEndpoints
from guerdon.envs.wire import read_json
from guerdon.errors import RewardConfigError
from guerdon.rubrics.failure import describe_failure

METRICS_TYPE = "text/plain; version=1.0.0; charset=utf-8"


class Endpoints:
    """The endpoints of a server.

    Args:
        sessions: The sessions, which the calls share their limits with.
        types: The environment's classes.
        is_production: Whether there are no calls of a fresh environment over HTTP.
    """

    def __init__(
        self, sessions: SessionManager, types: EnvTypes, *, is_production: bool = False
    ) -> None:
        self._sessions = sessions
        self._types = types
        self._is_production = is_production

    def routes(self) -> list[BaseRoute]:
        """Return all routes."""
        limits = self._sessions.limits
        schemas = [model.model_json_schema() for model in self._types]
        schema = dict(zip(self._types._fields, schemas, strict=True))
        openapi = openapi_document(
            self._sessions.name or "environment", self._types, is_production=self._is_production
        )
        shared = SharedSessions(self._sessions)
        mcp = McpEndpoint(self._sessions, shared, self._call_fresh)
        simulation = [
            Route("/state", self.state),
            Route("/reset", self.reset, methods=["POST"]),
            Route("/step", self.step, methods=["POST"]),
        ]
        config_limits = Middleware(
            BodyLimits,
            max_bytes=limits.max_config_bytes,
            timeout_s=limits.handshake_timeout_s,
            metrics=self._sessions.metrics,
        )
        return [
            Route("/health", _constant({"status": "healthy"})),
            Route("/metadata", self.metadata),
            Route("/schema", _constant(schema)),
            Route("/list_environments", self.environments),
            Route("/config", self.config, methods=["GET", "POST"], middleware=[config_limits]),
            Route("/config/audit", self.audit),
            Route("/metrics", self.metrics),
            Route("/openapi.json", _constant(openapi)),
            *([] if self._is_production else simulation),
            Route("/mcp", mcp.http, methods=["POST", "DELETE"]),
            *TaskEndpoints(self._sessions).routes(),
            WebSocketRoute("/ws", WebSockets(self._sessions, shared)),
            WebSocketRoute("/mcp", mcp.websocket),
        ]

    # About the environment ----------------------------------------------------------------------

    async def metadata(self, request: Request) -> Response:
        """Return the environment's metadata."""
        await self._sessions.configuration()
        return _json_response(self._sessions.metadata)

    async def environments(self, request: Request) -> Response:
        """Return the environment's name in a list."""
        await self._sessions.configuration()
        return _json_response([self._sessions.metadata["name"]])

    async def metrics(self, request: Request) -> Response:
        """Return the metrics in Prometheus' format."""
        return Response(self._sessions.metrics.text(), headers={"content-type": METRICS_TYPE})

    # Configuration ------------------------------------------------------------------------------

    async def config(self, request: Request) -> Response:
        """Return the reward configuration, or change it for all sessions.

        The ``ETag`` of the response is for the ``If-Match`` of a change.
        """
        runtime = await self._sessions.configuration()
        if request.method != "POST":
            config = await asyncio.to_thread(runtime.to_dict)  # which waits for a slow rubric
            return _json_response(config, headers=_config_headers(config["version"]))
        change = await _read_json(request)
        client = request.client
        by = f"{client.host}:{client.port}" if client is not None else "an unknown client"
        versions = _accepted_versions(request)
        try:
            answer = await self._sessions.update(runtime, change, version=versions, by=by)
        except RewardConfigError as error:
            refusal = config_error(error)
            version = refusal.details.get("version", runtime.version)
            refusal.headers = _config_headers(version)
            raise refusal from error
        return _json_response(answer, headers=_config_headers(answer["config"]["version"]))

    async def audit(self, request: Request) -> Response:
        """Return the changes of the configuration."""
        return _json_response(list((await self._sessions.configuration()).audit))

    # Calls of an environment --------------------------------------------------------------------

    async def state(self, request: Request) -> Response:
        """Return the state of a fresh environment."""
        return await self._call(request, "state", self._sessions.state)

    async def reset(self, request: Request) -> Response:
        """Reset a fresh environment."""
        body = await _read_json(request)
        data = {} if body is None else body
        arguments = self._sessions.validated(ResetRequest, data, "the body", loc=("body",))
        return await self._call(
            request, "reset", lambda runner: self._sessions.reset(runner, arguments)
        )

    async def step(self, request: Request) -> Response:
        """Take a step in a fresh environment."""
        sessions = self._sessions
        body = await _read_json(request)
        arguments = sessions.validated(StepRequest, body, "the body", loc=("body",))
        loc = ("body", "action")
        action = sessions.validated(sessions.action_type, arguments.action, "the action", loc=loc)

        async def call(runner: EnvRunner) -> bytes:
            await runner.configure()
            timeout_s, extra = arguments.timeout_s, arguments.model_extra
            return await sessions.step(runner, action, timeout_s=timeout_s, extra=extra)

        return await self._call(request, "step", call)

    async def _call(
        self, request: Request, what: str, call: Callable[[EnvRunner], Awaitable[bytes]]
    ) -> Response:
        return _json_text_response(await self._call_fresh(request, what, call))

    async def _call_fresh(
        self, request: Request, what: str, call: Callable[[Any], Awaitable[Any]]
    ) -> Any:
        """Call a fresh environment, as long as the client waits."""
        with self._sessions.slot():
            calling = asyncio.ensure_future(self._call_environment(what, call))
            leaving = asyncio.ensure_future(_disconnected(request))
            try:
                await asyncio.wait({calling, leaving}, return_when=asyncio.FIRST_COMPLETED)
                if not calling.done():
                    raise ClientDisconnect
                return calling.result()
            finally:
                leaving.cancel()
                calling.cancel()
                await asyncio.wait({calling})

    async def _call_environment(self, what: str, call: Callable[[Any], Awaitable[Any]]) -> Any:
        try:
            async with self._sessions.environment() as runner:
                return await call(runner)
        except (ProtocolError, RpcError):
            raise
        except Exception as error:
            raise self._sessions.failure(what, error) from error


# Requests -----------------------------------------------------------------------------------------


async def _read_json(request: Request) -> Any:
    """Return the body; None if it is empty."""
    body = await request.body()
    if not body.strip():
        return None
    try:
        return read_json(body)
    except (ValueError, RecursionError) as error:
        errors = [{"type": "json_invalid", "loc": ["body"], "msg": str(error)}]
        raise ProtocolError(
            ErrorCode.VALIDATION_ERROR, "the body is not JSON", status=422, errors=errors
        ) from None


def _accepted_versions(request: Request) -> list[str] | None:
    """Return the versions in ``If-Match``; None for any version."""
    headers = request.headers.getlist("if-match")
    if not headers or any(header.strip() == "*" for header in headers):
        return None
    # A proxy that compresses makes weak tags of strong ones.
    return [
        tag.strip().removeprefix("W/").strip('"') for header in headers for tag in header.split(",")
    ]


async def _disconnected(request: Request) -> None:
    """Return when the client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


# Responses ----------------------------------------------------------------------------------------


async def error_response(request: Request, error: Exception) -> Response:
    """Return the response for an exception: the handler of all exceptions."""
    if isinstance(error, ProtocolError):
        detail: Any = error.details.get("errors") if error.status == 422 else None
        if detail is None:
            detail = error_data(error)
        return _json_response({"detail": detail}, error.status, error.headers)
    if isinstance(error, HTTPException):  # of the router
        return _json_response({"detail": error.detail}, error.status_code, error.headers)
    if isinstance(error, ClientDisconnect):
        log("caller left", path=request.url.path)
        return Response(status_code=499)  # nothing reads it
    message = describe_failure(error)
    log("request failed", level="error", trace=error, path=request.url.path, error=message)
    detail = {"message": message, "code": ErrorCode.EXECUTION_ERROR}
    # Starlette raises the error again, and the server then closes the connection.
    return _json_response({"detail": detail}, 500, {"connection": "close"})


def _constant(content: Any) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint that always answers with the same JSON."""

    async def answer(request: Request) -> Response:
        return _json_response(content)

    return answer


def _json_response(
    content: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return JSON in ASCII: the text of an exception may contain surrogates."""
    text = json.dumps(content, default=str, allow_nan=False)
    return Response(text, status, headers, media_type="application/json")


def _json_text_response(text: str | bytes) -> Response:
    return Response(text, media_type="application/json")


def _config_headers(version: str) -> dict[str, str]:
    return {"etag": f'"{version}"', "cache-control": "no-cache"}
