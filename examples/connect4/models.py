"""The action, observation and state of connect four."""

from __future__ import annotations

from pydantic import Field

from examples.connect4.board import COLUMNS, Side
from guerdon import Action, Observation, State

__all__ = ["Connect4Action", "Connect4Observation", "Connect4State"]


class Connect4Action(Action):
    """Drop a piece.

    Example:
        >>> from examples.connect4.models import Connect4Action
        >>> Connect4Action(column=3).column
        3

    Attributes:
        column: The column, from 0 at the left to 6.
    """

    column: int = Field(ge=0, lt=COLUMNS)


class Connect4Observation(Observation):
    """The board after a move and the opponent's reply, if any.

    Example:
        >>> from examples.connect4 import environment
        >>> observation = environment.Connect4Environment(opponent=None).reset()
        >>> observation.turn, observation.legal_columns
        ('X', [0, 1, 2, 3, 4, 5, 6])

    Attributes:
        board: 6 rows of 7 characters, ``X``, ``O`` or ``.``, the top row first.
        turn: The side that the next action moves; None once the game is over.
        legal_columns: The columns that aren't full; empty once the game is over.
        last_moves: The columns played since the previous observation, in order.
        mover: The side that the previous action moved; None after a reset.
        winner: The winner; None before the end of the game and after a draw.
    """

    board: list[str]
    turn: Side | None = None
    legal_columns: list[int] = Field(default_factory=list)
    last_moves: list[int] = Field(default_factory=list)
    mover: Side | None = None
    winner: Side | None = None


class Connect4State(State):
    """The state of a game.

    Example:
        >>> from examples.connect4.models import Connect4State
        >>> Connect4State(episode_id="game-1", agent="X").moves
        []

    Attributes:
        agent: The side that actions move; None if they move both sides.
        moves: The columns played so far by both sides in turn, beginning with X.
    """

    agent: Side | None = None
    moves: list[int] = Field(default_factory=list)
