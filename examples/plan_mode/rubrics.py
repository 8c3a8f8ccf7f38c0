"""The reward: what the plan's execution reached, minus refused actions and unplanned edits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from examples.plan_mode.models import PlanModeAction, PlanModeObservation
from guerdon import Rubric, RubricComposer, TrajectoryRubric
from guerdon.errors import MissingInputError, TrajectoryError

__all__ = ["PlanExecutionRubric", "Refused", "Unplanned", "reward"]


class PlanExecutionRubric(TrajectoryRubric):
    """The share of tests that pass when the execution of the plan ends; the plan earns it all.

    The step of the plan gets the score, and the steps that carry it out get 0: they follow from
    the plan. An episode without a plan scores 0.

    Example:
        >>> from examples.plan_mode.models import PlanModeAction, PlanModeObservation
        >>> from examples.plan_mode.rubrics import PlanExecutionRubric
        >>> rubric = PlanExecutionRubric()
        >>> task = {"task_id": "shop", "instructions": "", "files": {}}
        >>> rubric(PlanModeAction(kind="plan"), PlanModeObservation(**task))
        0.0
        >>> end = PlanModeObservation(**task, passed=6, total=8, done=True)
        >>> rubric(PlanModeAction(kind="finish"), end)
        0.75
        >>> rubric.compute_step_rewards()
        [0.75, 0.0]
    """

    score_range = (0.0, 1.0)

    def score_trajectory(self, trajectory: list[tuple[Any, Any]]) -> float:
        """Return the share of tests that passed at the end."""
        last = trajectory[-1][1]
        if not last.done:
            raise TrajectoryError(f"the execution isn't over after {len(trajectory)} steps")
        if last.passed is None or not last.total:
            raise MissingInputError("the last observation has no results of tests")
        if _plan_of(trajectory) is None:
            self.explain("there was no plan")
            return 0.0
        self.explain("%d of %d tests passed", last.passed, last.total)
        return float(last.passed / last.total)

    def compute_step_rewards(self) -> list[float]:
        """Return the score at the step of the plan, and 0 at all others."""
        rewards = [0.0] * len(self.trajectory)
        planned = _plan_of(self.trajectory)
        if planned is not None:
            rewards[planned] = self.score_trajectory(self.trajectory)
        return rewards


def _plan_of(trajectory: Sequence[tuple[Any, Any]]) -> int | None:
    """Return the step of the plan; None if there was none, or it was refused."""
    for step, (action, observation) in enumerate(trajectory):
        if action.kind == "plan" and not observation.refused:
            return step
    return None


class Refused(Rubric):
    """Higher is worse: the action was refused, as it is not accepted at this point."""

    score_range = (0.0, 1.0)

    def forward(self, action: PlanModeAction, observation: PlanModeObservation) -> float:
        """Return whether the action was refused."""
        if observation.refused:
            self.explain("%s", observation.feedback)
        return float(observation.refused)


class Unplanned(Rubric):
    """Higher is worse: the action edited a file that the plan doesn't name."""

    score_range = (0.0, 1.0)

    def forward(self, action: PlanModeAction, observation: PlanModeObservation) -> float:
        """Return whether a file was edited that is not in the plan."""
        is_edit = action.kind == "edit" and not observation.refused
        return float(is_edit and action.path not in observation.plan)


def reward() -> RubricComposer:
    """Return the reward; ``reward.yaml`` is the same.

    Example:
        >>> from examples.plan_mode.rubrics import reward
        >>> reward().weights
        {'refused': -0.1, 'unplanned': -0.1, 'execution': 1.0}
    """
    return RubricComposer(
        {"refused": Refused(), "unplanned": Unplanned(), "execution": PlanExecutionRubric()},
        weights={"refused": -0.1, "unplanned": -0.1, "execution": 1.0},
        episode_end=["execution"],
    )
