"""`ServerLimits`, and the middleware that bounds the bodies of requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, fields

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from guerdon._validation import check_integer, check_seconds
from guerdon.envs.server.monitoring import Metrics
from guerdon.envs.server.protocol import ErrorCode, ProtocolError

__all__ = ["ServerLimits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """How much a server accepts, and how long it waits.

    Example:
        >>> ServerLimits(max_sessions=64, step_timeout_s=5).max_sessions
        64

    Attributes:
        max_sessions: Concurrent sessions, calls over HTTP among them; another one is refused with
            CAPACITY_REACHED.
        max_connections: Concurrent connections, including those that have not requested anything
            yet; another one is closed.
        max_threads: Environments that run at the same time; others wait.
        max_message_bytes: The largest message. A larger frame closes its connection with 1009, a
            larger body is refused with 413.
        max_config_bytes: The largest change of the configuration.
        idle_timeout_s: Seconds after which a session that sends nothing ends with SESSION_ERROR.
        step_timeout_s: Seconds that an environment may take for a step, a reset or its creation
            before it is abandoned; the client gets EXECUTION_ERROR.
        send_timeout_s: Seconds after which a client that doesn't read, or doesn't complete what it
            sends, is disconnected.
        close_timeout_s: Seconds that an environment may take to close.
        handshake_timeout_s: Seconds that a connection may take to send a request.
        keepalive_s: Seconds between two pings, and for the answer to one. A client may send 4096
            fragments, pings and pongs of less than 1 kB between two of them.

    Raises:
        InvalidArgumentError: One of them is not a number above 0.
    """

    max_sessions: int = 1000
    max_connections: int = 4000
    max_threads: int = 64
    max_message_bytes: int = 16 * 2**20
    max_config_bytes: int = 2**20
    idle_timeout_s: float = 3600.0
    step_timeout_s: float = 300.0
    send_timeout_s: float = 30.0
    close_timeout_s: float = 10.0
    handshake_timeout_s: float = 10.0
    keepalive_s: float = 20.0

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name.startswith("max_"):
                check_integer(field.name, getattr(self, field.name), low=1)
            else:
                check_seconds(field.name, getattr(self, field.name))


class BodyLimits:
    """Middleware that rejects request bodies that are too large or too slow.

    Such a body is not read any further: `ProtocolError` is raised where the application reads it.

    Args:
        app: The application.
        max_bytes: The largest body.
        timeout_s: Seconds that a body may take.
        metrics: Counts the rejected bodies.
    """

    def __init__(self, app: ASGIApp, *, max_bytes: int, timeout_s: float, metrics: Metrics) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._metrics = metrics

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Call the application, for an HTTP request with a bounded `receive`."""
        if scope["type"] == "http":
            receive = self._bounded(scope, receive)
        return self._app(scope, receive, send)

    def _bounded(self, scope: Scope, receive: Receive) -> Receive:
        announced = Headers(scope=scope).get("content-length", "")
        size = int(announced) if announced.isdecimal() else 0
        received = 0
        complete = False
        deadline: float | None = None

        async def bounded_receive() -> Message:
            nonlocal received, complete, deadline
            if complete:
                return await receive()  # waits until the client leaves
            if size <= self._max_bytes:  # else nothing is read
                deadline = deadline or asyncio.get_running_loop().time() + self._timeout_s
                try:
                    async with asyncio.timeout_at(deadline):
                        message = await receive()
                except TimeoutError:
                    problem = f"the body took longer than {self._timeout_s:g} s"
                    raise self._rejected(408, "slow", problem) from None
                received += len(message.get("body", b""))
                complete = not message.get("more_body", False)
            if max(size, received) > self._max_bytes:
                problem = f"the body is larger than {self._max_bytes} bytes"
                raise self._rejected(413, "size", problem)
            return message

        return bounded_receive

    def _rejected(self, status: int, reason: str, message: str) -> ProtocolError:
        self._metrics.refused.labels(reason).inc()
        headers = {"connection": "close"}  # the rest of the body is not read
        return ProtocolError(ErrorCode.VALIDATION_ERROR, message, status=status, headers=headers)
