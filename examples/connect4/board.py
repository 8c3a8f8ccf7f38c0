"""The board: positions of pieces, legal columns, and the winner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Self

from guerdon.errors import InvalidArgumentError

__all__ = ["Board", "COLUMNS", "ROWS", "SIDES", "Side", "other"]

COLUMNS = 7
ROWS = 6
EMPTY = "."

Side = Literal["X", "O"]
SIDES: tuple[Side, Side] = ("X", "O")


def other(side: Side) -> Side:
    """Return the opposite side.

    Example:
        >>> from examples.connect4.board import other
        >>> other("X")
        'O'
    """
    return "O" if side == "X" else "X"


@dataclass(frozen=True, slots=True)
class Board:
    """An immutable position; dropping a piece returns a new board.

    Example:
        >>> from examples.connect4.board import Board
        >>> board = Board().drop(3, "X").drop(3, "O").drop(4, "X")
        >>> print(board.draw())
        . . . . . . .
        . . . . . . .
        . . . . . . .
        . . . . . . .
        . . . O . . .
        . . . X X . .
        0 1 2 3 4 5 6
        >>> board.turn, board.winner, board.over
        ('O', None, False)

    Attributes:
        columns: The pieces of each column from left to right, each from the bottom up, such as
            ``"XO"``.
    """

    columns: tuple[str, ...] = ("",) * COLUMNS

    @classmethod
    def from_rows(cls, rows: Sequence[str]) -> Self:
        """Create a board from its rows.

        Example:
            >>> from examples.connect4.board import Board
            >>> board = Board().drop(2, "X")
            >>> Board.from_rows(board.rows) == board
            True

        Args:
            rows: 6 texts of 7 characters, ``X``, ``O`` or ``.``, the top row first.

        Raises:
            InvalidArgumentError: `rows` has a wrong size, a wrong character, or a floating piece.
        """
        if len(rows) != ROWS or any(len(row) != COLUMNS for row in rows):
            raise InvalidArgumentError(
                f"`rows` must be {ROWS} rows of {COLUMNS} characters, got {rows!r:.80}"
            )
        columns = tuple("".join(pile).rstrip(EMPTY) for pile in zip(*reversed(rows), strict=True))
        for number, pile in enumerate(columns):
            if not set(pile) <= set(SIDES):
                raise InvalidArgumentError(
                    f"column {number} must consist of X and O, with {EMPTY} only above them; "
                    f"got {pile!r} from the bottom up"
                )
        return cls(columns)

    @property
    def rows(self) -> list[str]:
        """The board as 6 texts of 7 characters, the top row first."""
        piles = [pile.ljust(ROWS, EMPTY) for pile in self.columns]
        return ["".join(pile[height] for pile in piles) for height in reversed(range(ROWS))]

    @property
    def turn(self) -> Side:
        """The side to move; X begins."""
        return SIDES[sum(map(len, self.columns)) % 2]

    @property
    def legal_columns(self) -> list[int]:
        """The columns that aren't full; empty once the game is won."""
        if self.winner:
            return []
        return [number for number, pile in enumerate(self.columns) if len(pile) < ROWS]

    @property
    def winner(self) -> Side | None:
        """The side that has four in a row, column or diagonal, or None."""
        lines = list(self._lines())
        return next((side for side in SIDES if any(side * 4 in line for line in lines)), None)

    @property
    def full(self) -> bool:
        """Whether all columns are full."""
        return all(len(pile) == ROWS for pile in self.columns)

    @property
    def over(self) -> bool:
        """Whether the game is won or the board is full."""
        return self.full or self.winner is not None

    def drop(self, column: int, side: Side) -> Board:
        """Drop a piece.

        Args:
            column: The column, from 0 at the left to 6.
            side: The side that moves.

        Returns:
            A new board with the piece.

        Raises:
            InvalidArgumentError: The column is unknown or full, or the game is over.
        """
        if column not in self.legal_columns:
            raise InvalidArgumentError(
                f"{side} can't drop a piece in column {column}; the legal columns: "
                + (", ".join(map(str, self.legal_columns)) or "none, the game is over")
            )
        piles = list(self.columns)
        piles[column] += side
        return Board(tuple(piles))

    def draw(self) -> str:
        """Return the board as text, with the column numbers below."""
        numbers = "".join(map(str, range(COLUMNS)))
        return "\n".join(" ".join(row) for row in [*self.rows, numbers])

    def _lines(self) -> Iterator[str]:
        rows = self.rows
        yield from self.columns
        yield from rows
        # Shifting each row by one more than the row above it turns diagonals into columns.
        for shifted in (
            [EMPTY * n + row + EMPTY * (ROWS - n) for n, row in enumerate(rows)],
            [EMPTY * (ROWS - n) + row + EMPTY * n for n, row in enumerate(rows)],
        ):
            yield from map("".join, zip(*shifted, strict=True))
