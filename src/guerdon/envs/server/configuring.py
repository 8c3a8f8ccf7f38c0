"""The configuration of the reward over the wire: telling it, changing it, refusing a change."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from guerdon.config.live.live import LiveReward
from guerdon.envs.server.messages import ErrorCode, Problem
from guerdon.errors import ConfigConflictError, RewardConfigError

__all__ = ["change", "refusal", "tell"]


async def tell(live: LiveReward) -> Response:
    """What the reward is configured with; its ``ETag`` is for the ``If-Match`` of a change."""
    told = await asyncio.to_thread(live.told)  # which waits for a rubric that is slow to be changed
    return _answer(told, told["version"])


async def change(live: LiveReward, sent: Any, request: Request) -> Response:
    """Change it for all sessions, from their next resets on.

    Args:
        live: What is changed.
        sent: What to change.
        request: Whose header ``If-Match`` may say the version that the change was made to.
    """
    client = request.client
    who = f"{client.host}:{client.port}" if client is not None else "somebody"
    try:
        told = await asyncio.to_thread(live.update, sent, version=_seen(request), by=who)
    except ConfigConflictError as error:
        said = {"message": str(error), "code": "CONFLICT", "version": error.present}
        return _answer({"detail": said}, error.present, 412)
    except RewardConfigError as error:
        return _answer({"detail": _errors(error)}, live.version, 422)
    return _answer(told, told["config"]["version"])


def refusal(error: RewardConfigError) -> Problem:
    """The same refusal for a session."""
    if isinstance(error, ConfigConflictError):
        return Problem(ErrorCode.CONFLICT, str(error), version=error.present)
    return Problem(ErrorCode.VALIDATION_ERROR, str(error), errors=_errors(error))


def _seen(request: Request) -> list[str] | None:
    """The versions of which the caller says to have seen one; None where any will do."""
    headers = request.headers.getlist("if-match")
    if not headers or any(header.strip() == "*" for header in headers):
        return None
    # A proxy that compresses makes weak tags of strong ones.
    return [
        each.strip().removeprefix("W/").strip('"')
        for header in headers
        for each in header.split(",")
    ]


def _errors(error: RewardConfigError) -> list[dict[str, Any]]:
    errors = []
    for problem in error.problems:
        where, colon, said = problem.partition(": ")
        loc = ["body", where] if colon else ["body"]
        errors.append({"type": "config", "loc": loc, "msg": said if colon else problem})
    return errors


def _answer(content: Any, version: str, status: int = 200) -> Response:
    text = json.dumps(content, default=str, allow_nan=False)
    headers = {"etag": f'"{version}"', "cache-control": "no-cache"}
    return Response(text, status, headers=headers, media_type="application/json")
