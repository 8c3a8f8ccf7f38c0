"""The reward: the outcome at the end of the game, discounted to earlier moves."""

from __future__ import annotations

from typing import Any

from guerdon import ExponentialDiscountingTrajectoryRubric
from guerdon.errors import TrajectoryError

__all__ = ["Won"]


class Won(ExponentialDiscountingTrajectoryRubric):
    """A win scores 1, a draw 0.5, a loss 0; earlier moves get the discounted outcome.

    For a game of T steps, with R the outcome for the side that moved at step t::

        r_t = gamma ** (T - 1 - t) * R

    With an opponent, that side is always the agent's. If actions move both sides, each move is
    credited with the outcome for its own side.

    Example:
        >>> from examples.connect4.environment import Connect4Environment
        >>> from examples.connect4.models import Connect4Action
        >>> environment = Connect4Environment(opponent=None, gamma=0.5)
        >>> observation = environment.reset()
        >>> for column in 0, 1, 0, 1, 0, 1, 0:
        ...     observation = environment.step(Connect4Action(column=column))
        >>> observation.winner, observation.reward
        ('X', 1.0)
        >>> environment.rubric.compute_step_rewards()
        [0.015625, 0.0, 0.0625, 0.0, 0.25, 0.0, 1.0]

    Args:
        gamma: The discount, in [0, 1].
        intermediate_reward: The score of the steps before the last, a finite number.
    """

    score_range = (0.0, 1.0)

    def score_trajectory(self, trajectory: list[tuple[Any, Any]]) -> float:
        """Return the outcome for the side that moved last."""
        return self._outcome(trajectory, trajectory[-1][1].mover)

    def compute_step_rewards(self) -> list[float]:
        """Return the outcome for the side of each step, discounted from the last step."""
        steps = self.trajectory
        return [
            self.gamma ** (len(steps) - 1 - t) * self._outcome(steps, observation.mover)
            for t, (_, observation) in enumerate(steps)
        ]

    def _outcome(self, trajectory: list[tuple[Any, Any]], side: str) -> float:
        last = trajectory[-1][1]
        if not last.done:
            # Without this check, an aborted game would score like a draw.
            raise TrajectoryError(
                f"the game isn't over after {len(trajectory)} steps and has no winner yet"
            )
        if last.winner is None:
            return 0.5
        return 1.0 if last.winner == side else 0.0
