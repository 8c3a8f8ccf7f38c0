"""`create_app`: an environment as an ASGI application."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from guerdon._validation import check_token
from guerdon.config.pipeline import RewardPipeline
from guerdon.config.schema import RewardConfig
from guerdon.envs.configured import with_pipeline
from guerdon.envs.environment import Environment
from guerdon.envs.runner import make_adapter
from guerdon.envs.server.connection import Receive, Scope, Send
from guerdon.envs.server.guard import Guard, is_loopback
from guerdon.envs.server.http import HttpFace, answer
from guerdon.envs.server.hub import Hub
from guerdon.envs.server.limits import ServerLimits
from guerdon.envs.server.logs import log
from guerdon.errors import EnvError, GuerdonError, InvalidArgumentError, LaunchError
from guerdon.rubrics.failure import say_failure
from guerdon.types.action import Action
from guerdon.types.observation import Observation
from guerdon.types.state import State

__all__ = ["EnvApp", "create_app"]


class EnvApp:
    """An environment as an ASGI application; made by `create_app`.

    Example:
        >>> from guerdon import Action, Observation, create_app
        >>> create_app(lambda: None, Action, Observation).limits.max_sessions
        1000

    Attributes:
        limits: How much it takes on.
    """

    def __init__(self, hub: Hub, guard: Guard) -> None:
        self._hub = hub
        self._guard = guard
        self.limits = hub.limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, as ASGI has it."""
        await self._guard(scope, receive, send)

    def listens_on(self, host: str) -> None:
        """Say which address the server listens on, where it is known; `serve` does."""
        self._guard.loopback_only = is_loopback(host)

    async def check(self) -> None:
        """Make the environment once.

        Raises:
            GuerdonError: It can't be made, or has no rubric.
        """
        try:
            await self._hub.look()
        except GuerdonError:
            raise
        except Exception as error:
            raise LaunchError(say_failure(error, "the environment can't be made")) from error

    async def drain(self, grace_s: float = 30.0) -> None:
        """Take no more sessions, and end those there are, each after the answer it is at.

        Args:
            grace_s: Seconds that running steps have.
        """
        await self._hub.drain(grace_s)


def create_app(
    factory: Callable[[], Any],
    action_type: type[Action] | None = None,
    observation_type: type[Observation] | None = None,
    *,
    env_name: str | None = None,
    state_type: type[State] | None = None,
    reward: RewardPipeline | RewardConfig | Mapping[str, Any] | str | Path | None = None,
    limits: ServerLimits | None = None,
    token: str | None = None,
    allowed_hosts: Collection[str] = (),
) -> EnvApp:
    """Make an ASGI application that serves an environment, over HTTP and WebSocket.

    It speaks OpenEnv's protocol: any client of OpenEnv can connect. Each session has an
    environment of its own.

    Example:
        >>> from guerdon import Action, Environment, Observation, State, create_app
        >>> class Say(Action):
        ...     text: str
        >>> class Said(Observation):
        ...     text: str
        >>> class Echo(Environment[Say, Said, State]):
        ...     '''Says what it is told.'''  # reset, step and state as in `Environment`
        >>> app = create_app(Echo, env_name="echo")  # uvicorn module:app, or guerdon.serve(app)

    Args:
        factory: Makes an environment: a class, or a function without arguments.
        action_type: The class of actions; by default what the environment's class says, for which
            a function has to make one.
        observation_type: The class of observations; by default what the environment's class says.
        env_name: What the environment is called; by default what its metadata say.
        state_type: The class of states; by default what the environment's class says.
        reward: The reward of every environment, in place of its own: a pipeline, its
            configuration, a dict like that, or its file.
        limits: How much the server takes on.
        token: What clients must send as ``Authorization: Bearer …``; by default nothing.
        allowed_hosts: Names that the server goes by, where it listens on the loopback and is
            reached by another name, and sites whose pages may use it.

    Raises:
        InvalidArgumentError: An argument can't be meant.
        EnvDefinitionError: What a function makes is no environment, or has no rubric. Of a class
            that is said when the server starts, before the first session.
        EnvError: The function raised.
    """
    pipeline = RewardPipeline.of(reward) if reward is not None else None
    own = _environment_class(factory, pipeline, may_make=action_type is None)
    actions: type[Action] = action_type or own.action_type
    observations: type[Observation] = observation_type or own.observation_type
    states: type[State] = state_type or own.state_type
    _check(factory, actions, observations, token)
    hub = Hub(factory, actions, limits or ServerLimits(), pipeline=pipeline)
    face = HttpFace(hub, env_name, (actions, observations, states))

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        hub.start()
        await hub.look()  # what is wrong with the environment is said before anybody connects
        try:
            yield
        finally:
            await hub.drain(grace_s=1.0)
            hub.close()
            if pipeline is not None:
                await pipeline.close_async()

    http = Starlette(
        routes=face.routes(),
        lifespan=lifespan,
        exception_handlers={HTTPException: _refused, Exception: _failed},
    )

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "").removeprefix(scope.get("root_path", ""))
        if scope["type"] == "websocket" and path == "/ws":
            await hub.websocket(scope, receive, send)  # past what each message would pass through
        elif scope["type"] == "websocket" and path == "/mcp":
            await hub.mcp(scope, receive, send)
        else:
            await http(scope, receive, send)

    return EnvApp(hub, Guard(app, token=token, allowed_hosts=allowed_hosts))


def _environment_class(
    factory: Any, pipeline: RewardPipeline | None, *, may_make: bool
) -> type[Environment[Any, Any, Any]]:
    """The class of what a factory makes; of a function, that is seen when it makes one."""
    if isinstance(factory, type) and issubclass(factory, Environment):
        return factory
    if not callable(factory) or not may_make:
        return Environment
    try:
        make = factory if pipeline is None else with_pipeline(factory, pipeline)
        adapter = make_adapter(make())
        adapter.close()
    except GuerdonError:
        raise
    except (Exception, SystemExit) as error:
        raise EnvError(
            say_failure(error, "the environment can't be made"), exception=error
        ) from error
    return type(adapter.environment)


async def _refused(request: Request, error: Exception) -> Response:
    """What isn't there, or not by that method: told as JSON, as everything else."""
    assert isinstance(error, HTTPException)
    refusal = answer({"detail": error.detail}, error.status_code)
    refusal.headers.update(error.headers or {})
    return refusal


async def _failed(request: Request, error: Exception) -> Response:
    said = say_failure(error)
    log("request failed", level="error", trace=error, path=request.url.path, error=said)
    return answer({"detail": {"message": said, "code": "EXECUTION_ERROR"}}, 500)


def _check(factory: Any, actions: Any, observations: Any, token: str | None) -> None:
    if not callable(factory):
        raise InvalidArgumentError(
            f"{factory!r:.60} makes no environment; give an Environment class or a function"
        )
    for given, wanted in ((actions, Action), (observations, Observation)):
        if not (isinstance(given, type) and issubclass(given, wanted)):
            raise InvalidArgumentError(f"{given!r:.60} is no subclass of {wanted.__name__}")
    check_token(token)
