"""Every exception that guerdon raises, in one place.

::

    GuerdonError
    ├── InvalidArgumentError (ValueError)      an argument that can't be meant
    ├── MissingInputError (LookupError)        an action or observation lacks what a rubric reads
    ├── RubricError                            something about a tree of rubrics
    │   ├── AbstractRubricError (TypeError)    a rubric without forward
    │   ├── NotInitializedError                super().__init__() was forgotten
    │   ├── InvalidChildError (TypeError, ValueError)   not a rubric, or a name that can't be one
    │   ├── CycleError (ValueError)            a rubric inside itself
    │   ├── RubricPathError (KeyError)         no rubric at that path
    │   ├── RubricIndexError (IndexError)      no rubric at that place of a RubricList
    │   ├── NoAggregationError (NotImplementedError)    RubricList and RubricDict can't be called
    │   ├── InvalidScoreError (TypeError, ValueError)   a score that is no finite float
    │   ├── AsyncRubricError (TypeError)       async where only sync can work
    │   ├── GuardTimeoutError (TimeoutError)   a guarded rubric took too long
    │   ├── TrajectoryError                    an episode that can't be recorded or credited
    │   └── StateError (ValueError)            a state_dict that doesn't fit
    ├── SpecError                              a reward that can't be loaded
    ├── RolloutError                           a recorded rollout that can't be read
    │   └── ResumeError                        a half-written result that isn't this run's
    ├── OutputError (OSError)                  results that can't be written
    └── WorkerError                            a worker process that died

Beside these, what an author's own code raises is raised as it is, with the path of the rubric
added as a note.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "AbstractRubricError",
    "AsyncRubricError",
    "CycleError",
    "GuardTimeoutError",
    "GuerdonError",
    "InvalidArgumentError",
    "InvalidChildError",
    "InvalidScoreError",
    "MissingInputError",
    "NoAggregationError",
    "NotInitializedError",
    "OutputError",
    "ResumeError",
    "RolloutError",
    "RubricError",
    "RubricIndexError",
    "RubricPathError",
    "SpecError",
    "StateError",
    "TrajectoryError",
    "WorkerError",
]


class GuerdonError(Exception):
    """The base of every exception of this package."""


class InvalidArgumentError(GuerdonError, ValueError):
    """An argument is outside what is accepted."""


class MissingInputError(GuerdonError, LookupError):
    """An action or an observation lacks what a rubric reads."""


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
        self.missing = tuple(missing)
        self.unexpected = tuple(unexpected)


class SpecError(GuerdonError):
    """A reward can't be loaded from where it was said to be.

    Attributes:
        spec: The text that named it, such as ``"reward.py:solved"``.
        traceback: The traceback of the user's own file, where its code raised.
    """

    def __init__(self, message: str, *, spec: str = "", traceback: str | None = None) -> None:
        super().__init__(message)
        self.spec = spec
        self.traceback = traceback


class RolloutError(GuerdonError):
    """A recorded rollout can't be read.

    Attributes:
        line: Its line in the file, from 1.
        row: The row that holds no rollout; None where it is no JSON.
    """

    def __init__(self, message: str, *, line: int | None = None, row: object = None) -> None:
        super().__init__(message)
        self.line = line
        self.row = row


class ResumeError(RolloutError):
    """The results that a run should go on from were not made by this run."""


class OutputError(GuerdonError, OSError):
    """Results can't be written; what was written before is kept."""


class WorkerError(GuerdonError):
    """A worker process died; what was finished before is kept."""
