"""Reading a move: what an answer states, and which legal move that is."""

from __future__ import annotations

import re
from collections.abc import Mapping

from guerdon.errors import InvalidArgumentError

__all__ = ["find_move", "read_move"]

TAGGED = re.compile(r"<move>([^<]*)</move>")
UCI = re.compile(r"[a-h][1-8][a-h][1-8][qrbn]?")
SAN = re.compile(
    r"(?P<piece>[KQRBN]?)(?P<file>[a-h]?)(?P<rank>[1-8]?)(?P<takes>x?)(?P<to>[a-h][1-8])"
    r"(?P<promotion>(?:=[QRBN])?)[+#]?"
)
CASTLING = re.compile(r"([O0])-\1(?:-\1)?[+#]?")


def read_move(answer: str) -> str:
    """Return the move that an answer states.

    An answer is a move alone, or any text with one move in a tag. A move is in SAN, as Portable
    Game Notation has it, or in UCI's notation.

    Example:
        >>> from examples.chess.notation import read_move
        >>> read_move(" e2e4 "), read_move("I develop a piece. <move>Nf3</move>")
        ('e2e4', 'Nf3')

    Args:
        answer: The text of a model.

    Raises:
        InvalidArgumentError: The answer doesn't state a move, or states several.
    """
    tagged = TAGGED.findall(answer)
    stated = (tagged[0] if len(tagged) == 1 else answer).strip()
    if any(pattern.fullmatch(stated) for pattern in (UCI, SAN, CASTLING)):
        return stated
    found = f"{len(tagged)} tags" if len(tagged) > 1 else f"{stated!r:.60}"
    raise InvalidArgumentError(
        "an answer must be one move in SAN, such as Nf3, or UCI, such as g1f3, alone or in one "
        f"tag: <move>Nf3</move>; got {found}"
    )


def find_move(move: str, legal_moves: Mapping[str, str], turn: str | None) -> str:
    """Return the SAN of the legal move that is meant.

    ``+`` and ``#`` may be left out, and the square that the piece comes from may be more precise
    than it has to be.

    Example:
        >>> from examples.chess.notation import find_move
        >>> legal = {"Nbd2": "b1d2", "Nfd2": "f3d2", "Ne5": "f3e5"}
        >>> find_move("f3d2", legal, "white"), find_move("Nfe5", legal, "white")
        ('Nfd2', 'Ne5')

    Args:
        move: A move, as `read_move` returns it.
        legal_moves: The legal moves: their UCI by their SAN.
        turn: The side that moves, for the error.

    Raises:
        InvalidArgumentError: The move isn't legal, or it is ambiguous.
    """
    found = [san for san, uci in legal_moves.items() if uci == move or _fits(move, san, uci)]
    if len(found) == 1:
        return found[0]
    if found:
        raise InvalidArgumentError(f"{move!r} is ambiguous: it may be {' or '.join(found)}")
    raise InvalidArgumentError(f"{move!r} is not a legal move of {turn}, whose turn it is")


def _fits(move: str, san: str, uci: str) -> bool:
    """Whether a move in SAN means a legal move."""
    given, legal = SAN.fullmatch(move), SAN.fullmatch(san)
    if given is None or legal is None:
        return move.rstrip("+#").replace("0", "O") == san.rstrip("+#")  # castling
    same = all(given[name] == legal[name] for name in ("piece", "takes", "to", "promotion"))
    return same and given["file"] in ("", uci[0]) and given["rank"] in ("", uci[1])
