"""`ServerLimits`: how much a server takes on, and how long it waits."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from guerdon.errors import InvalidArgumentError

__all__ = ["ServerLimits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """How much a server takes on, and how long it waits.

    Example:
        >>> ServerLimits(max_sessions=64, step_timeout_s=5).max_sessions
        64

    Attributes:
        max_sessions: Sessions at the same time, calls of the stateless HTTP face among them; one
            more is told CAPACITY_REACHED.
        max_connections: Connections at the same time, also those that have not asked for anything
            yet; one more is closed.
        max_threads: Environments that run at the same time; the others wait their turn.
        max_message_bytes: The largest message; a larger frame closes its connection with 1009, a
            larger body is answered with 413.
        max_config_bytes: The largest change of the configuration.
        idle_timeout_s: Seconds after which a session that sends nothing is ended with
            SESSION_ERROR.
        step_timeout_s: Seconds that an environment may take for a step, a reset or its making;
            then it is given up, and told as EXECUTION_ERROR.
        send_timeout_s: Seconds after which a client that doesn't read, or doesn't end what it
            has begun to send, is let go.
        close_timeout_s: Seconds that an environment may take to close.
        handshake_timeout_s: Seconds that a connection has to ask for something.
        keepalive_s: Seconds between two pings; a client that doesn't answer one for as long is
            gone.

    Raises:
        InvalidArgumentError: One of them is no positive number.
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
            value = getattr(self, field.name)
            whole = field.name.startswith("max_")
            number = isinstance(value, int) or (isinstance(value, float) and not whole)
            if isinstance(value, bool) or not number or not value > 0 or math.isinf(value):
                kind = "an int" if whole else "a number of seconds"
                raise InvalidArgumentError(f"{field.name} is {value!r}; it takes {kind} over 0")
