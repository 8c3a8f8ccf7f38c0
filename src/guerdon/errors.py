"""The exception hierarchy.

::

    GuerdonError
    ├── InvalidArgumentError (ValueError)     an argument outside what is accepted
    │   └── TestsError                        tests that don't test the program
    ├── MissingExtraError (ImportError)       an optional package that isn't installed
    ├── MissingInputError (LookupError)       an action or observation lacks what a rubric reads
    ├── PatternTimeoutError (TimeoutError)    a regular expression took too long on a text
    ├── LoadError                             a reward or environment that can't be loaded by name
    ├── RubricError                           an invalid tree of rubrics or an invalid score
    │   ├── RubricDefinitionError (TypeError, ValueError)   an invalid class, child or cycle
    │   ├── RubricPathError (KeyError, IndexError)          no rubric at that path or index
    │   ├── NoAggregationError (NotImplementedError)        a RubricList or RubricDict was called
    │   ├── InvalidScoreError (TypeError, ValueError)       a score that isn't a finite float
    │   ├── AsyncRubricError (TypeError)      an async rubric where only a sync one works
    │   ├── GuardTimeoutError (TimeoutError)  a guarded rubric exceeded its timeout
    │   ├── TrajectoryError                   an episode that can't be recorded or credited
    │   └── StateError (ValueError)           a state_dict that doesn't match the tree
    ├── RewardFunctionError (TypeError)       an invalid reward function or an invalid result of one
    ├── RewardConfigError (ValueError)        an invalid reward configuration or update
    │   └── ConfigConflictError               an update based on an outdated version
    ├── RolloutError                          a recorded rollout or result file that can't be read
    ├── ScoringError                          a scoring run that can't continue
    ├── AlignmentError (ValueError)           results that don't match the recorded steps
    ├── CreditError (ValueError)              a batch that credit can't be assigned on
    ├── PolicyError                           a policy that has no action to return
    ├── EnvError                              an environment that failed
    │   ├── EnvDefinitionError (TypeError)    an invalid environment class
    │   ├── EpisodeError                      a step outside a running episode
    │   ├── InvalidActionError (ValueError)   a rejected action; the episode continues
    │   ├── InvalidObservationError (TypeError, ValueError)   an invalid observation
    │   ├── EnvTimeoutError (TimeoutError)    an environment exceeded its timeout
    │   └── WorkerError                       the process or actor of an environment ended
    ├── SandboxError                          the sandbox failed, not the code that runs in it
    │   └── SandboxUnavailableError           an isolation level that doesn't work on this machine
    ├── ServiceError                          a service (MCP, model) without a usable answer
    │   ├── ServiceUnavailableError (ConnectionError)   no connection to the service
    │   ├── ServiceTimeoutError (TimeoutError)          the service didn't answer in time
    │   └── JudgeError (ValueError)           a judge's answer that isn't a verdict
    ├── TrackerError                          an experiment tracker that can't be used
    ├── LaunchError                           a server process or container that didn't start
    └── ClientError                           a request to a server that failed
        ├── ServerError (RuntimeError)        the server reported an error
        ├── ConnectionLostError (ConnectionError)   no connection to the server
        └── ClientTimeoutError (TimeoutError)       the server didn't answer in time

Exceptions raised by an author's own code are re-raised unchanged, with the path of the rubric
added as a note.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class GuerdonError(Exception):
    """The base class of every exception of this package."""


class InvalidArgumentError(GuerdonError, ValueError):
    """An argument is outside what is accepted."""


class TestsError(InvalidArgumentError):
    """The tests of a program don't test it: one would pass, or fail, for every program."""

    __test__ = False  # pytest collects classes whose names begin with Test


class MissingExtraError(GuerdonError, ImportError):
    """A package that an extra installs is missing.

    Attributes:
        extra: The extra, as in ``pip install 'guerdon[judge]'``.
    """

    def __init__(self, message: str, *, extra: str = "") -> None:
        super().__init__(message)
        self.extra = extra


class MissingInputError(GuerdonError, LookupError):
    """An action or an observation lacks what a rubric reads."""


