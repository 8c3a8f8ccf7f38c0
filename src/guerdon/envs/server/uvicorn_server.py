"""`serve`: runs an application on uvicorn, with limits on connections and slow clients."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import ProtocolError as FrameError
from websockets.frames import Frame, Opcode
from websockets.server import ServerProtocol

from guerdon._http import bound_socket, is_loopback, url_of
from guerdon._logging import step_logger
from guerdon.envs.server.app import EnvApp
from guerdon.envs.server.limits import ServerLimits
from guerdon.envs.server.monitoring import log
from guerdon.errors import GuerdonError, LaunchError
from guerdon.rubrics.failure import describe_failure

__all__ = ["serve"]

# Seconds that a client has to read the rest once its connection is being closed.
CLOSE_S = 5.0
# Fragments, pings and pongs of less than this many bytes that a client may send between two pings
# of the server; and chunks of a request's body.
MAX_SMALL = 4096
SMALL_BYTES = 1024
# The answer to a handshake that websockets can't parse, such as one with a body.
BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


def _is_by_server(record: logging.LogRecord) -> bool:
    """Whether a message is not one that any client can cause, and fill the log with."""
    message = record.getMessage()
    return "UTF-8" not in message and "without completing handshake" not in message


_uvicorn_logger = step_logger("uvicorn.error.guerdon")
_uvicorn_logger.addFilter(_is_by_server)


def serve(
    app: EnvApp,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    grace_s: float = 30.0,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve an environment until SIGTERM or Ctrl-C; then let running steps end, and stop.

    Without a token it logs a warning, unless it listens on the loopback.

    Example:
        >>> from guerdon import create_app, serve
        >>> def main():
        ...     serve(create_app(MyEnvironment), port=0, ready=print)

    Args:
        app: The application, made by `create_app`.
        host: The address to listen on; by default the loopback.
        port: The port; 0 lets the system choose one.
        grace_s: Seconds that running steps have when the server stops.
        ready: Called with the server's URL once it accepts connections.

    Raises:
        LaunchError: The address can't be listened on, or the environment can't be made.
        EnvDefinitionError: The environment has no rubric.
    """
    with bound_socket(host, port) as bound:
        _raise_file_limit()
        app.on_loopback = is_loopback(bound.getsockname()[0])
        if not app.on_loopback and not app.requires_token:
            what = "anyone who can reach this server can use it and change its reward; set a token"
            log(what, level="warning", url=url_of(bound))
        server = _Server(app, grace_s, url=url_of(bound), ready=ready)
        try:
            server.run(sockets=[bound])
        except SystemExit as exit_:
            raise LaunchError("the server didn't start; see the log above") from exit_


