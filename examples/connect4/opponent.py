"""A small scripted opponent."""

from __future__ import annotations

import random
from collections.abc import Callable

from examples.connect4.board import COLUMNS, Board, Side, other

__all__ = ["Opponent", "scripted"]

# Takes the board, its side and a random generator; returns a column.
Opponent = Callable[[Board, Side, random.Random], int]


def scripted(board: Board, side: Side, rng: random.Random) -> int:
    """Win if possible, else block an immediate win, else prefer the middle.

    Example:
        >>> import random
        >>> from examples.connect4.board import Board
        >>> from examples.connect4.opponent import scripted
        >>> board = Board(("XXX", "OO", "", "", "", "", ""))
        >>> scripted(board, "X", random.Random(0)), scripted(board, "O", random.Random(0))
        (0, 0)

    Args:
        board: A position in which the game isn't over.
        side: The side to play for.
        rng: The random generator for moves that aren't forced.

    Returns:
        A legal column.
    """
    for player in (side, other(side)):
        for column in board.legal_columns:
            if board.drop(column, player).winner:
                return column
    # Most lines of four include the middle column.
    weights = [1 + COLUMNS // 2 - abs(column - COLUMNS // 2) for column in board.legal_columns]
    return rng.choices(board.legal_columns, weights)[0]
