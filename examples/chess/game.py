"""`Game`: a game of chess. The rules are OpenSpiel's."""

from __future__ import annotations

import functools
from typing import Any, Literal

from guerdon.errors import MissingExtraError

__all__ = ["Game", "Result", "Side", "WON_BY", "other"]

Side = Literal["white", "black"]
Result = Literal["1-0", "0-1", "1/2-1/2"]

# The result of a game that a side won.
WON_BY: dict[Side, Result] = {"white": "1-0", "black": "0-1"}
# OpenSpiel numbers the players.
WHITE = 1


def other(side: Side) -> Side:
    """Return the other side."""
    return "black" if side == "white" else "white"


@functools.cache
def _spiel() -> Any:
    try:
        import pyspiel
    except ImportError as error:
        raise MissingExtraError(
            "examples.chess requires the package open-spiel: pip install 'guerdon[chess]'",
            extra="chess",
        ) from error
    return pyspiel


class Game:
    """A game of chess.

    A third repetition of a position and 50 moves without a capture or a move of a pawn end it in a
    draw, without a claim.

    Example:
        >>> from examples.chess.game import Game
        >>> game = Game()
        >>> for san in "f3", "e5", "g4", "Qh4#":
        ...     game.play(san)
        >>> game.result, game.ended_by
        ('0-1', 'checkmate')

    Attributes:
        state: OpenSpiel's state.
        actions: OpenSpiel's actions by their SAN: the legal moves.
        moves: The moves played so far, in SAN.

    Args:
        fen: The position to begin with, as `fen` of another game; by default that of every game.
            It must be a legal position: OpenSpiel doesn't check it, and may end the process.

    Raises:
        MissingExtraError: OpenSpiel isn't installed.
    """

    def __init__(self, fen: str | None = None) -> None:
        self.state = _spiel().load_game("chess").new_initial_state(*([fen] if fen else []))
        self.actions = self._read_actions()
        self.moves: list[str] = []

    def _read_actions(self) -> dict[str, int]:
        state = self.state
        return {state.action_to_string(action): action for action in state.legal_actions()}

    @property
    def fen(self) -> str:
        """The position, in Forsyth-Edwards notation."""
        return str(self.state)

    @property
    def turn(self) -> Side | None:
        """The side that moves next; None once the game is over."""
        if self.state.is_terminal():
            return None
        return "white" if self.state.current_player() == WHITE else "black"

    @property
    def legal_moves(self) -> dict[str, str]:
        """The legal moves: their UCI by their SAN. There are none once the game is over."""
        board, to_move = self.state.board(), _spiel().chess.action_to_move
        return {san: to_move(action, board).to_lan() for san, action in self.actions.items()}

    @property
    def result(self) -> Result | None:
        """The result; None until the game is over."""
        if not self.state.is_terminal():
            return None
        outcome = self.state.returns()[WHITE]
        return "1-0" if outcome > 0 else "0-1" if outcome < 0 else "1/2-1/2"

    @property
    def ended_by(self) -> str | None:
        """What ended the game; None until it is over."""
        if not self.state.is_terminal():
            return None
        if self.result != "1/2-1/2":
            return "checkmate"
        if self.state.is_repetition_draw():
            return "repetition"
        if not self.state.board().has_legal_moves():
            return "stalemate"
        return "50 moves" if int(self.fen.split()[4]) >= 100 else "insufficient material"

    def play(self, san: str) -> None:
        """Play a move.

        Args:
            san: A key of `legal_moves`.
        """
        self.state.apply_action(self.actions[san])
        self.moves.append(san)
        self.actions = self._read_actions()

    def after(self, san: str) -> str:
        """Return the position after a move, without playing it."""
        return str(self.state.child(self.actions[san]))
