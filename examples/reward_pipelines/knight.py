"""A chess-like game: a knight takes pieces on a small board; taking the king wins."""

from __future__ import annotations

import random
from typing import Any
from uuid import uuid4

from guerdon import Action, Environment, Observation, Rubric, State
from guerdon.errors import EpisodeError, InvalidArgumentError

__all__ = ["KnightAction", "KnightEnvironment", "KnightObservation", "Material", "Win", "moves"]

SIDE = 5
SQUARES = [f"{file}{rank}" for rank in range(1, SIDE + 1) for file in "abcde"]
VALUES = {"pawn": 1, "bishop": 3, "rook": 5, "king": 0}
START = "a1"
JUMPS = [(1, 2), (2, 1), (2, -1), (1, -2), (-1, -2), (-2, -1), (-2, 1), (-1, 2)]


def moves(square: str) -> list[str]:
    """Return the squares that a knight can move to.

    Example:
        >>> from examples.reward_pipelines.knight import moves
        >>> moves("a1")
        ['c2', 'b3']

    Args:
        square: The square of the knight, from ``a1`` to ``e5``.
    """
    file, rank = ord(square[0]), int(square[1])
    reached = {f"{chr(file + right)}{rank + up}" for right, up in JUMPS}
    return [each for each in SQUARES if each in reached]


class KnightAction(Action):
    """A move.

    Attributes:
        to: The square.
    """

    to: str


class KnightObservation(Observation):
    """The board.

    Attributes:
        knight: The square of the knight.
        men: The other pieces by their squares.
        taken: The piece that the last move took.
        won: Whether it was the king.
    """

    knight: str
    men: dict[str, str]
    taken: str | None = None
    won: bool = False


class Material(Rubric):
    """The value of the piece that the move took: shaping, an early signal of good moves."""

    score_range = (0.0, 5.0)

    def forward(self, action: KnightAction, observation: KnightObservation) -> float:
        """Return the value of the piece."""
        return float(VALUES[observation.taken]) if observation.taken else 0.0


class Win(Rubric):
    """The king was taken: the outcome."""

    score_range = (0.0, 1.0)

    def forward(self, action: KnightAction, observation: KnightObservation) -> float:
        """Return 1 if it was."""
        return float(observation.won)


class KnightEnvironment(Environment[KnightAction, KnightObservation, State]):
    """A knight against a king and some pieces that don't move, on 25 squares, for 12 moves.

    Example:
        >>> from examples.reward_pipelines.knight import KnightAction, KnightEnvironment
        >>> from guerdon.envs import ConfiguredEnv
        >>> reward = {"episode_end": [
        ...     {"name": "win", "rubric": "examples.reward_pipelines.knight.Win"}]}
        >>> with ConfiguredEnv(KnightEnvironment, reward) as make:
        ...     environment = make()
        ...     first = environment.reset(seed=1)
        ...     environment.step(KnightAction(to="c2")).knight
        'c2'
    """

    longest = 12

    def __init__(self) -> None:
        super().__init__()
        self._board: KnightObservation | None = None
        self._state = State()

    @property
    def state(self) -> State:
        """The state of the game."""
        return self._state

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> KnightObservation:
        """Set up the board.

        Args:
            seed: The seed of the positions of the pieces.
            episode_id: The name of the game.
            **kwargs: Not used.
        """
        self._reset_rubric()
        squares = random.Random(seed).sample([each for each in SQUARES if each != START], 4)
        men = dict(zip(squares, VALUES, strict=True))
        self._board = KnightObservation(knight=START, men=men)
        self._state = State(episode_id=episode_id or uuid4().hex)
        return self._board

    def step(
        self, action: KnightAction, timeout_s: float | None = None, **kwargs: Any
    ) -> KnightObservation:
        """Move the knight.

        Args:
            action: The move.
            timeout_s: Not used; a step takes no time.
            **kwargs: Not used.

        Raises:
            EpisodeError: No game is running.
            InvalidArgumentError: A knight doesn't move so; the game stays as it was.
        """
        board = self._board
        if board is None or board.done:
            raise EpisodeError("no game is running; call reset() to begin one")
        if action.to not in moves(board.knight):
            raise InvalidArgumentError(
                f"a knight on {board.knight} goes to {', '.join(moves(board.knight))}, "
                f"not to {action.to!r:.20}"
            )
        self._state.step_count += 1
        taken = board.men.get(action.to)
        won = taken == "king"
        self._board = KnightObservation(
            knight=action.to,
            men={square: man for square, man in board.men.items() if square != action.to},
            taken=taken,
            won=won,
            done=won or self._state.step_count == self.longest,
        )
        return self.score(action, self._board)
