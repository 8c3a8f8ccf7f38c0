"""The action, observation and state of the coding environment."""

from __future__ import annotations

from pydantic import Field, PrivateAttr

from guerdon import Action, Observation, State
from guerdon.errors import SandboxError
from guerdon.sandbox import Verdict

__all__ = ["CodeAction", "CodeObservation", "CodeState"]

LONGEST_PROGRAM = 50_000  # characters


class CodeAction(Action):
    r"""A submission.

    Example:
        >>> from examples.coding_env.models import CodeAction
        >>> CodeAction(program="def one():\n    return 1\n").program.count("\n")
        2

    Attributes:
        program: The whole program, in Python.
    """

    program: str = Field(max_length=LONGEST_PROGRAM)


class CodeObservation(Observation):
    """The task and the result of the last submission. The tests stay hidden.

    Example:
        >>> from examples.coding_env.models import CodeObservation
        >>> shown = CodeObservation(
        ...     task_id="add", prompt="Write add(a, b).", entry_point="add", submissions_left=5
        ... )
        >>> sorted(shown.model_dump(exclude_defaults=True))
        ['entry_point', 'prompt', 'submissions_left', 'task_id']

    Attributes:
        task_id: The ID of the task.
        prompt: The text of the task.
        entry_point: The function or class that the program must define.
        difficulty: The difficulty of the task, from 1.
        starter: The code that the program begins with; empty for most tasks.
        feedback: The result of the last submission as text; empty after a reset.
        passed: The number of tests that the last submission passed.
        total: The number of tests; 0 after a reset.
        submissions_left: The number of remaining submissions.
    """

    task_id: str
    prompt: str
    entry_point: str
    difficulty: int = 1
    starter: str = ""
    feedback: str = ""
    passed: int = Field(default=0, ge=0)
    total: int = Field(default=0, ge=0)
    submissions_left: int = Field(ge=0)

    # For the rubrics, not sent to clients. Each step sets one of them.
    _verdict: Verdict | None = PrivateAttr(default=None)
    _failure: SandboxError | None = PrivateAttr(default=None)


class CodeState(State):
    """The state of an episode.

    Example:
        >>> from examples.coding_env.models import CodeState
        >>> CodeState(task_id="add", step_count=2).solved
        False

    Attributes:
        task_id: The ID of the task; None before the first reset.
        difficulty: The difficulty of the task.
        best: The largest share of tests that a submission passed.
        solved: Whether a submission passed all tests.
        max_submissions: The number of submissions per episode.
    """

    task_id: str | None = None
    difficulty: int | None = None
    best: float = Field(default=0.0, ge=0.0, le=1.0)
    solved: bool = False
    max_submissions: int = Field(default=5, ge=1)