class PatternTimeoutError(GuerdonError, TimeoutError):
    """A regular expression took too long on a text.

    Attributes:
        seconds: The limit, in seconds of CPU time.
    """

    def __init__(self, message: str, *, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class LoadError(GuerdonError):
    """A reward or an environment can't be loaded by the given name.

    Attributes:
        spec: The name, such as ``"reward.py:solved"``.
        traceback: The traceback of the user's own file, if its code raised.
    """

    def __init__(self, message: str, *, spec: str = "", traceback: str | None = None) -> None:
        super().__init__(message)
        self.spec, self.traceback = spec, traceback


# Rubrics ------------------------------------------------------------------------------------------


class RubricError(GuerdonError):
    """A tree of rubrics or one of its scores is invalid.

    Attributes:
        rubric_path: Path in the tree, such as ``"code.syntax"``; ``""`` is the root, None unknown.
    """

    rubric_path: str | None = None

    def __str__(self) -> str:
        where = f"rubric {self.rubric_path!r}: " if self.rubric_path else ""
        return where + (str(self.args[0]) if self.args else "")


class RubricDefinitionError(RubricError, TypeError, ValueError):
    """A rubric class or a tree is invalid.

    A required method is missing, ``super().__init__()`` wasn't called, a child is not a rubric or
    has an invalid name, or a rubric would become its own descendant.
    """


class RubricPathError(RubricError, KeyError, IndexError):
    """A tree has no rubric at the given path or index.

    Attributes:
        path: The requested path.
    """

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class NoAggregationError(RubricError, NotImplementedError):
    """A rubric that only contains others, such as `RubricList`, was called."""


class InvalidScoreError(RubricError, TypeError, ValueError):
    """A rubric returned something that is not a finite float.

    Attributes:
        value: What it returned.
    """

    def __init__(self, message: str, *, value: object = None) -> None:
        super().__init__(message)
        self.value = value


class AsyncRubricError(RubricError, TypeError):
    """An async rubric is used where only a sync one works."""


class GuardTimeoutError(RubricError, TimeoutError):
    """A guarded rubric exceeded its timeout.

    Attributes:
        seconds: The limit.
    """

    def __init__(self, message: str, *, seconds: float = 0.0) -> None:
        super().__init__(message)
        self.seconds = seconds


class TrajectoryError(RubricError):
    """An episode can't be recorded, or its step rewards can't be computed."""


class StateError(RubricError, ValueError):
    """A ``state_dict`` doesn't match the tree; nothing of it was loaded.

    Attributes:
        missing: Keys of the tree that the state lacks.
        unexpected: Keys of the state that the tree lacks.
    """

    def __init__(
        self, message: str, *, missing: Sequence[str] = (), unexpected: Sequence[str] = ()
    ) -> None:
        super().__init__(message)
        self.missing, self.unexpected = tuple(missing), tuple(unexpected)


class RewardFunctionError(GuerdonError, TypeError):
    """A function can't be used as a reward function, or returned an invalid result."""


# Configuration ------------------------------------------------------------------------------------


class RewardConfigError(GuerdonError, ValueError):
    """A reward configuration, or an update of one, is invalid; nothing of it was applied.

    Attributes:
        problems: Each problem with its location: ``file:line: per_turn[2].weight: …``.
    """

    def __init__(self, message: str, *, problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems) or (message,)


class ConfigConflictError(RewardConfigError):
    """An update is based on a version that is no longer the current one.

    Attributes:
        sent: The version that the update is based on.
        present: The current version.
    """

    def __init__(self, message: str, *, sent: str = "", present: str = "") -> None:
        super().__init__(message)
        self.sent, self.present = sent, present


# Rollouts and credit ------------------------------------------------------------------------------


class RolloutError(GuerdonError):
    """A recorded rollout, or a file of results to resume from, can't be read.

    Attributes:
        line: The line in the file, from 1.
        row: The invalid row; None if the line isn't JSON.
    """

    def __init__(self, message: str, *, line: int | None = None, row: object = None) -> None:
        super().__init__(message)
        self.line = line
        self.row = row


class ScoringError(GuerdonError):
    """A scoring run can't continue; results that were written before are kept."""


class AlignmentError(GuerdonError, ValueError):
    """Results don't match the recorded steps, and the aligner is strict.

    Attributes:
        problems: The mismatches, one per line.
    """

    def __init__(self, message: str, *, problems: Sequence[object] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class CreditError(GuerdonError, ValueError):
    """Credit can't be assigned on a batch; nothing of it was changed.

    Attributes:
        rows: The indices of the invalid rows, from 0; empty if no row in particular is invalid.
    """

    def __init__(self, message: str, *, rows: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.rows = tuple(rows)


class PolicyError(GuerdonError):
    """A policy has no action to return: its script ended, or its endpoint returned none."""


# Environments -------------------------------------------------------------------------------------


class EnvError(GuerdonError):
    """An environment failed.

    Attributes:
        exception: What the environment's code raised, if it ended in a way it must not, such as
            by ``sys.exit``.
    """

    def __init__(self, message: str, *, exception: BaseException | None = None) -> None:
        super().__init__(message)
        self.exception = exception


class EnvDefinitionError(EnvError, TypeError):
    """An environment class is invalid, for example because it has no rubric."""


class EpisodeError(EnvError):
    """A step was requested outside a running episode: before a reset, or after the end."""


class InvalidActionError(EnvError, ValueError):
    """An action was rejected before the environment received it; the episode continues."""


class InvalidObservationError(EnvError, TypeError, ValueError):
    """An environment returned something that is not an observation or not JSON-serializable."""


class EnvTimeoutError(EnvError, TimeoutError):
    """An environment exceeded its timeout and was abandoned.

    Attributes:
        seconds: The limit.
    """

    def __init__(self, message: str, *, seconds: float = 0.0) -> None:
        super().__init__(message)
        self.seconds = seconds


# Sandboxes ----------------------------------------------------------------------------------------


class WorkerError(EnvError):
    """The process or the actor in which an environment runs has ended, or was stopped."""


class SandboxError(GuerdonError):
    """The sandbox failed; the code that runs in it is not at fault, and gets no score.

    Attributes:
        execution: The `Execution`, as far as it is known; None if none began.
    """

    def __init__(self, message: str, *, execution: Any = None) -> None:
        super().__init__(message)
        self.execution = execution


class SandboxUnavailableError(SandboxError):
    """An isolation level doesn't work on this machine; no weaker level is used instead.

    Attributes:
        level: The requested level.
        missing: What is missing, one line each, with how to fix it.
        findings: The results of the attempted attacks, each a `Finding`, where they could be run.
    """

    def __init__(
        self, message: str, *, level: str = "", missing: Sequence[str] = (), findings: Any = ()
    ) -> None:
        super().__init__(message)
        self.level, self.missing, self.findings = level, tuple(missing), tuple(findings)


# Services and trackers ----------------------------------------------------------------------------


class ServiceError(GuerdonError):
    """A service returned no usable answer.

    Attributes:
        service: Its name or address.
    """

    def __init__(self, message: str, *, service: str = "") -> None:
        super().__init__(message)
        self.service = service


class ServiceUnavailableError(ServiceError, ConnectionError):
    """A service can't be reached, has no capacity, or refuses the key or the model."""


class ServiceTimeoutError(ServiceError, TimeoutError):
    """A service didn't answer in time."""


class JudgeError(ServiceError, ValueError):
    """A judge's answer is not a verdict.

    Attributes:
        answer: The answer; of one with more than 20,000 characters, the beginning and the end.
    """

    def __init__(self, message: str, *, service: str = "", answer: str = "") -> None:
        super().__init__(message, service=service)
        self.answer = answer


class TrackerError(GuerdonError):
    """An experiment tracker can't be used as requested."""


# Servers and clients ------------------------------------------------------------------------------


class LaunchError(GuerdonError):
    """A server process or a container didn't start.

    Attributes:
        output: The end of its output.
    """

    def __init__(self, message: str, *, output: str = "") -> None:
        super().__init__(message)
        self.output = output


class ClientError(GuerdonError):
    """A request to a server failed."""


class ServerError(ClientError, RuntimeError):
    """The server reported an error.

    Attributes:
        code: The protocol's code, such as ``"EXECUTION_ERROR"``; over HTTP the status.
        errors: The invalid fields of the request, if the server lists them.
        details: Further fields of the error, by name.
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
    """There is no connection to the server; the session is lost."""


class ClientTimeoutError(ClientError, TimeoutError):
    """The server didn't answer in time.

    Attributes:
        seconds: How long the client waited.
        sent: Whether the request was sent: a step that was sent is taken, however late.
    """

    def __init__(self, message: str, *, seconds: float = 0.0, sent: bool = False) -> None:
        super().__init__(message)
        self.seconds = seconds
        self.sent = sent


__all__ = sorted(  # all of them
    name
    for name, each in vars().items()
    if isinstance(each, type) and issubclass(each, GuerdonError)
)
