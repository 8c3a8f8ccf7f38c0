"""What a task of tau-bench asks for: actions that lead to the right database, and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from examples.tau_airline.tools import TOOLS
from guerdon.errors import InvalidArgumentError

__all__ = ["Action", "Task"]


@dataclass(frozen=True, slots=True)
class Action:
    """One call that the ground truth makes.

    Example:
        >>> from examples.tau_airline.task import Action
        >>> Action("cancel_reservation", {"reservation_id": "ZFA04Y"}).name
        'cancel_reservation'
    """

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Task:
    """A task's ground truth.

    Example:
        >>> from examples.tau_airline.task import Task
        >>> Task.of({"actions": [], "outputs": ["327"]})
        Task(actions=(), outputs=('327',))

    Attributes:
        actions: Calls after which the database is as it should be.
        outputs: What the agent must say.
    """

    actions: tuple[Action, ...]
    outputs: tuple[str, ...]

    @classmethod
    def of(cls, ground_truth: Any) -> Self:
        """Read a task as tau-bench writes it: ``{"actions": [{"name", "kwargs"}], "outputs"}``.

        Raises:
            InvalidArgumentError: It is no task. Without ``outputs`` nothing has to be said, but
                ``actions`` must be there: an empty list asks for no change at all.
        """
        if not isinstance(ground_truth, Mapping):
            raise InvalidArgumentError(
                f"ground_truth is {ground_truth!r:.80}; it takes a task, with its actions and "
                'outputs: a tau-bench record has it in info["task"]'
            )
        actions, outputs = ground_truth.get("actions"), ground_truth.get("outputs", [])
        if not isinstance(actions, list):
            raise InvalidArgumentError(
                f"ground_truth.actions is {actions!r:.80}; it takes a list of calls, empty where "
                "nothing in the database may change"
            )
        if not isinstance(outputs, list) or not all(isinstance(each, str) for each in outputs):
            raise InvalidArgumentError(
                f"ground_truth.outputs is {outputs!r:.80}; it takes a list of strings"
            )
        read = tuple(_action(action, number) for number, action in enumerate(actions))
        return cls(actions=read, outputs=tuple(outputs))


def _action(action: Any, number: int) -> Action:
    name = action.get("name") if isinstance(action, Mapping) else None
    arguments = action.get("kwargs") if isinstance(action, Mapping) else None
    if not isinstance(name, str) or name not in TOOLS or not isinstance(arguments, Mapping):
        raise InvalidArgumentError(
            f"ground_truth.actions[{number}] is {action!r:.120}; it takes "
            f'{{"name": …, "kwargs": {{…}}}} with one of {", ".join(sorted(TOOLS))}'
        )
    return Action(name, arguments)
