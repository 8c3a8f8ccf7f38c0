"""What is wrong with a tree of rubrics, or with one of its scores."""

from __future__ import annotations

from collections.abc import Sequence

from guerdon.errors.base import GuerdonError

__all__ = [
    "AbstractRubricError",
    "AsyncRubricError",
    "CycleError",
    "GuardTimeoutError",
    "InvalidChildError",
    "InvalidScoreError",
    "NoAggregationError",
    "NotInitializedError",
    "RubricError",
    "RubricIndexError",
    "RubricPathError",
    "StateError",
    "TrajectoryError",
]


class RubricError(GuerdonError):
    """Something is wrong with a tree of rubrics or with one of its scores.

    Attributes:
        rubric_path: Where in the tree, such as ``"code.syntax"``; ``""`` is the root, None unknown.
    """

    rubric_path: str | None = None

    def __str__(self) -> str:
        where = f"rubric {self.rubric_path!r}: " if self.rubric_path else ""
        return where + (str(self.args[0]) if self.args else "")


class AbstractRubricError(RubricError, TypeError):
    """A rubric class lacks a method that it must write."""


class NotInitializedError(RubricError):
    """A rubric's ``__init__`` forgot ``super().__init__()``."""


class InvalidChildError(RubricError, TypeError, ValueError):
    """What was given as a child is no rubric, or its name can't be a child's."""


class CycleError(RubricError, ValueError):
    """A rubric would become its own descendant."""


class RubricPathError(RubricError, KeyError):
    """There is no rubric at a path.

    Attributes:
        path: The path that was asked for.
    """

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class RubricIndexError(RubricError, IndexError):
    """There is no rubric at that place of a list."""


class NoAggregationError(RubricError, NotImplementedError):
    """A rubric that only holds others was called."""


class InvalidScoreError(RubricError, TypeError, ValueError):
    """A rubric gave something that is no finite float.

    Attributes:
        value: What it gave.
    """

    def __init__(self, message: str, *, value: object = None) -> None:
        super().__init__(message)
        self.value = value


class AsyncRubricError(RubricError, TypeError):
    """Something async stands where only something sync can work."""


class GuardTimeoutError(RubricError, TimeoutError):
    """A guarded rubric took longer than it may.

    Attributes:
        seconds: The limit.
    """

    def __init__(self, message: str, *, seconds: float = 0.0) -> None:
        super().__init__(message)
        self.seconds = seconds


class TrajectoryError(RubricError):
    """An episode can't be recorded, or its credit can't be known."""


class StateError(RubricError, ValueError):
    """A ``state_dict`` doesn't fit the tree; nothing of it was loaded.

    Attributes:
        missing: Keys that the tree has and the state lacks.
        unexpected: Keys that the state has and the tree lacks.
    """

    def __init__(
        self, message: str, *, missing: Sequence[str] = (), unexpected: Sequence[str] = ()
    ) -> None:
        super().__init__(message)
        self.missing, self.unexpected = tuple(missing), tuple(unexpected)
