"""The action, observation and state of chess."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from examples.chess.game import Game, Result, Side
from guerdon import Action, Observation, State

__all__ = ["ChessAction", "ChessObservation", "ChessState"]


class ChessAction(Action):
    """A model's answer: a move alone, or a text with one move in a tag, ``<move>Nf3</move>``.

    Example:
        >>> from examples.chess.models import ChessAction
        >>> ChessAction(content="I take the center. <move>e4</move>").content
        'I take the center. <move>e4</move>'

    Attributes:
        type: Always ``message``, as `OpenAIPolicy` returns it.
        content: The text. The move is in SAN, such as Nf3, or in UCI's notation, such as g1f3.
    """

    type: Literal["message"] = "message"
    content: str


class ChessObservation(Observation):
    """The position after the agent's move and the opponent's reply, if any.

    Example:
        >>> from examples.chess.environment import ChessEnvironment
        >>> observation = ChessEnvironment().reset()
        >>> observation.turn, observation.legal_moves["Nf3"], observation.ply
        ('white', 'g1f3', 0)

    Attributes:
        fen: The position, in Forsyth-Edwards notation.
        previous_fen: The position before the agent's move; `fen` if it wasn't played.
        side: The agent's side.
        turn: The side that moves next; None once the game is over.
        legal_moves: The legal moves: their UCI by their SAN; empty once the game is over.
        last_moves: The moves played since the previous observation, in SAN, in order.
        ply: The number of moves played so far, by both sides.
        refused: Why the agent's move wasn't played; None if it was.
        result: The result; None until the game is over.
        ended_by: What ended the game, such as ``checkmate``; None until it is over.
    """

    fen: str
    previous_fen: str
    side: Side
    turn: Side | None
    legal_moves: dict[str, str]
    last_moves: list[str] = Field(default_factory=list)
    ply: int
    refused: str | None = None
    result: Result | None = None
    ended_by: str | None = None

    @classmethod
    def of(
        cls,
        game: Game,
        side: Side,
        *,
        previous_fen: str | None = None,
        last_moves: list[str],
        refused: str | None = None,
        ended: tuple[Result, str] | None = None,
    ) -> ChessObservation:
        """Return what the agent sees of a game.

        Args:
            game: The game.
            side: The agent's side.
            previous_fen: The position before the agent's move; None if it wasn't played.
            last_moves: The moves played since the previous observation.
            refused: Why the agent's move wasn't played.
            ended: The result and its reason, if something else than the rules ended the game.
        """
        result, ended_by = ended or (game.result, game.ended_by)
        return cls(
            done=result is not None,
            fen=game.fen,
            previous_fen=previous_fen or game.fen,
            side=side,
            turn=None if result else game.turn,
            legal_moves={} if result else game.legal_moves,
            last_moves=last_moves,
            ply=len(game.moves),
            refused=refused,
            result=result,
            ended_by=ended_by,
        )


class ChessState(State):
    """The state of a game.

    Example:
        >>> from examples.chess.models import ChessState
        >>> ChessState(episode_id="game-1", opponent="random").moves
        []

    Attributes:
        opponent: The name of the opponent.
        side: The agent's side.
        moves: The moves played so far, in SAN.
        refused: How many of the agent's moves in a row weren't played.
    """

    opponent: str = "greedy"
    side: Side = "white"
    moves: list[str] = Field(default_factory=list)
    refused: int = 0
