"""A small scripted opponent."""

from __future__ import annotations

import random
from collections.abc import Callable

from examples.connect4.board import COLUMNS, Board, Side, other

__all__ = ["Opponent", "scripted"]

# What chooses a column: the board, its own side, and the only randomness it may use.
Opponent = Callable[[Board, Side, random.Random], int]


def scripted(board: Board, side: Side, rng: random.Random) -> int:
    """Win at once if that can be; else block who would win next; else rather in the middle.

    Example:
        >>> import random
        >>> from examples.connect4.board import Board
        >>> from examples.connect4.opponent import scripted
        >>> board = Board(("XXX", "OO", "", "", "", "", ""))
        >>> scripted(board, "X", random.Random(0)), scripted(board, "O", random.Random(0))
        (0, 0)

    Args:
        board: A position whose game isn't over.
        side: Whom to play for.
        rng: Chooses where nothing is forced.

    Returns:
        A column that takes a piece.
    """
    for who in (side, other(side)):
        for column in board.legal_columns:
            if board.drop(column, who).winner:
                return column
    # The middle column is part of the most rows of four.
    weights = [1 + COLUMNS // 2 - abs(column - COLUMNS // 2) for column in board.legal_columns]
    return rng.choices(board.legal_columns, weights)[0]
