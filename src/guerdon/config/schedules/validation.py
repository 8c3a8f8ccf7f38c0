"""Problems as pydantic's own error, so that their places join those of the model around them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from guerdon.config.documents import Problem

__all__ = ["validation_error"]


def validation_error(kind: str, problems: Iterable[Problem], *, given: Any) -> ValidationError:
    """The error that a validator raises for several problems, each at its own place.

    Example:
        >>> error = validation_error("schedule", [Problem(("step", 1), "it is text")], given={})
        >>> [(each["loc"], each["msg"]) for each in error.errors()]
        [(('step', 1), 'it is text')]

    Args:
        kind: What couldn't be read, for `error_count` and the like.
        problems: What is wrong, at least one.
        given: What was to be read.
    """
    return ValidationError.from_exception_data(
        kind,
        [
            {
                "type": PydanticCustomError("invalid", "{said}", {"said": each.said}),
                "loc": each.place,
                "input": given,
            }
            for each in problems
        ],
    )
