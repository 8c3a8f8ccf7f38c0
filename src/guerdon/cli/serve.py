"""``guerdon serve``: serve an environment."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from enum import StrEnum
from typing import Annotated
from urllib.parse import quote

import typer

from guerdon.cli import options


class LogFormat(StrEnum):
    """The format of log lines."""

    text = "text"
    json = "json"


def serve(
    target: options.Environment,
    reward: options.RewardFile = None,
    services: options.Services = None,
    host: options.Host = "127.0.0.1",
    port: options.Port = 8000,
    token: options.Token = None,
    name: Annotated[str | None, typer.Option(help="The name of the environment.")] = None,
    max_sessions: Annotated[int, typer.Option(min=1, help="Concurrent sessions.")] = 1000,
    max_threads: Annotated[
        int, typer.Option(min=1, help="Environments that run at the same time.")
    ] = 64,
    processes: Annotated[
        int, typer.Option(min=1, help="Processes in which environments run; 1 is the server's own.")
    ] = 1,
    step_timeout: Annotated[
        float, typer.Option(metavar="S", help="Seconds for one step or reset.")
    ] = 300.0,
    idle_timeout: Annotated[
        float, typer.Option(metavar="S", help="Seconds after which an idle session ends.")
    ] = 3600.0,
    max_message_mb: Annotated[
        float, typer.Option(metavar="MB", help="The largest message.")
    ] = 16.0,
    grace: Annotated[
        float, typer.Option(metavar="S", help="Seconds for running steps on shutdown.")
    ] = 30.0,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Another host name of the server. Repeatable."),
    ] = None,
    fail_on_reward_error: Annotated[
        bool, typer.Option("--fail-on-reward-error", help="A failed reward fails the step.")
    ] = False,
    production: Annotated[
        bool, typer.Option("--production", help="No /reset, /step and /state: sessions only.")
    ] = False,
    web: Annotated[
        bool, typer.Option("--web", help="A page on which to play the environment by hand.")
    ] = False,
    log_format: Annotated[
        LogFormat, typer.Option("--log", help="Lines of text, or of JSON.")
    ] = LogFormat.text,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also log each session.")
    ] = False,
    with_parent: Annotated[bool, typer.Option("--with-parent", hidden=True)] = False,
) -> None:
    """Serve an environment over HTTP and WebSocket, to any client of OpenEnv's protocol.

    Each session has an environment of its own. SIGTERM or ctrl-C lets running steps finish, and
    stops. The routes: /ws for sessions; /mcp for tools; /health, /metadata, /schema, /config,
    /config/audit, /metrics, /openapi.json; with --web, a page at /web to play the environment by
    hand; and, unless --production, /reset, /step and /state, where each call has a new environment.
    """  # fmt: skip
    from guerdon._validation import check_number, check_seconds
    from guerdon.config.pipeline import RewardPipeline, open_services
    from guerdon.envs import ServerLimits, create_app
    from guerdon.envs import serve as serve_app
    from guerdon.envs.configured import ServicesFactory
    from guerdon.envs.registry import find_environment

    factory = find_environment(target)
    limits = ServerLimits(
        max_sessions=max_sessions,
        max_threads=max_threads,
        max_connections=max(4000, 2 * max_sessions),
        step_timeout_s=step_timeout,
        idle_timeout_s=idle_timeout,
        max_message_bytes=int(
            check_number("--max-message-mb", max_message_mb, low=0, low_open=True) * 2**20
        ),
    )
    check_seconds("--grace", grace)
    options.check_token(token)
    if token is not None:  # what environments start doesn't inherit it
        os.environ.pop("GUERDON_TOKEN", None)
        sys.argv[1:] = [each for each in sys.argv[1:] if token not in each]
    _log(log_format, verbose)
    with open_services(services) as mcp:
        if mcp is not None and reward is None:  # else the server checks those of the reward
            mcp.check()
        app = create_app(
            factory if mcp is None else ServicesFactory(factory, mcp),
            env_name=name,
            reward=reward if reward is None else RewardPipeline.of(reward, mcp=mcp),
            limits=limits,
            token=token,
            allowed_hosts=allow_host or (),
            fail_on_reward_error=fail_on_reward_error,
            processes=processes,
            mode="production" if production else "simulation",
            web=web,
        )

        def ready(url: str) -> None:
            print(f"serving {target} at {url}", flush=True)
            if web:
                query = "" if token is None else f"?token={quote(token, safe='')}"
                print(f"play it by hand at {url}/web/{query}", flush=True)

        if with_parent:
            threading.Thread(target=_follow_parent, daemon=True).start()
        serve_app(
            app,
            host=host,
            port=port,
            grace_s=grace,
            ready=ready,
        )


def _log(log_format: LogFormat, verbose: bool) -> None:
    from guerdon.envs.server.monitoring import JsonFormatter, TextFormatter

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format is LogFormat.json else TextFormatter())
    for name, level in (
        ("guerdon", logging.DEBUG if verbose else logging.INFO),
        ("uvicorn.error", logging.WARNING),
    ):
        logger = logging.getLogger(name)
        logger.setLevel(level)
        logger.addHandler(handler)


def _follow_parent() -> None:
    """End with the parent, which has the other end of standard input."""
    try:
        while sys.stdin is not None and os.read(sys.stdin.fileno(), 1024):
            pass
    except OSError:
        pass  # it is closed: there is no parent
    os.kill(os.getpid(), signal.SIGTERM)
