"""What is wrong with a configured reward, its services and its trackers."""

from __future__ import annotations

from collections.abc import Sequence

from guerdon.errors.base import GuerdonError

__all__ = [
    "ConfigConflictError",
    "ConfigError",
    "ConfigUpdateError",
    "ConfigVersionError",
    "ServiceError",
    "ServiceTimeoutError",
    "ServiceUnavailableError",
    "TrackerError",
    "VerdictError",
]


class ConfigError(GuerdonError, ValueError):
    """A reward pipeline's configuration can't be meant; nothing of it was taken.

    Attributes:
        problems: What is wrong, each with where: ``file:line: per_turn[2].weight: …``.
    """

    def __init__(self, message: str, *, problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems) or (message,)


class ConfigVersionError(ConfigError):
    """A configuration is of a schema version that isn't known.

    Attributes:
        found: The version that it says.
        known: The version that is read here.
    """

    def __init__(self, message: str, *, found: str = "", known: str = "") -> None:
        super().__init__(message)
        self.found, self.known = found, known


class ConfigUpdateError(ConfigError):
    """A change of the configuration is refused; nothing of it was applied."""


class ConfigConflictError(ConfigError):
    """A change was made to a version that is no longer the present one.

    Attributes:
        sent: The version that the change was made to.
        present: The version that there is.
    """

    def __init__(self, message: str, *, sent: str = "", present: str = "") -> None:
        super().__init__(message)
        self.sent, self.present = sent, present


class ServiceError(GuerdonError):
    """A service gave no answer that can be used.

    Attributes:
        service: Its name, or its address.
    """

    def __init__(self, message: str, *, service: str = "") -> None:
        super().__init__(message)
        self.service = service


class ServiceUnavailableError(ServiceError, ConnectionError):
    """A service isn't there, or no longer, or has no place for one more."""


class ServiceTimeoutError(ServiceError, TimeoutError):
    """A service didn't answer in time."""


class VerdictError(ServiceError, ValueError):
    """A judge answered, but what it said is no verdict.

    Attributes:
        answer: What it said.
    """

    def __init__(self, message: str, *, service: str = "", answer: str = "") -> None:
        super().__init__(message, service=service)
        self.answer = answer


class TrackerError(GuerdonError):
    """An experiment tracker can't be used as it was asked for."""
