"""What goes between an agent and the coding environment."""

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
    """What an agent sees of its task, and of its last submission. The tests stay hidden.

    Example:
        >>> from examples.coding_env.models import CodeObservation
        >>> shown = CodeObservation(
        ...     task_id="add", prompt="Write add(a, b).", entry_point="add", submissions_left=5
        ... )
        >>> sorted(shown.model_dump(exclude_defaults=True))
        ['entry_point', 'prompt', 'submissions_left', 'task_id']

    Attributes:
        task_id: Which task it is.
        prompt: What is asked.
        entry_point: What the program must define.
        difficulty: Of the task, from 1.
        starter: Code that the program begins with, where the task gives any.
        feedback: What came of the last submission, in words; empty after a reset.
        passed: How many tests it passed.
        total: How many there are; 0 after a reset.
        submissions_left: How many submissions the agent still has.
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

    # For the rubrics; neither goes over the wire. One of them is set after each step.
    _verdict: Verdict | None = PrivateAttr(default=None)
    _failure: SandboxError | None = PrivateAttr(default=None)


class CodeState(State):
    """Where an episode stands.

    Example:
        >>> from examples.coding_env.models import CodeState
        >>> CodeState(task_id="add", step_count=2).solved
        False

    Attributes:
        task_id: Which task it is; None before the first reset.
        difficulty: Of the task.
        best: The largest share of tests that a submission passed.
        solved: Whether one passed them all.
        max_submissions: How many submissions an episode has.
    """

    task_id: str | None = None
    difficulty: int | None = None
    best: float = Field(default=0.0, ge=0.0, le=1.0)
    solved: bool = False
    max_submissions: int = Field(default=5, ge=1)
