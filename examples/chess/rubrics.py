"""The reward: two gates, then the outcome of the game and what the move changed on the board."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from examples.chess.evaluation import king_safety, material, mobility
from examples.chess.game import WON_BY, Side
from examples.chess.models import ChessAction, ChessObservation
from examples.chess.notation import read_move
from guerdon import (
    ExponentialDiscountingTrajectoryRubric,
    MessageAction,
    MessageObservation,
    Rubric,
    Sequential,
    WeightedSum,
)
from guerdon.errors import InvalidArgumentError, MissingInputError, TrajectoryError
from guerdon.rubrics.checks.inputs import text_of

__all__ = [
    "ChessWinLossRubric", "FormatRubric", "KingSafety", "LegalRubric", "Material", "Mobility",
    "chess_reward", "gated_win_loss",
]  # fmt: skip

Answer = ChessAction | MessageAction
Seen = ChessObservation | MessageObservation


def _seen(observation: Seen) -> ChessObservation:
    """The observation, also of a recorded game, in whose messages it is JSON."""
    if isinstance(observation, ChessObservation):
        return observation
    messages = observation.metadata["messages"]
    if not messages:
        raise MissingInputError(
            "the recording has no message after this turn; it must be a ChessObservation as JSON"
        )
    return ChessObservation.model_validate_json(messages[-1].text)


class FormatRubric(Rubric):
    """The answer states one move, in SAN or in UCI's notation.

    Example:
        >>> from examples.chess.models import ChessAction
        >>> from examples.chess.rubrics import FormatRubric
        >>> [FormatRubric()(ChessAction(content=text), None) for text in ("e4", "Hello!")]
        [1.0, 0.0]
    """

    score_range = (0.0, 1.0)

    def forward(self, action: Answer, observation: Seen) -> float:
        """Return whether a move can be read."""
        try:
            read_move(text_of(action))
        except InvalidArgumentError as error:
            self.explain("%s", error)
            return 0.0
        return 1.0


class LegalRubric(Rubric):
    """The move was played: it is legal, and not ambiguous."""

    score_range = (0.0, 1.0)

    def forward(self, action: Answer, observation: Seen) -> float:
        """Return whether the move was played."""
        refused = _seen(observation).refused
        if refused is None:
            return 1.0
        self.explain("%s", refused)
        return 0.0


class ChessWinLossRubric(ExponentialDiscountingTrajectoryRubric):
    """A win scores 1, a draw 0.5, a loss 0; earlier moves get the discounted outcome.

    Example:
        >>> from examples.chess.pgn import read_pgn, to_rollout
        >>> from examples.chess.rubrics import ChessWinLossRubric
        >>> from guerdon import Rollout, score_rollouts
        >>> [game] = read_pgn("1. f3 e5 2. g4 Qh4# 0-1")
        >>> rollout = Rollout.from_row(to_rollout(game, "black"))
        >>> [row["step_rewards"] for row in score_rollouts(ChessWinLossRubric(0.5), [rollout])]
        [[0.5, 1.0]]

    Args:
        gamma: The discount, in [0, 1].
        intermediate_reward: The score of the steps before the last, a finite number.
    """

    score_range = (0.0, 1.0)

    def score_trajectory(self, trajectory: list[tuple[Any, Any]]) -> float:
        """Return the outcome for the agent's side."""
        last = _seen(trajectory[-1][1])
        if last.result is None:
            # Without this check, a game that was broken off would score like a loss.
            raise TrajectoryError(f"the game has no result: it isn't over at ply {last.ply}")
        if last.result == "1/2-1/2":
            return 0.5
        return float(last.result == WON_BY[last.side])


class _Change(Rubric):
    """How much a share, in [0, 1], changed with the move and its reply; 0 if it wasn't played.

    The changes of a game add up to the last share minus the first, so that a longer game isn't
    worth more.
    """

    score_range = (-1.0, 1.0)
    share: Callable[[str, Side], float]

    def forward(self, action: Answer, observation: Seen) -> float:
        """Return the share after the move minus the share before it."""
        seen = _seen(observation)
        share = type(self).share
        return share(seen.fen, seen.side) - share(seen.previous_fen, seen.side)


class Material(_Change):
    """The change of the agent's share of the material."""

    share = staticmethod(material)


class Mobility(_Change):
    """The change of the agent's share of the squares that pieces can reach."""

    share = staticmethod(mobility)


class KingSafety(_Change):
    """The change of the share of the squares at the agent's king that aren't attacked."""

    share = staticmethod(king_safety)


def chess_reward(gamma: float = 0.99) -> Sequential:
    """Return the reward: 0 if the move wasn't played, else its outcome and what it changed.

    Example:
        >>> from examples.chess.rubrics import chess_reward
        >>> [type(rubric).__name__ for rubric in chess_reward()]
        ['FormatRubric', 'LegalRubric', 'WeightedSum']

    Args:
        gamma: The discount of the outcome, in [0, 1].
    """
    components = [ChessWinLossRubric(gamma), Material(), Mobility(), KingSafety()]
    weights = [1.0, 1.0, 0.25, 0.25]
    return Sequential(FormatRubric(), LegalRubric(), WeightedSum(components, weights))


def gated_win_loss(gamma: float = 0.99) -> Sequential:
    """Return the outcome behind the gates, for reward.yaml; the other components need no gates.

    Example:
        >>> from examples.chess.rubrics import gated_win_loss
        >>> [type(rubric).__name__ for rubric in gated_win_loss()]
        ['FormatRubric', 'LegalRubric', 'ChessWinLossRubric']

    Args:
        gamma: The discount of the outcome, in [0, 1].
    """
    return Sequential(FormatRubric(), LegalRubric(), ChessWinLossRubric(gamma))
