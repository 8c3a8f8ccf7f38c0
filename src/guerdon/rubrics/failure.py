"""Scores that aren't valid, and exceptions: the path they carry, and how they read in one line."""

from __future__ import annotations

from typing import Any

from guerdon._logging import shortened
from guerdon._validation import as_score
from guerdon.errors import AsyncRubricError, InvalidScoreError, RubricError


def finite(rubric: Any, value: Any) -> float:
    """Check a score; a bool and other real numbers become floats.

    Args:
        rubric: The rubric that returned it, for the message.
        value: The result of its `forward`.

    Raises:
        InvalidScoreError: It is None, a string, NaN, infinite, or not a number.
        AsyncRubricError: It is an awaitable, of a `forward` that isn't declared async.
    """
    score = as_score(value)
    if score is not None:
        return score
    kind = type(value)
    title = rubric._title()
    name = f"{title}.forward" if title == type(rubric).__name__ else title  # else a function's
    if close_awaitable(value):
        raise AsyncRubricError(
            f"{name} returned an awaitable, but its tree has no async member; "
            "write `async def forward`"
        )
    shown = repr(value) if kind in (float, type(None)) else f"{value!r:.80} ({kind.__name__})"
    raise InvalidScoreError(f"{name} returned {shown}; a score must be a finite float", value=value)


def close_awaitable(value: Any) -> bool:
    """Whether a value is an awaitable; a coroutine is closed, so that it needs no await."""
    if not hasattr(value, "__await__"):
        return False
    if hasattr(value, "close"):
        value.close()
    return True


class _PathNote(str):
    """The note on an exception that names the rubric that raised it."""

    rubric: Any = None
    path: str

    def __reduce__(self) -> tuple[Any, ...]:
        return _PathNote, (str(self),), {"path": self.path}  # without the rubric


def trace(rubric: Any, error: Exception) -> None:
    """Prepend `rubric` to the path that an exception carries while it passes through the tree.

    An author's exception has the path in one note, a `RubricError` also in `rubric_path`.
    """
    notes = error.__dict__.setdefault("__notes__", [])
    old = _note_of(error)
    path = ""
    if old is not None:
        path = old.path
        if old.rubric is not rubric:
            name = rubric._find_traits().paths.get(id(old.rubric))
            # Without a name, the exception was raised before, in another evaluation.
            path = f"{name}.{path}".rstrip(".") if name is not None else ""
    where = f"{path!r} of {type(rubric).__name__}" if path else type(rubric).__name__
    note = _PathNote(f"raised in rubric {where}")
    note.rubric, note.path = rubric, path
    if old is not None:
        notes.remove(old)
    notes.append(note)
    if isinstance(error, RubricError):
        error.rubric_path = path


def _note_of(error: BaseException) -> _PathNote | None:
    notes = getattr(error, "__notes__", ())
    return next((each for each in notes if isinstance(each, _PathNote)), None)


def path_of(error: BaseException) -> str | None:
    """Return the path that `trace` added: ``""`` is the root, None if the error has none."""
    note = _note_of(error)
    return note.path if note is not None else None


def describe_failure(error: BaseException, where: str | None = None) -> str:
    """Describe an exception from a rubric in one line, with the path of the rubric.

    Example:
        >>> describe_failure(ValueError("no answer"), "step 2")
        'step 2: ValueError: no answer'

    Args:
        error: The exception.
        where: What to begin with.
    """
    path = path_of(error)
    parts = (where, f"rubric {path!r}" if path else None, describe_error(error))
    return ": ".join(part for part in parts if part)


def describe_error(error: BaseException, *, with_path: bool = False) -> str:
    """Describe an exception in one line.

    Example:
        >>> describe_error(ValueError("no answer"))
        'ValueError: no answer'

    Args:
        error: The exception.
        with_path: Whether the text of a `RubricError` contains the path of the rubric.
    """
    text = _text(error, with_path)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def describe_handled(caught: dict[str, Exception], where: str = "") -> str:
    """Describe exceptions that were raised in a tree and handled there, in one line.

    Args:
        caught: The exceptions by the dotted name of the rubric.
        where: What to begin with.
    """
    # An exception that passed through several rubrics is described once, where it was raised.
    deepest = {id(error): (name, error) for name, error in caught.items()}
    return where + "; ".join(
        f"rubric {name!r}: {describe_error(error)}" if name else describe_error(error)
        for name, error in deepest.values()
    )


def _text(error: BaseException, with_path: bool) -> str:
    """The message of an error, not too long."""
    try:
        if isinstance(error, RubricError) and error.args and not with_path:
            return shortened(str(error.args[0]))
        return shortened(str(error))
    except Exception as unprintable:
        return f"(its message can't be shown: {type(unprintable).__name__})"
