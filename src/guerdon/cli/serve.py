"""``guerdon serve``: serve an environment."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from enum import StrEnum
from typing import Annotated

import typer
from rich.markup import escape

from guerdon.cli.consoles import console
from guerdon.errors import InvalidArgumentError

__all__ = ["serve"]


class LogFormat(StrEnum):
    """How to log."""

    text = "text"
    json = "json"


def serve(
    target: Annotated[
        str,
        typer.Argument(
            metavar="ENV",
            show_default=False,
            help="A folder with an environment.py, [bold]file.py:name[/bold], "
            "[bold]module:name[/bold], or a registered name.",
        ),
    ],
    reward: Annotated[
        str | None,
        typer.Option(
            "--reward",
            "-r",
            metavar="F.yaml",
            envvar="GUERDON_CONFIG",
            show_default=False,
            help="A reward pipeline, in place of the environment's own reward.",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="The address to listen on; the loopback by default.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", "-p", min=0, max=65535, help="0 lets the system choose.")
    ] = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            envvar="GUERDON_TOKEN",
            show_default=False,
            help="What clients must send as bearer token. The variable is safer: a command line "
            "can be seen by others.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", show_default=False, help="What the environment is called."),
    ] = None,
    max_sessions: Annotated[
        int, typer.Option("--max-sessions", min=1, help="Sessions at the same time.")
    ] = 1000,
    max_threads: Annotated[
        int, typer.Option("--max-threads", min=1, help="Environments that run at the same time.")
    ] = 64,
    step_timeout: Annotated[
        float, typer.Option("--step-timeout", metavar="S", help="Seconds for one step or reset.")
    ] = 300.0,
    idle_timeout: Annotated[
        float,
        typer.Option("--idle-timeout", metavar="S", help="Seconds that a session may be silent."),
    ] = 3600.0,
    max_message_mb: Annotated[
        float, typer.Option("--max-message-mb", metavar="MB", help="The largest message.")
    ] = 16.0,
    grace: Annotated[
        float,
        typer.Option("--grace", metavar="S", help="Seconds for running steps when told to stop."),
    ] = 30.0,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host",
            metavar="NAME",
            show_default=False,
            help="A further name that the server goes by. May be given again.",
        ),
    ] = None,
    log_format: Annotated[
        LogFormat, typer.Option("--log", help="Lines for people, or JSON for machines.")
    ] = LogFormat.text,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also log each session.")
    ] = False,
    with_parent: Annotated[bool, typer.Option("--with-parent", hidden=True)] = False,
) -> None:
    """Serve an environment over HTTP and WebSocket, to any client that speaks OpenEnv's protocol.

    Each session has an environment of its own. SIGTERM or ctrl-C lets running steps end, and
    stops. What is at which address: /ws for sessions; /health, /metadata, /schema, /config,
    /config/audit, /metrics, /openapi.json; and /reset, /step, /state, where each call has a fresh
    environment.
    """  # fmt: skip
    from guerdon.envs.amounts import check_amount, check_seconds
    from guerdon.envs.finding import find_environment
    from guerdon.envs.server import ServerLimits, create_app
    from guerdon.envs.server import serve as serve_app
    from guerdon.envs.server.guard import is_loopback

    factory = find_environment(target)
    limits = ServerLimits(
        max_sessions=max_sessions,
        max_threads=max_threads,
        max_connections=max(4000, 2 * max_sessions),
        step_timeout_s=step_timeout,
        idle_timeout_s=idle_timeout,
        max_message_bytes=int(check_amount("--max-message-mb", max_message_mb, "MB") * 2**20),
    )
    check_seconds("--grace", grace)
    if os.environ.get("GUERDON_TOKEN") == "" and token is None:
        raise InvalidArgumentError("GUERDON_TOKEN is set and empty; give a token, or unset it")
    _log(log_format, verbose)
    app = create_app(
        factory,
        env_name=name,
        reward=reward,
        limits=limits,
        token=token,
        allowed_hosts=allow_host or (),
    )
    if token is None and not is_loopback(host):
        _warn(f"whoever reaches {host} can use this server; --token asks for one")
    if with_parent:
        threading.Thread(target=_follow_parent, daemon=True).start()
    serve_app(app, host=host, port=port, grace_s=grace, ready=lambda url: _ready(target, url))


def _ready(target: str, url: str) -> None:
    print(f"serving {target} at {url}", flush=True)


def _warn(said: str) -> None:
    text = f"[bold yellow]warning:[/] {escape(said)}"
    console(stderr=True).print(text, highlight=False, soft_wrap=True)


def _log(log_format: LogFormat, verbose: bool) -> None:
    from guerdon.envs.server.logs import JsonFormatter, TextFormatter

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
    """End when the parent does, which holds the other end of standard input."""
    try:
        while sys.stdin is not None and os.read(sys.stdin.fileno(), 1024):
            pass
    except OSError:
        pass  # it is closed: there is no parent to follow
    os.kill(os.getpid(), signal.SIGTERM)
