"""Every exception that guerdon raises, in one place.

::

    GuerdonError
    ├── InvalidArgumentError (ValueError)      an argument that can't be meant
    ├── MissingExtraError (ImportError)        a package that an extra brings isn't installed
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

from guerdon.errors.base import (
    GuerdonError,
    InvalidArgumentError,
    MissingExtraError,
    MissingInputError,
)
from guerdon.errors.environments import (
    AnswerTimeoutError,
    ClientError,
    ConnectionLostError,
    EnvDefinitionError,
    EnvError,
    EnvFailedError,
    EnvTimeoutError,
    EpisodeError,
    InvalidObservationError,
    LaunchError,
    RefusedActionError,
    SandboxError,
    SandboxUnavailableError,
    ServerError,
    UnknownEnvError,
)
from guerdon.errors.pipelines import (
    ConfigConflictError,
    ConfigError,
    ConfigUpdateError,
    ConfigVersionError,
    ServiceError,
    ServiceTimeoutError,
    ServiceUnavailableError,
    TrackerError,
    VerdictError,
)
from guerdon.errors.rollouts import (
    AlignmentError,
    CreditError,
    OutputError,
    PolicyError,
    ResumeError,
    RewardFunctionError,
    RolloutError,
    SpecError,
    WorkerError,
)
from guerdon.errors.rubrics import (
    AbstractRubricError,
    AsyncRubricError,
    CycleError,
    GuardTimeoutError,
    InvalidChildError,
    InvalidScoreError,
    NoAggregationError,
    NotInitializedError,
    RubricError,
    RubricIndexError,
    RubricPathError,
    StateError,
    TrajectoryError,
)

__all__ = [
    "AbstractRubricError", "AlignmentError", "AnswerTimeoutError", "AsyncRubricError",
    "ClientError", "ConfigConflictError", "ConfigError", "ConfigUpdateError", "ConfigVersionError",
    "ConnectionLostError", "CreditError", "CycleError", "EnvDefinitionError", "EnvError",
    "EnvFailedError", "EnvTimeoutError", "EpisodeError", "GuardTimeoutError", "GuerdonError",
    "InvalidArgumentError", "InvalidChildError", "InvalidObservationError", "InvalidScoreError",
    "LaunchError", "MissingExtraError", "MissingInputError", "NoAggregationError",
    "NotInitializedError", "OutputError", "PolicyError", "RefusedActionError", "ResumeError",
    "RewardFunctionError", "RolloutError", "RubricError", "RubricIndexError", "RubricPathError",
    "SandboxError", "SandboxUnavailableError", "ServerError", "ServiceError", "ServiceTimeoutError",
    "ServiceUnavailableError", "SpecError", "StateError", "TrackerError", "TrajectoryError",
    "UnknownEnvError", "VerdictError", "WorkerError",
]  # fmt: skip
