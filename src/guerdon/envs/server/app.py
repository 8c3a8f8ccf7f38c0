"""`create_app`: an environment as a Starlette application."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse
from starlette.routing import BaseRoute, Mount, Route

from guerdon._pages import WithHeaders, page_routes
from guerdon._validation import check_choice, check_token
from guerdon.config.pipeline import RewardPipeline
from guerdon.config.schema import RewardConfig
from guerdon.envs.configured import TypedFactory, with_pipeline
from guerdon.envs.environment import Environment, narrowed
from guerdon.envs.runner import EnvAdapter
from guerdon.envs.server.access import AccessControl
from guerdon.envs.server.limits import BodyLimits, ServerLimits
from guerdon.envs.server.openapi import EnvTypes
from guerdon.envs.server.protocol import ProtocolError
from guerdon.envs.server.routes import Endpoints, error_response
from guerdon.envs.server.sessions import SessionManager
from guerdon.errors import EnvError, GuerdonError, InvalidArgumentError
from guerdon.rubrics.failure import describe_failure
from guerdon.types.action import Action
from guerdon.types.observation import Observation
from guerdon.types.state import State

__all__ = ["EnvApp", "create_app"]

MODES = ("simulation", "production")
WEB = "/web"
TYPES = ("action_type", "observation_type", "state_type")


class EnvApp(Starlette):
    """An environment as a Starlette application; made by `create_app`.

    Further routes can be added to it, and it can be mounted in another application, whose lifespan
    then has to enter ``app.router.lifespan_context(app)``.

    Example:
        >>> from starlette.applications import Starlette
        >>> from starlette.routing import Mount
        >>> from guerdon import Action, Observation, create_app
        >>> app = create_app(lambda: None, Action, Observation)
        >>> app.limits.max_sessions
        1000
        >>> outer = Starlette(routes=[Mount("/maze", app)])

    Attributes:
        limits: The server's limits.
        sessions: The open sessions.
        on_loopback: Whether the server listens on the loopback; None if that is unknown.
        requires_token: Whether clients must send a token.
    """

    def __init__(
        self,
        sessions: SessionManager,
        routes: list[BaseRoute],
        *,
        token: str | None,
        allowed_hosts: Collection[str],
        web: bool = False,
    ) -> None:
        self.sessions = sessions
        self.limits = limits = sessions.limits
        self.on_loopback: bool | None = None
        self.requires_token = token is not None
        entrance = f"{WEB}/" if web else None
        super().__init__(
            routes=[*routes, *(_web_routes() if web else [])],
            lifespan=lambda app: sessions.running(),
            middleware=[
                Middleware(
                    AccessControl, token=token, allowed_hosts=allowed_hosts, entrance=entrance
                ),
                Middleware(
                    BodyLimits,
                    max_bytes=limits.max_message_bytes,
                    timeout_s=limits.handshake_timeout_s,
                    metrics=sessions.metrics,
                ),
            ],
            exception_handlers=dict.fromkeys(
                (ProtocolError, HTTPException, ClientDisconnect, Exception), error_response
            ),
        )


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
    fail_on_reward_error: bool = False,
    processes: int = 1,
    mode: str = "simulation",
    web: bool = False,
) -> EnvApp:
    """Make an application that serves an environment, over HTTP and WebSocket.

    It speaks OpenEnv's protocol: any client of OpenEnv can connect. Each session has an
    environment of its own.

    Example:
        >>> from guerdon import Action, Environment, Observation, State, create_app
        >>> class Say(Action):
        ...     text: str
        >>> class Said(Observation):
        ...     text: str
        >>> class Echo(Environment[Say, Said, State]):
        ...     '''Repeats a text.'''  # reset, step and state as in `Environment`
        >>> app = create_app(Echo, env_name="echo")  # uvicorn module:app, or guerdon.serve(app)

    Args:
        factory: Makes an environment: a class, or a function without arguments.
        action_type: The class of actions; by default that of the environment's class, for which a
            function has to make one environment. With it, `step` needs no annotation.
        observation_type: The class of observations; by default that of the environment's class.
        env_name: The environment's name; by default that of its metadata.
        state_type: The class of states; by default that of the environment's class.
        reward: The reward of every environment, in place of its own: a pipeline, its
            configuration, a dict like it, or its file.
        limits: The server's limits.
        token: The token that clients must send as ``Authorization: Bearer …``; by default none.
        allowed_hosts: Further host names of the server if it listens on the loopback, and sites
            whose pages may use it.
        fail_on_reward_error: Whether a step whose reward failed is answered with EXECUTION_ERROR
            instead of an observation without a reward, for clients that read ``reward or 0.0``.
            The environment has taken the step.
        processes: How many processes the environments run in; with 1, in this one. Sessions are
            spread over them, and requests, limits, configuration and metrics are those of the
            whole.
        mode: ``production`` serves no ``/reset``, ``/step`` and ``/state``, as OpenEnv's mode of
            that name; sessions and tools are as in ``simulation``.
        web: Whether ``/web`` is a page on which a person can play the environment. With a token,
            its address is ``/web/?token=…``.

    Raises:
        InvalidArgumentError: An argument is invalid.
        EnvDefinitionError: The factory made something else than an environment, or one without a
            rubric, or its class declares other types. For a class the first two are raised when the
            server starts, for a function whose types are passed all of them.
        EnvError: The factory raised.
    """
    if not callable(factory):
        raise InvalidArgumentError(
            f"`factory` must be an Environment class or a function, got {factory!r:.60}"
        )
    check_choice("mode", mode, MODES)
    pipeline = RewardPipeline.of(reward) if reward is not None else None
    own = _environment_class(factory, pipeline, may_make=action_type is None)
    passed: dict[str, Any] = {}
    given = (action_type, observation_type, state_type)
    for name, each, base in zip(TYPES, given, (Action, Observation, State), strict=True):
        if each is None:
            continue
        if not (isinstance(each, type) and issubclass(each, base)):
            raise InvalidArgumentError(
                f"`{name}` must be a subclass of {base.__name__}, got {each!r:.60}"
            )
        passed[name] = narrowed(own, name, each)
    types = EnvTypes(*(passed.get(name) or getattr(own, name) for name in TYPES))
    sessions = SessionManager(
        TypedFactory(factory, passed) if passed else factory,
        types.action,
        limits or ServerLimits(),
        pipeline=pipeline,
        fail_on_reward_error=fail_on_reward_error,
        processes=processes,
        name=env_name,
    )
    routes = Endpoints(sessions, types, is_production=mode == "production").routes()
    check_token(token)
    return EnvApp(sessions, routes, token=token, allowed_hosts=allowed_hosts, web=web)


def _web_routes() -> list[BaseRoute]:
    """Return the routes of the page; its addresses are relative, as the server may be mounted."""

    def redirect(request: Request) -> RedirectResponse:
        return RedirectResponse(f".{WEB}/")

    page = Mount(WEB, routes=page_routes("play.js"), middleware=[Middleware(WithHeaders)])
    return [Route(WEB, redirect), page]


def _environment_class(
    factory: Any, pipeline: RewardPipeline | None, *, may_make: bool
) -> type[Environment[Any, Any, Any]]:
    """Return the class of the environments; a function has to make one for that."""
    if isinstance(factory, type) and issubclass(factory, Environment):
        return factory
    if not may_make:
        return Environment
    try:
        make = factory if pipeline is None else with_pipeline(factory, pipeline)
        adapter = EnvAdapter(make())
        adapter.close()
    except GuerdonError:
        raise
    except (Exception, SystemExit) as error:
        message = describe_failure(error, "the environment can't be made")
        raise EnvError(message, exception=error) from error
    return type(adapter.environment)
