"""The action, observation and state of plan mode."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from guerdon import Action, Observation, State

__all__ = ["PlanModeAction", "PlanModeObservation", "PlanModeState"]

LONGEST_FILE = 20_000  # characters
LONGEST_LINE = 500
MOST_CHANGES = 20

Line = Annotated[str, Field(max_length=LONGEST_LINE)]
Phase = Literal["plan", "execute", "over"]


class PlanModeAction(Action):
    r"""A plan, an edit of a file, a run of the tests, or the end.

    Example:
        >>> from examples.plan_mode.models import PlanModeAction
        >>> PlanModeAction(kind="plan", plan={"prices.py": "Round to whole cents."}).plan
        {'prices.py': 'Round to whole cents.'}
        >>> PlanModeAction(kind="edit", path="prices.py", content="FREE = 0\n").path
        'prices.py'

    Attributes:
        kind: What it does.
        plan: What is to be changed in which files, by path.
        path: The file of an edit.
        content: The new content of this file.
    """

    kind: Literal["plan", "edit", "test", "finish"]
    plan: dict[Line, Line] = Field(default_factory=dict, max_length=MOST_CHANGES)
    path: Line = ""
    content: str = Field(default="", max_length=LONGEST_FILE)


class PlanModeObservation(Observation):
    """The task, the plan, the files as they are now, and the result of the last action.

    Example:
        >>> from examples.plan_mode.models import PlanModeObservation
        >>> PlanModeObservation(task_id="shop", instructions="…", files={}).phase
        'plan'

    Attributes:
        task_id: The ID of the task.
        instructions: What the files should do.
        files: The content of each file, by path.
        plan: The plan, once there is one.
        phase: Which action is due: a plan; edits, tests and the end; or none.
        feedback: The result of the last action; empty after a reset.
        refused: Whether the last action was refused: it changed nothing.
        passed: How many tests these files pass; None if they were not run since the last edit.
        total: How many tests there are; None likewise.
    """

    task_id: str
    instructions: str
    files: dict[str, str]
    plan: dict[str, str] = Field(default_factory=dict)
    phase: Phase = "plan"
    feedback: str = ""
    refused: bool = False
    passed: int | None = None
    total: int | None = None


class PlanModeState(State):
    """The state of an episode.

    Example:
        >>> from examples.plan_mode.models import PlanModeState
        >>> PlanModeState(task_id="shop").phase
        'plan'

    Attributes:
        task_id: The ID of the task; None before the first reset.
        phase: Which action is due.
        edited: The files that were edited.
    """

    task_id: str | None = None
    phase: Phase = "plan"
    edited: list[str] = Field(default_factory=list)
