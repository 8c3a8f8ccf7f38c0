"""`serve`: run an application until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

import uvicorn

from guerdon.envs.server.app import EnvApp
from guerdon.envs.server.logs import log
from guerdon.envs.server.transport import http_protocol, websocket_protocol
from guerdon.errors import LaunchError

__all__ = ["serve"]


def serve(
    app: EnvApp,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    grace_s: float = 30.0,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve an environment until SIGTERM or ctrl-C; then let running steps end, and stop.

    Example:
        >>> from guerdon import create_app, serve
        >>> def main():
        ...     serve(create_app(MyEnvironment), port=0, ready=print)

    Args:
        app: What `create_app` has made.
        host: The address to listen on; by default the loopback alone.
        port: The port; 0 lets the system choose one.
        grace_s: Seconds that running steps have when the server is told to stop.
        ready: Called with the server's URL once it takes connections.

    Raises:
        LaunchError: The address can't be listened on, or making the environment raised.
        EnvDefinitionError: The environment has no rubric.
    """
    with _listening(host, port) as listener:
        _raise_file_limit()
        app.listens_on(listener.getsockname()[0])
        server = _Server(app, grace_s, _url(listener), ready)
        try:
            server.run(sockets=[listener])
        except SystemExit as exit_:
            raise LaunchError("the server didn't start; the log above says why") from exit_
        if not server.started:
            raise LaunchError("the server didn't start; the log above says why")


class _Server(uvicorn.Server):
    """uvicorn's server; it lets sessions end before it closes their connections."""

    def __init__(
        self, app: EnvApp, grace_s: float, url: str, ready: Callable[[str], None] | None
    ) -> None:
        limits = app.limits
        super().__init__(
            uvicorn.Config(
                app,
                http=http_protocol(limits),
                ws=websocket_protocol(limits),
                ws_max_size=limits.max_message_bytes,
                ws_per_message_deflate=False,  # it halves the throughput
                ws_ping_interval=limits.keepalive_s,
                ws_ping_timeout=limits.keepalive_s,
                timeout_graceful_shutdown=round(grace_s) or 1,
                backlog=2048,
                lifespan="on",
                access_log=False,
                log_config=None,
                server_header=False,
                proxy_headers=False,
            )
        )
        self._env_app = app
        self._grace_s = grace_s
        self._url = url
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self._env_app.check()  # what is wrong with the environment is said in a line
        await super().startup(sockets=sockets)
        if self.started:
            log("serving", url=self._url)
            if self._ready is not None:
                self._ready(self._url)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        log("stopping", url=self._url)
        draining = asyncio.ensure_future(self._env_app.drain(self._grace_s))
        while not draining.done() and not self.force_exit:
            await asyncio.wait({draining}, timeout=0.1)
        if self.force_exit:  # a second ctrl-C
            draining.cancel()
            await self._env_app.drain(0.1)
        await super().shutdown(sockets=sockets)
        if self.force_exit:
            await self.lifespan.shutdown()
        self._captured_signals.clear()  # it has ended as it was told to: not by the signal


def _listening(host: str, port: int) -> contextlib.closing[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        said = getattr(error, "strerror", None) or error
        raise LaunchError(f"can't listen on {host}:{port}: {said}") from error
    return contextlib.closing(listener)


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _raise_file_limit() -> None:
    """Let the process hold as many connections as the system allows it."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    if soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
