"""A task of tau-bench: actions that lead to the expected database, and required outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from examples.tau_airline.tools import TOOLS
from guerdon.errors import InvalidArgumentError

__all__ = ["Action", "Task"]


@dataclass(frozen=True, slots=True)
class Action:
    """A call of the ground truth.

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
        actions: The calls that lead to the expected database.
        outputs: The texts that the agent must state.
    """

    actions: tuple[Action, ...]
    outputs: tuple[str, ...]

    @classmethod
    def of(cls, ground_truth: Any) -> Self:
        """Read a task in tau-bench's layout: ``{"actions": [{"name", "kwargs"}], "outputs"}``.

        ``outputs`` is optional. ``actions`` is required; an empty list expects no changes.

        Raises:
            InvalidArgumentError: The task is invalid.
        """
        if not isinstance(ground_truth, Mapping):
            raise InvalidArgumentError(
                "ground_truth must be a task with actions and outputs, as in a tau-bench record's "
                f'info["task"], got {ground_truth!r:.80}'
            )
        actions, outputs = ground_truth.get("actions"), ground_truth.get("outputs", [])
        if not isinstance(actions, list):
            raise InvalidArgumentError(
                "ground_truth.actions must be a list of calls, which is empty if no changes are "
                f"expected, got {actions!r:.80}"
            )
        if not isinstance(outputs, list) or not all(isinstance(each, str) for each in outputs):
            raise InvalidArgumentError(
                f"ground_truth.outputs must be a list of strings, got {outputs!r:.80}"
            )
        read = tuple(_action(action, number) for number, action in enumerate(actions))
        return cls(actions=read, outputs=tuple(outputs))


def _action(action: Any, number: int) -> Action:
    name = action.get("name") if isinstance(action, Mapping) else None
    arguments = action.get("kwargs") if isinstance(action, Mapping) else None
    if not isinstance(name, str) or name not in TOOLS or not isinstance(arguments, Mapping):
        raise InvalidArgumentError(
            f'ground_truth.actions[{number}] must be {{"name": …, "kwargs": {{…}}}} with one of '
            f"{', '.join(sorted(TOOLS))}, got {action!r:.120}"
        )
    return Action(name, arguments)