class _Server(uvicorn.Server):
    """uvicorn's server; it lets sessions end before it closes their connections."""

    def __init__(
        self, app: EnvApp, grace_s: float, *, url: str, ready: Callable[[str], None] | None
    ) -> None:
        limits = app.limits
        super().__init__(
            uvicorn.Config(
                app,
                http=type("BoundedHTTP", (_BoundedHTTP,), {"limits": limits, "silent": {}}),
                ws=type("BoundedWebSocket", (_BoundedWebSocket,), {"limits": limits}),
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
        self._sessions = app.sessions
        self._grace_s = grace_s
        self._url = url
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await self._sessions.configuration()  # raises here instead of logging a traceback
        except GuerdonError:
            raise
        except Exception as error:
            raise LaunchError(describe_failure(error, "the environment can't be made")) from error
        await super().startup(sockets=sockets)
        if self.started:
            log("serving", url=self._url)
            if self._ready is not None:
                self._ready(self._url)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        log("stopping", url=self._url)
        draining = asyncio.ensure_future(self._sessions.drain(self._grace_s))
        while not draining.done() and not self.force_exit:
            await asyncio.wait({draining}, timeout=0.1)
        if self.force_exit:  # a second Ctrl-C
            draining.cancel()
            await self._sessions.drain(0.1)
        await super().shutdown(sockets=sockets)
        if self.force_exit:
            await self.lifespan.shutdown()
        self._captured_signals.clear()  # it has stopped as requested, not by the signal


class _BoundedChunks(h11.Connection):
    """The protocol of h11, with a limit on small chunks: parsing them blocks the event loop.

    Attributes:
        small: How many there were in this request.
    """

    small = 0

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self.small = 0
        elif isinstance(event, h11.Data) and event.chunk_end and len(event.data) < SMALL_BYTES:
            self.small += 1
            if self.small > MAX_SMALL:
                raise h11.RemoteProtocolError(f"more than {MAX_SMALL} small chunks")
        return event


class _BoundedHTTP(H11Protocol):
    """uvicorn's HTTP protocol, with limits on the number of connections and on silence.

    If there are too many connections, the one that has been silent for the longest is closed, so
    that silent connections don't block others.
    """

    limits: ServerLimits
    silent: dict[_BoundedHTTP, asyncio.TimerHandle]  # connections without a request, by age

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = _BoundedChunks(h11.SERVER)
        self.logger = _uvicorn_logger

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._await_request()
        if len(self.connections) > self.limits.max_connections:
            oldest = next(iter(self.silent))
            oldest._stop_waiting()
            oldest.transport.abort()

    def handle_events(self) -> None:
        before = self.scope
        super().handle_events()
        if self.scope is not before:  # a request has arrived
            self._stop_waiting()

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:  # the answer has begun
            self.transport.abort()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():  # once the response is read, or not read in time
            self.loop.call_later(self.limits.send_timeout_s, self.transport.abort)
        else:
            self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _await_request(self) -> None:
        self._stop_waiting()
        wait = self.limits.handshake_timeout_s
        self.silent[self] = self.loop.call_later(wait, self.transport.abort)

    def _stop_waiting(self) -> None:
        timer = self.silent.pop(self, None)
        if timer is not None:
            timer.cancel()


class _BoundedFrames(ServerProtocol):
    """The protocol of websockets, with a limit on small fragments, pings and pongs.

    Parsing a frame takes microseconds, so that 64 kB of empty ones block the event loop.

    Attributes:
        small: How many there were since the last ping of the server.
    """

    small = 0

    def recv_frame(self, frame: Frame) -> None:
        super().recv_frame(frame)
        is_message = frame.fin and frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)
        if not is_message and len(frame.data) < SMALL_BYTES:
            self.small += 1
            if self.small > MAX_SMALL:
                raise FrameError(f"more than {MAX_SMALL} small fragments, pings and pongs")


class _BoundedWebSocket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol, with limits on frames and on slow clients.

    Neither uvicorn nor websockets has settings for them.
    """

    limits: ServerLimits
    conn: _BoundedFrames

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = _uvicorn_logger
        self.conn = _BoundedFrames(max_size=self.limits.max_message_bytes, logger=self.logger)
        self._message_timer: asyncio.TimerHandle | None = None  # while a message is incomplete

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.handshake_initiated:  # uvicorn waits, but the whole request has been read
            self.transport.write(b"".join(self.conn.data_to_send()) or BAD_REQUEST)
            self.transport.close()
        elif self.conn.current_size is None:
            self._stop_message_timer()
        elif self._message_timer is None:
            self._start_message_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_message_timer()
        super().connection_lost(exc)

    def _start_message_timer(self) -> None:
        wait = self.limits.send_timeout_s
        self._message_timer = self.loop.call_later(wait, self._message_is_late)

    def _stop_message_timer(self) -> None:
        if self._message_timer is not None:
            self._message_timer.cancel()
            self._message_timer = None

    def handle_parser_exception(self) -> None:
        if self.conn.close_sent is None:  # an invalid frame before the handshake was answered
            self.transport.abort()
        else:
            super().handle_parser_exception()

    def _message_is_late(self) -> None:
        if self.read_paused:  # the message waits for the server
            self._start_message_timer()
        elif not (self.close_sent or self.transport.is_closing()):
            self.conn.fail(1008, f"a message took longer than {self.limits.send_timeout_s:g} s")
            self.handle_parser_exception()
            self._abort_soon()

    def send_keepalive_ping(self) -> None:
        self.conn.small = 0
        super().send_keepalive_ping()

    async def run_asgi(self) -> None:
        await super().run_asgi()
        self._abort_soon()

    def send_receive_event_to_app(self) -> None:
        if self.read_paused or not self.queue.empty() or len(self.frames[0]) >= SMALL_BYTES:
            super().send_receive_event_to_app()
            return
        # Not for a single small message: pausing the reading and resuming it are system calls.
        self.read_paused = True
        super().send_receive_event_to_app()
        self.read_paused = False

    async def receive(self) -> Any:
        if not self.queue.empty():  # other connections run between its messages
            await asyncio.sleep(0)
        return await super().receive()

    async def send(self, message: Any) -> None:
        await super().send(message)
        await self.writable.wait()  # uvicorn waits only before the next message

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self._abort_soon()

    def _abort_soon(self) -> None:
        """Abort the connection even if the client doesn't read what was sent."""
        self.loop.call_later(min(CLOSE_S, self.limits.send_timeout_s), self.transport.abort)


def _raise_file_limit() -> None:
    """Allow as many open connections as the system permits."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    if soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
