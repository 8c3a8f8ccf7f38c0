"""`HttpFace`: the stateless HTTP face; each call has a fresh environment."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from guerdon._validation import field_errors
from guerdon.envs.runner import EnvRunner
from guerdon.envs.server.configuring import change, tell
from guerdon.envs.server.hub import Hub
from guerdon.envs.server.logs import log
from guerdon.envs.server.mcp import answer_text
from guerdon.envs.server.messages import (
    ResetRequest,
    StepRequest,
    observation_json,
    state_json,
)
from guerdon.envs.server.openapi import openapi
from guerdon.errors import EnvTimeoutError, EpisodeError
from guerdon.rubrics.failure import say_failure

__all__ = ["HttpFace", "answer"]

ModelT = TypeVar("ModelT", bound=BaseModel)
Call = Callable[[EnvRunner], Awaitable[bytes]]


class HttpFace:
    """What the server answers over HTTP.

    Args:
        hub: What its sessions share.
        name: What the environment is called; its own name otherwise.
    """

    def __init__(self, hub: Hub, name: str | None, types: tuple[type[BaseModel], ...]) -> None:
        self._hub = hub
        self._name = name
        self._schemas = {
            what: model.model_json_schema()
            for what, model in zip(("action", "observation", "state"), types, strict=True)
        }
        self._openapi = openapi(self._schemas, name or "environment")

    def routes(self) -> list[Route]:
        """Every path that there is."""
        return [
            Route("/health", self.health),
            Route("/metadata", self.metadata),
            Route("/schema", self.schema),
            Route("/list_environments", self.names),
            Route("/config", self.config, methods=["GET", "POST"]),
            Route("/config/audit", self.audit),
            Route("/metrics", self.metrics),
            Route("/openapi.json", self.document),
            Route("/state", self.state),
            Route("/reset", self.reset, methods=["POST"]),
            Route("/step", self.step, methods=["POST"]),
            Route("/mcp", self.mcp, methods=["POST"]),
        ]

    # About the environment ---------------------------------------------------------------------

    async def health(self, request: Request) -> Response:
        """Say that the server is there."""
        return answer({"status": "healthy"})

    async def metadata(self, request: Request) -> Response:
        """Say what the environment is."""
        await self._hub.look()
        about = self._hub.metadata
        return answer({**about, "name": self._name or about["name"]})

    async def names(self, request: Request) -> Response:
        """List the environment's name."""
        await self._hub.look()
        return answer([self._name or self._hub.metadata["name"]])

    async def schema(self, request: Request) -> Response:
        """Say what actions, observations and states look like."""
        return answer(self._schemas)

    async def config(self, request: Request) -> Response:
        """Say what the reward is configured with, or change it for all sessions."""
        if request.method != "POST":
            return await tell(await self._hub.look())
        body = await self._body(request, self._hub.limits.max_config_bytes)
        if isinstance(body, Response):
            return body
        return await change(await self._hub.look(), body, request)

    async def audit(self, request: Request) -> Response:
        """Say who has changed what, from what to what, and when."""
        return answer(list((await self._hub.look()).audit))

    async def metrics(self, request: Request) -> Response:
        """Say what the server has done, in Prometheus' format."""
        kind = "text/plain; version=1.0.0; charset=utf-8"
        return Response(self._hub.metrics.text(), headers={"content-type": kind})

    async def document(self, request: Request) -> Response:
        """Say what this face offers, in OpenAPI's format."""
        return answer(self._openapi)

    # Calls of an environment -------------------------------------------------------------------

    async def state(self, request: Request) -> Response:
        """The state of a fresh environment."""

        async def call(runner: EnvRunner) -> bytes:
            return state_json(await runner.state())

        return await self._call(request, "state", call)

    async def reset(self, request: Request) -> Response:
        """Reset a fresh environment."""
        body = await self._body(request)
        if isinstance(body, Response):
            return body
        asked = _validated(ResetRequest, {} if body is None else body)
        if isinstance(asked, Response):
            return asked

        async def call(runner: EnvRunner) -> bytes:
            self._hub.metrics.count(self._hub.metrics.calls, "reset")
            first = await runner.reset(asked.seed, asked.episode_id, asked.model_extra)
            return observation_json(first)

        return await self._call(request, "reset", call)

    async def step(self, request: Request) -> Response:
        """Take a step in a fresh environment."""
        body = await self._body(request)
        if isinstance(body, Response):
            return body
        asked = _validated(StepRequest, body)
        if isinstance(asked, Response):
            return asked
        action = _validated(self._hub.action_type, asked.action, ("body", "action"))
        if isinstance(action, Response):
            return action

        async def call(runner: EnvRunner) -> bytes:
            await runner.configure()
            start = perf_counter()
            try:
                observation = await runner.step(action, asked.timeout_s, asked.model_extra)
                seconds = perf_counter() - start
                text = observation_json(observation)
            except Exception:
                self._hub.metrics.step(perf_counter() - start, None, {})
                raise
            self._hub.count_step(observation, seconds, None)
            return text

        return await self._call(request, "step", call)

    async def mcp(self, request: Request) -> Response:
        """Answer a JSON-RPC request; always with 200, as the protocol has it."""
        body = await self._read(request)
        if isinstance(body, Response):
            return body
        return Response(answer_text(body), media_type="application/json")

    async def _call(self, request: Request, what: str, call: Call) -> Response:
        """Make an environment, call it, and close it, as long as the caller waits."""
        refused = self._hub.refusal()
        if refused is not None:
            return _problem(503, refused.code, refused.message, **refused.more)
        self._hub.passing += 1
        try:
            called = asyncio.ensure_future(self._called(what, call))
            gone = asyncio.ensure_future(_gone(request))
            try:
                await asyncio.wait({called, gone}, return_when=asyncio.FIRST_COMPLETED)
                if not called.done():
                    log("caller left", path=request.url.path)
                    return Response(status_code=499)  # which nobody reads
                return called.result()
            finally:
                gone.cancel()
                called.cancel()
                await asyncio.wait({called})
        finally:
            self._hub.passing -= 1

    async def _called(self, what: str, call: Call) -> Response:
        hub = self._hub
        runner = hub.runner()
        try:
            await runner.open()
            text = await call(runner)
        except Exception as error:
            said = say_failure(error, what)
            hub.failed(what, said, trace=error)
            return _problem(_status(error), "EXECUTION_ERROR", said)
        finally:
            await asyncio.shield(runner.close(hub.limits.close_timeout_s))
        return Response(text, media_type="application/json")

    async def _body(self, request: Request, most: int | None = None) -> Any:
        """The body as JSON, None where there is none; or the answer to one that isn't JSON."""
        body = await self._read(request, most)
        if isinstance(body, Response):
            return body
        if not body.strip():
            return None
        try:
            return from_json(body, allow_inf_nan=False)
        except (ValueError, RecursionError) as error:
            return _invalid([{"type": "json_invalid", "loc": ["body"], "msg": str(error)}])

    async def _read(self, request: Request, most: int | None = None) -> bytes | Response:
        """The body; or the answer to one that is too large or too slow, which isn't read on."""
        most = most or self._hub.limits.max_message_bytes
        announced = request.headers.get("content-length", "")
        if announced.isdecimal() and int(announced) > most:
            return self._refused(413, "size", f"the body is larger than {most} bytes")
        chunks: list[bytes] = []
        size = 0
        limit = self._hub.limits.handshake_timeout_s
        try:
            async with asyncio.timeout(limit):
                async for chunk in request.stream():
                    size += len(chunk)
                    if size > most:
                        return self._refused(413, "size", f"the body is larger than {most} bytes")
                    chunks.append(chunk)
        except ClientDisconnect:
            return Response(status_code=499)  # which nobody reads
        except TimeoutError:
            return self._refused(408, "slow", f"the body took longer than {limit:g} s")
        return b"".join(chunks)

    def _refused(self, status: int, reason: str, said: str) -> Response:
        self._hub.metrics.count(self._hub.metrics.refused, reason)
        refusal = _problem(status, "VALIDATION_ERROR", said)
        refusal.headers["connection"] = "close"  # what is left of the body is not read
        return refusal


def answer(content: Any, status: int = 200) -> Response:
    """JSON, in ASCII: whatever stands in an exception's text can be sent."""
    text = json.dumps(content, default=str, allow_nan=False)
    return Response(text, status, media_type="application/json")


async def _gone(request: Request) -> None:
    """Wait until the caller has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _validated(
    model: type[ModelT], data: Any, where: tuple[str, ...] = ("body",)
) -> ModelT | Response:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        errors = field_errors(error)
        return _invalid([{**each, "loc": [*where, *each["loc"]]} for each in errors])
    except Exception as error:  # of a validator that the author wrote
        return _problem(500, "EXECUTION_ERROR", say_failure(error, "the action"))


def _invalid(errors: list[dict[str, Any]]) -> Response:
    return answer({"detail": errors}, 422)


def _problem(status: int, code: str, message: str, **more: Any) -> Response:
    return answer({"detail": {"message": message, "code": code, **more}}, status)


def _status(error: Exception) -> int:
    """The status that tells whose fault a failure is."""
    if isinstance(error, EpisodeError):
        return 409
    return 504 if isinstance(error, EnvTimeoutError) else 500
