"""What is wrong with rewards that are loaded, and with recorded rollouts and their credit."""

from __future__ import annotations

from collections.abc import Sequence

from guerdon.errors.base import GuerdonError

__all__ = [
    "AlignmentError",
    "CreditError",
    "OutputError",
    "PolicyError",
    "ResumeError",
    "RewardFunctionError",
    "RolloutError",
    "SpecError",
    "WorkerError",
]


class SpecError(GuerdonError):
    """A reward can't be loaded from where it was said to be.

    Attributes:
        spec: The text that named it, such as ``"reward.py:solved"``.
        traceback: The traceback of the user's own file, where its code raised.
    """

    def __init__(self, message: str, *, spec: str = "", traceback: str | None = None) -> None:
        super().__init__(message)
        self.spec, self.traceback = spec, traceback


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


class RewardFunctionError(GuerdonError, TypeError):
    """A function can't be a reward function, or gave what is no result."""


class PolicyError(GuerdonError):
    """A policy has no action to give: its script ended, or its endpoint gave none."""


class AlignmentError(GuerdonError, ValueError):
    """Results don't fit the recorded steps, and the aligner was told to be strict.

    Attributes:
        problems: What didn't fit, line by line.
    """

    def __init__(self, message: str, *, problems: Sequence[object] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class CreditError(GuerdonError, ValueError):
    """No credit can be assigned on a batch; nothing of it was changed.

    Attributes:
        rows: The numbers of the rows that are wrong, from 0; empty where it is none in particular.
    """

    def __init__(self, message: str, *, rows: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.rows = tuple(rows)


class OutputError(GuerdonError, OSError):
    """Results can't be written; what was written before is kept."""


class WorkerError(GuerdonError):
    """A worker process died; what was finished before is kept."""
