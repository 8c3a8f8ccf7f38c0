"""The base of every exception, and those that any part may raise."""

from __future__ import annotations

from typing import Any

__all__ = [
    "GuerdonError",
    "InvalidArgumentError",
    "MissingExtraError",
    "MissingInputError",
]


class GuerdonError(Exception):
    """The base of every exception of this package."""

    __module__ = "guerdon.errors"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__.startswith("guerdon.errors."):
            cls.__module__ = "guerdon.errors"  # as tracebacks say it, and as everybody imports it


class InvalidArgumentError(GuerdonError, ValueError):
    """An argument is outside what is accepted."""


class MissingExtraError(GuerdonError, ImportError):
    """A package isn't installed that one of the extras brings.

    Attributes:
        extra: The extra, as in ``pip install 'guerdon[judge]'``.
    """

    def __init__(self, message: str, *, extra: str = "") -> None:
        super().__init__(message)
        self.extra = extra


class MissingInputError(GuerdonError, LookupError):
    """An action or an observation lacks what a rubric reads."""
