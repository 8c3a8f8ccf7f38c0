"""How good a position is for a side: material, mobility, and the safety of its king.

Each is a number in [0, 1]. Of material and mobility, both sides have 0.5 in a balanced position.
"""

from __future__ import annotations

from examples.chess.game import Side, other

__all__ = ["VALUES", "king_safety", "material", "mobility"]

# In pawns.
VALUES = {"p": 1, "n": 3, "b": 3, "r": 5, "q": 9}

Square = tuple[int, int]  # file and rank, from 0
Pieces = dict[Square, str]

STRAIGHT = [(1, 0), (-1, 0), (0, 1), (0, -1)]
DIAGONAL = [(1, 1), (1, -1), (-1, 1), (-1, -1)]
STEPS = {
    "n": [(1, 2), (2, 1), (2, -1), (1, -2), (-1, -2), (-2, -1), (-2, 1), (-1, 2)],
    "b": DIAGONAL,
    "r": STRAIGHT,
    "q": STRAIGHT + DIAGONAL,
    "k": STRAIGHT + DIAGONAL,
}
SLIDERS = "brq"


def material(fen: str, side: Side) -> float:
    """Return the side's share of the material.

    Example:
        >>> from examples.chess.evaluation import material
        >>> material("4k3/8/8/8/8/8/PPP5/4K2n w - - 0 1", "white")
        0.5

    Args:
        fen: The position.
        side: The side.
    """
    pieces = _pieces(fen)
    return _share(_value(pieces, side), _value(pieces, other(side)))


def mobility(fen: str, side: Side) -> float:
    """Return the side's share of the squares that the pieces of both sides can reach.

    Example:
        >>> from examples.chess.evaluation import mobility
        >>> mobility("4k3/8/8/8/8/8/8/R3K3 w - - 0 1", "white")  # 15 squares beside 5
        0.75

    Args:
        fen: The position.
        side: The side.
    """
    pieces = _pieces(fen)
    counts = [
        sum(not _is_of(pieces.get(square, ""), each) for square in _attacks(pieces, each))
        for each in (side, other(side))
    ]
    return _share(*counts)


def king_safety(fen: str, side: Side) -> float:
    """Return the share of the squares at the side's king that the other side doesn't attack.

    Example:
        >>> from examples.chess.evaluation import king_safety
        >>> king_safety("4k3/8/8/8/8/8/r7/4K3 w - - 0 1", "white")  # 3 of 6 are attacked
        0.5

    Args:
        fen: The position.
        side: The side.
    """
    pieces = _pieces(fen)
    king = "K" if side == "white" else "k"
    (square,) = (square for square, piece in pieces.items() if piece == king)
    zone = {square, *_reached(pieces, square, "k")}
    return 1 - len(zone & set(_attacks(pieces, other(side)))) / len(zone)


def _pieces(fen: str) -> Pieces:
    """The pieces by their squares; White's are upper-case letters."""
    pieces = {}
    for row, text in enumerate(fen.split()[0].split("/")):
        file = 0
        for letter in text:
            if letter.isdecimal():
                file += int(letter)
            else:
                pieces[file, 7 - row] = letter
                file += 1
    return pieces


def _is_of(piece: str, side: Side) -> bool:
    return piece.isupper() if side == "white" else piece.islower()


def _share(own: int, others: int) -> float:
    return own / (own + others) if own + others else 0.5


def _value(pieces: Pieces, side: Side) -> int:
    return sum(VALUES.get(each.lower(), 0) for each in pieces.values() if _is_of(each, side))


def _attacks(pieces: Pieces, side: Side) -> list[Square]:
    """The squares that each piece of a side attacks or protects, one after another."""
    return [
        reached
        for square, piece in pieces.items()
        if _is_of(piece, side)
        for reached in _reached(pieces, square, piece)
    ]


def _reached(pieces: Pieces, square: Square, piece: str) -> list[Square]:
    """The squares that a piece on a square attacks or protects."""
    file, rank = square
    kind = piece.lower()
    if kind == "p":
        ahead = rank + (1 if piece.isupper() else -1)
        return [(side, ahead) for side in (file - 1, file + 1) if 0 <= side < 8]
    found = []
    for right, up in STEPS[kind]:
        for distance in range(1, 8 if kind in SLIDERS else 2):
            reached = file + distance * right, rank + distance * up
            if not (0 <= reached[0] < 8 and 0 <= reached[1] < 8):
                break
            found.append(reached)
            if reached in pieces:
                break
    return found
