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
    ├── RewardFunctionError (TypeError)        a function that is no reward function, or its result
    ├── PolicyError                            a policy that has no action to give
    ├── AlignmentError (ValueError)            results that don't fit the recorded steps
    ├── CreditError (ValueError)               a batch that no credit can be assigned on
    ├── OutputError (OSError)                  results that can't be written
    ├── WorkerError                            a worker process that died
    ├── EnvError                               something about an environment
    │   ├── EnvDefinitionError (TypeError)     an environment class that lacks what it must have
    │   ├── EpisodeError                       a step where no episode is running
    │   ├── RefusedActionError (ValueError)    an action that is none; the episode goes on
    │   ├── InvalidObservationError (TypeError, ValueError)   what can't be sent or isn't one
    │   ├── EnvFailedError                     an environment's own code ended where it must not
    │   ├── EnvTimeoutError (TimeoutError)     an environment took longer than it may
    │   └── UnknownEnvError (LookupError)      no environment of that name
    ├── SandboxError                           a sandbox that failed, not the code in it
    │   └── SandboxUnavailableError            a level of isolation that doesn't work here
    ├── ConfigError (ValueError)               a reward pipeline that can't be meant
    │   ├── ConfigVersionError                 one of a schema version that isn't known
    │   ├── ConfigUpdateError                  a change that is refused, whole
    │   └── ConfigConflictError                a change of a version that is no longer the present
    ├── ServiceError                           a service (MCP, a model) that gave no answer
    │   ├── ServiceUnavailableError (ConnectionError)   it isn't there, or no longer
    │   ├── ServiceTimeoutError (TimeoutError) it didn't answer in time
    │   └── VerdictError (ValueError)          a judge's answer that is no verdict
    ├── TrackerError                           an experiment tracker that can't be used
    ├── LaunchError                            a server process or container that didn't start
    └── ClientError                            something between a client and a server
        ├── ServerError (RuntimeError)         the server said that something went wrong
        ├── ConnectionLostError (ConnectionError)   no connection, or no longer
        └── AnswerTimeoutError (TimeoutError)  the server didn't answer in time

Beside these, what an author's own code raises is raised as it is, with the path of the rubric
added as a note.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = [
    "AbstractRubricError", "AlignmentError", "AnswerTimeoutError", "AsyncRubricError",
    "ClientError", "ConfigConflictError", "ConfigError", "ConfigUpdateError", "ConfigVersionError",
    "ConnectionLostError", "CreditError", "CycleError", "EnvDefinitionError", "EnvError",
    "EnvFailedError", "EnvTimeoutError", "EpisodeError", "GuardTimeoutError", "GuerdonError",
    "InvalidArgumentError", "InvalidChildError", "InvalidObservationError", "InvalidScoreError",
    "LaunchError", "MissingInputError", "NoAggregationError", "NotInitializedError", "OutputError",
    "PolicyError", "RefusedActionError", "ResumeError", "RewardFunctionError", "RolloutError",
    "RubricError", "RubricIndexError", "RubricPathError", "SandboxError", "SandboxUnavailableError",
    "ServerError", "ServiceError", "ServiceTimeoutError", "ServiceUnavailableError", "SpecError",
    "StateError", "TrackerError", "TrajectoryError", "UnknownEnvError", "VerdictError",
    "WorkerError",
]  # fmt: skip


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
        self.missing, self.unexpected = tuple(missing), tuple(unexpected)


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
    """

    def __init__(self, message: str, *, code: str = "", errors: Sequence[object] = ()) -> None:
        super().__init__(f"Server error: {message} (code: {code})")
        self.code = code
        self.errors = tuple(errors)


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
