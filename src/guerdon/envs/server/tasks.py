"""`TaskEndpoints`: which tasks an environment has, by split. The paths are those of OpenEnv.

The tasks are `Environment.public_tasks`, which is read when the server starts. No route begins an
episode: by OpenEnv's convention a client passes the place of a task to ``reset``, as ``split`` and
``index``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from guerdon._validation import did_you_mean, shown
from guerdon.envs.server.protocol import ErrorCode, ProtocolError
from guerdon.envs.server.sessions import SessionManager
from guerdon.envs.wire import data_json, read_json

# The most tasks of an answer.
MAX_TASKS = 10_000

# The types of splits that OpenEnv knows; one of another name has the type "validation".
_TYPES = ("train", "validation", "test")


class SplitRequest(BaseModel):
    """The body of a request about a split."""

    model_config = ConfigDict(extra="forbid")

    split: str


class TaskRequest(SplitRequest):
    """The body of a request of one task; a negative index counts from the end."""

    index: int


class TaskRangeRequest(SplitRequest):
    """The body of a request of a range of tasks, as in Python's slices."""

    start: int | None = None
    stop: int | None = None


class TaskEndpoints:
    """The endpoints of the tasks.

    Args:
        sessions: The sessions of the server, whose configuration includes the tasks.
    """

    def __init__(self, sessions: SessionManager) -> None:
        self._sessions = sessions

    def routes(self) -> list[Route]:
        """Return the routes."""
        posted = [
            Route(f"/{{environment}}/{path}", self._endpoint(*each), methods=["POST"])
            for path, each in _POSTED.items()
        ]
        return [Route("/{environment}/splits", self.splits), *posted]

    async def splits(self, request: Request) -> Response:
        """Return the splits."""
        splits = await self._splits(request)
        types = {name: name if name in _TYPES else "validation" for name in splits}
        return await _response([{"name": name, "type": types[name]} for name in splits])

    def _endpoint(self, kind: type[SplitRequest], answer: Callable[..., Any]) -> Any:
        async def endpoint(request: Request) -> Response:
            body, tasks = await self._split(request, kind)
            content = await asyncio.to_thread(answer, body, tasks)
            if kind is SplitRequest and "tasks" in content:
                content["env_name"] = self._sessions.metadata["name"]
            return await _response(content)

        return endpoint

    async def _splits(self, request: Request) -> Mapping[str, Sequence[Any]]:
        sessions = self._sessions
        await sessions.configuration()
        name, known = request.path_params["environment"], sessions.metadata["name"]
        if name.lower() != known.lower():
            raise HTTPException(404, f"unknown environment {shown(name)}; this is {shown(known)}")
        if not sessions.tasks:
            raise HTTPException(501, f"{known} has no tasks: it sets no `public_tasks`")
        return sessions.tasks

    async def _split(
        self, request: Request, kind: type[SplitRequest]
    ) -> tuple[SplitRequest, Sequence[Any]]:
        splits = await self._splits(request)
        try:
            content = read_json(await request.body())
        except (ValueError, RecursionError):
            raise ProtocolError(
                ErrorCode.VALIDATION_ERROR, "the body is not JSON", status=422
            ) from None
        body = self._sessions.validated(kind, content, "the body", loc=("body",))
        if body.split not in splits:
            hint = did_you_mean(body.split, splits)
            raise HTTPException(404, f"there is no split {shown(body.split)}; {hint}")
        return body, splits[body.split]


def _one(body: TaskRequest, tasks: Sequence[Any]) -> dict[str, Any]:
    if not -len(tasks) <= body.index < len(tasks):
        problem = f"Invalid task index {body.index}: the split has {len(tasks)} tasks"
        raise HTTPException(400, problem)
    return {"task": tasks[body.index]}


def _slice(body: SplitRequest, tasks: Sequence[Any]) -> dict[str, Any]:
    limits = (body.start, body.stop) if isinstance(body, TaskRangeRequest) else (None, None)
    places = range(len(tasks))[slice(*limits)]
    if len(places) > MAX_TASKS:
        problem = f"{len(places)} tasks are more than an answer has, {MAX_TASKS}; use task_range"
        raise HTTPException(400, problem)
    return {"tasks": [tasks[place] for place in places]}


# The paths below the environment's name, with their body and what computes the answer.
_POSTED: dict[str, tuple[type[SplitRequest], Callable[..., Any]]] = {
    "tasks": (SplitRequest, _slice),
    "num_tasks": (SplitRequest, lambda body, tasks: {"num_tasks": len(tasks)}),
    "task": (TaskRequest, _one),
    "task_range": (TaskRangeRequest, _slice),
}


async def _response(content: Any) -> Response:
    text = await asyncio.to_thread(data_json, content)
    return Response(text, media_type="application/json")
