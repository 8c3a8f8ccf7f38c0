"""`TaskEndpoints`: which tasks an environment has, by split. The paths are those of OpenEnv.

The tasks are `Environment.public_tasks`, which is read when the server starts. No route begins an
episode: by OpenEnv's convention a client passes the place of a task to ``reset``, as ``split`` and
``index``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from guerdon._validation import did_you_mean, shown
from guerdon.envs.server.protocol import ErrorCode, ProtocolError
from guerdon.envs.server.sessions import SessionManager
from guerdon.envs.wire import data_json, read_json

BodyT = TypeVar("BodyT", bound="SplitRequest")

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
        posted: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "tasks": self.tasks,
            "num_tasks": self.num_tasks,
            "task": self.task,
            "task_range": self.task_range,
        }
        return [
            Route("/{environment}/splits", self.splits),
            *(Route(f"/{{environment}}/{path}", posted[path], methods=["POST"]) for path in posted),
        ]

    async def splits(self, request: Request) -> Response:
        """Return the splits."""
        splits = await self._splits(request)
        types = {name: name if name in _TYPES else "validation" for name in splits}
        return await _answer([{"name": name, "type": types[name]} for name in splits])

    async def tasks(self, request: Request) -> Response:
        """Return all tasks of a split."""
        _, tasks = await self._split(request, SplitRequest)
        name = self._sessions.metadata["name"]
        return await _answer({"tasks": _slice(tasks, slice(None)), "env_name": name})

    async def num_tasks(self, request: Request) -> Response:
        """Return the number of tasks of a split."""
        _, tasks = await self._split(request, SplitRequest)
        return await _answer({"num_tasks": len(tasks)})

    async def task(self, request: Request) -> Response:
        """Return one task."""
        body, tasks = await self._split(request, TaskRequest)
        if not -len(tasks) <= body.index < len(tasks):
            raise HTTPException(
                400, f"Invalid task index {body.index}: the split has {len(tasks)} tasks"
            )
        return await _answer({"task": tasks[body.index]})

    async def task_range(self, request: Request) -> Response:
        """Return the tasks of a range."""
        body, tasks = await self._split(request, TaskRangeRequest)
        return await _answer({"tasks": _slice(tasks, slice(body.start, body.stop))})

    async def _splits(self, request: Request) -> Mapping[str, Sequence[Any]]:
        sessions = self._sessions
        await sessions.configuration()
        name, known = request.path_params["environment"], sessions.metadata["name"]
        if name.lower() != known.lower():
            raise HTTPException(404, f"unknown environment {shown(name)}; this is {shown(known)}")
        if not sessions.tasks:
            raise HTTPException(501, f"{known} has no tasks: it sets no `public_tasks`")
        return sessions.tasks

    async def _split(self, request: Request, kind: type[BodyT]) -> tuple[BodyT, Sequence[Any]]:
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


def _slice(tasks: Sequence[Any], part: slice) -> list[Any]:
    places = range(len(tasks))[part]
    if len(places) > MAX_TASKS:
        raise HTTPException(
            400, f"{len(places)} tasks are more than an answer has, {MAX_TASKS}; use task_range"
        )
    return [tasks[place] for place in places]


async def _answer(content: Any) -> Response:
    text = await asyncio.to_thread(data_json, content)
    return Response(text, media_type="application/json")
