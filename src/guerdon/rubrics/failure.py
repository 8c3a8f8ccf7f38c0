"""What a failed evaluation is called, wherever a failure is told as text."""

from __future__ import annotations

from guerdon.errors import RubricError
from guerdon.rubrics.call import path_of

__all__ = ["say_caught", "say_failure"]


def say_failure(error: BaseException, where: str | None = None) -> str:
    """An exception that came out of a rubric, in a line.

    Example:
        >>> say_failure(ValueError("no answer"), "step 2")
        'step 2: ValueError: no answer'

    Args:
        error: The exception; the path of the rubric that raised it is told, where it has one.
        where: What to begin with.
    """
    path = path_of(error)
    parts = (where, f"rubric {path!r}" if path else None, type(error).__name__, _text(error))
    return ": ".join(part for part in parts if part)


def say_caught(caught: dict[str, Exception], where: str = "") -> str:
    """What was raised below and dealt with, in a line.

    Args:
        caught: The exceptions by the dotted name of the rubric.
        where: What to begin with.
    """
    # A failure that passed through several rubrics is told once, where it began.
    deepest = {id(error): (name, error) for name, error in caught.items()}
    return where + "; ".join(
        ": ".join([*([f"rubric {name!r}"] if name else []), type(error).__name__, _text(error)])
        for name, error in deepest.values()
    )


def _text(error: BaseException) -> str:
    """What an error says, without its path."""
    try:
        if isinstance(error, RubricError) and error.args:
            return str(error.args[0])
        return str(error)
    except Exception as unsayable:
        return f"(its text can't be made: {type(unsayable).__name__})"
