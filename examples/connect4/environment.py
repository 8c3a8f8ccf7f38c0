"""The environment: one game, against an opponent or with both sides played by the caller."""

from __future__ import annotations

import random
import uuid
from typing import Any

from examples.connect4.board import Board, Side
from examples.connect4.models import Connect4Action, Connect4Observation, Connect4State
from examples.connect4.opponent import Opponent, scripted
from examples.connect4.rubrics import Won
from guerdon import Environment
from guerdon.errors import EpisodeError, InvalidArgumentError

__all__ = ["Connect4Environment"]


class Connect4Environment(Environment[Connect4Action, Connect4Observation, Connect4State]):
    """Connect four: drop pieces in turn, and be the first with four in a row.

    X begins. A step is the agent's move together with the opponent's reply; with
    ``opponent=None`` it is one move, of the side that the last observation calls `turn`. A move
    that can't be played is refused, and the game stays as it was.

    Example:
        >>> from examples.connect4.environment import Connect4Environment
        >>> from examples.connect4.models import Connect4Action
        >>> with Connect4Environment() as environment:
        ...     first = environment.reset(seed=7)
        ...     observation = environment.step(Connect4Action(column=3))
        >>> len(observation.last_moves), observation.turn, observation.reward
        (2, 'X', 0.0)

    Args:
        opponent: Who plays the other side: a function of the board, its side and a generator of
            random numbers that gives a column. None: actions move both sides in turn.
        gamma: The discount of the reward, in [0, 1].
        agent_first: Whether the agent plays X; else the opponent does, and `reset` shows its
            first move.

    Raises:
        InvalidArgumentError: `gamma` is outside [0, 1], or nobody is there to go first.
    """

    def __init__(
        self,
        opponent: Opponent | None = scripted,
        *,
        gamma: float = 0.99,
        agent_first: bool = True,
    ) -> None:
        super().__init__(rubric=Won(gamma=gamma))
        if opponent is None and not agent_first:
            raise InvalidArgumentError(
                "agent_first=False needs an opponent that goes first; opponent=None moves both "
                "sides by actions"
            )
        self.opponent = opponent
        self.agent_first = agent_first
        self._board: Board | None = None
        self._rng = random.Random()
        self._state = Connect4State(agent=self._agent)

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> Connect4Observation:
        """Begin a game.

        Args:
            seed: Decides what the opponent plays; without one it differs from game to game.
            episode_id: What to call the game; one is made up otherwise.
            **kwargs: Not used.

        Returns:
            The empty board, or the one with the opponent's first piece.
        """
        self._reset_rubric()
        self._board = None  # no game runs, should the opponent fail at its first move
        self._rng = random.Random(seed)
        self._state = Connect4State(episode_id=episode_id or str(uuid.uuid4()), agent=self._agent)
        board, moves = Board(), []
        if self.opponent and not self.agent_first:
            board, reply = self._reply(board)
            moves = [reply]
        return self._observe(board, moves, mover=None)

    def step(
        self, action: Connect4Action, timeout_s: float | None = None, **kwargs: Any
    ) -> Connect4Observation:
        """Drop a piece, and have the opponent drop one.

        Args:
            action: The column.
            timeout_s: Not used; a step takes no time.
            **kwargs: Not used.

        Returns:
            The board; its reward is 0 until the game is over, then the outcome.

        Raises:
            EpisodeError: No game is running.
            InvalidArgumentError: The column is full; the game stays as it was.
        """
        if self._board is None:
            raise EpisodeError("no game has begun; call reset() first")
        if self._board.over:
            raise EpisodeError("the game is over; call reset() to begin another")
        mover = self._board.turn
        # Both moves are worked out before either is kept: what is refused changes nothing.
        board, moves = self._board.drop(action.column, mover), [action.column]
        if self.opponent and not board.over:
            board, reply = self._reply(board)
            moves.append(reply)
        self._state.step_count += 1
        return self.score(action, self._observe(board, moves, mover=mover))

    @property
    def state(self) -> Connect4State:
        """Where the game stands."""
        return self._state

    @property
    def _agent(self) -> Side | None:
        if self.opponent is None:
            return None
        return "X" if self.agent_first else "O"

    def _reply(self, board: Board) -> tuple[Board, int]:
        assert self.opponent is not None
        column = self.opponent(board, board.turn, self._rng)
        return board.drop(column, board.turn), column

    def _observe(
        self, board: Board, moves: list[int], *, mover: Side | None
    ) -> Connect4Observation:
        """Keep the board, and show it."""
        self._board = board
        self._state.moves = [*self._state.moves, *moves]
        return Connect4Observation(
            done=board.over,
            board=board.rows,
            turn=None if board.over else board.turn,
            legal_columns=board.legal_columns,
            last_moves=moves,
            mover=mover,
            winner=board.winner,
        )
