"""What is wrong with environments, sandboxes, servers and clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from guerdon.errors.base import GuerdonError

__all__ = [
    "AnswerTimeoutError",
    "ClientError",
    "ConnectionLostError",
    "EnvDefinitionError",
    "EnvError",
    "EnvFailedError",
    "EnvTimeoutError",
    "EpisodeError",
    "InvalidObservationError",
    "LaunchError",
    "RefusedActionError",
    "SandboxError",
    "SandboxUnavailableError",
    "ServerError",
    "UnknownEnvError",
]


class EnvError(GuerdonError):
    """Something is wrong with an environment."""


class EnvDefinitionError(EnvError, TypeError):
    """An environment class lacks what it must have, such as a rubric."""


class EpisodeError(EnvError):
    """A step was asked for where no episode is running: before a reset, or after the end."""


class RefusedActionError(EnvError, ValueError):
    """An action is none, and was refused before the environment saw it: the episode goes on."""


class InvalidObservationError(EnvError, TypeError, ValueError):
    """An environment gave something that is no observation, or that JSON can't hold."""


class EnvFailedError(EnvError):
    """An environment's own code ended where it must not, as by ``sys.exit``.

    Attributes:
        exception: What it raised.
    """

    def __init__(self, message: str, *, exception: BaseException | None = None) -> None:
        super().__init__(message)
        self.exception = exception


class EnvTimeoutError(EnvError, TimeoutError):
    """An environment took longer than it may; it is given up.

    Attributes:
        seconds: The limit.
    """

    def __init__(self, message: str, *, seconds: float = 0.0) -> None:
        super().__init__(message)
        self.seconds = seconds


class UnknownEnvError(EnvError, LookupError):
    """There is no environment of that name."""


class SandboxError(GuerdonError):
    """A sandbox failed: the fault is not that of the code in it, which earns nothing by it.

    Attributes:
        execution: How the run ended, an `Execution`, as far as it is known; None if none began.
    """

    def __init__(self, message: str, *, execution: Any = None) -> None:
        super().__init__(message)
        self.execution = execution


class SandboxUnavailableError(SandboxError):
    """A level of isolation doesn't work on this machine; nothing weaker is taken instead.

    Attributes:
        level: The level that was asked for.
        missing: What is missing, a line each, with what mends it.
        findings: What came of attacks on it, each a `Finding`, where it could be tried.
    """

    def __init__(
        self, message: str, *, level: str = "", missing: Sequence[str] = (), findings: Any = ()
    ) -> None:
        super().__init__(message)
        self.level, self.missing, self.findings = level, tuple(missing), tuple(findings)


class LaunchError(GuerdonError):
    """A server process or a container didn't start.

    Attributes:
        output: The last of what it printed.
    """

    def __init__(self, message: str, *, output: str = "") -> None:
        super().__init__(message)
        self.output = output


class ClientError(GuerdonError):
    """Something went wrong between a client and a server."""


class ServerError(ClientError, RuntimeError):
    """The server said that something went wrong.

    Attributes:
        code: The protocol's code, such as ``"EXECUTION_ERROR"``; over HTTP the status.
        errors: What is wrong with the fields of what was sent, where the server tells.
        details: What else it tells, by name.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        errors: Sequence[object] = (),
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(f"Server error: {message} (code: {code})")
        self.code = code
        self.errors = tuple(errors)
        self.details = dict(details or {})


class ConnectionLostError(ClientError, ConnectionError):
    """There is no connection to the server, or no longer; the session is gone with it."""


class AnswerTimeoutError(ClientError, TimeoutError):
    """The server didn't answer in time.

    Attributes:
        seconds: How long the client waited.
        sent: Whether the question went out: a step that was sent is taken, however late.
    """

    def __init__(self, message: str, *, seconds: float = 0.0, sent: bool = False) -> None:
        super().__init__(message)
        self.seconds = seconds
        self.sent = sent
