"""A task of tau-bench: actions that lead to the expected database, and required outputs."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from examples.tau_airline.data import AirlineData
from examples.tau_airline.tools import TOOLS
from guerdon._validation import check_integer, summarize
from guerdon.errors import InvalidArgumentError, MissingInputError

__all__ = ["Action", "Task", "task_of"]


class Action(BaseModel):
    """A call of the ground truth.

    Attributes:
        name: One of the tools.
        kwargs: Its arguments.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    kwargs: dict[str, Any]

    @field_validator("name")
    @classmethod
    def _is_tool(cls, name: str) -> str:
        if name not in TOOLS:
            raise ValueError(f"must be one of {', '.join(sorted(TOOLS))}")
        return name


class Task(BaseModel):
    """A task, in tau-bench's layout; other fields are ignored.

    Example:
        >>> from examples.tau_airline.task import Task
        >>> Task(actions=[], outputs=["327"])
        Task(actions=[], outputs=['327'], instruction='')

    Attributes:
        actions: The calls that lead to the expected database; empty if no changes are expected.
        outputs: The texts that the agent must state.
        instruction: What the user wants.
    """

    model_config = ConfigDict(frozen=True)

    actions: list[Action]
    outputs: list[str] = []
    instruction: str = ""


def task_of(metadata: dict[str, Any], data: AirlineData) -> Task:
    """Return the task of an episode: of its number, or the ground truth of a recorded one.

    Example:
        >>> from examples.tau_airline.data import AirlineData
        >>> from examples.tau_airline.task import task_of
        >>> data = AirlineData({}, {}, {}, tasks=[{"actions": [], "instruction": "Just ask."}])
        >>> task_of({"task": 0}, data).instruction
        'Just ask.'

    Args:
        metadata: ``ground_truth``, a task of tau-bench with its actions and outputs; or ``task``,
            the number of one in the data, from 0.
        data: The data.

    Raises:
        MissingInputError: The metadata has neither.
        InvalidArgumentError: There is no such task, or it is invalid.
    """
    truth, number = metadata.get("ground_truth"), metadata.get("task")
    if truth is None and number is None:
        raise MissingInputError(
            "the observation has no task: its metadata must have `ground_truth`, a task of "
            "tau-bench with its actions and outputs, or `task`, the number of one"
        )
    if truth is None:
        if not data.tasks:
            raise InvalidArgumentError("there are no tasks: tasks.json is missing in the data")
        truth = data.tasks[check_integer("task", number, low=0, high=len(data.tasks) - 1)]
    try:
        return Task.model_validate(truth)
    except ValidationError as error:
        raise InvalidArgumentError(
            f"a task must have actions and outputs, as in tau-bench: {summarize(error)}"
        ) from error
