"""Opponents of three strengths: each chooses a legal move of a game."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

from examples.chess.evaluation import VALUES, mobility
from examples.chess.game import Game

__all__ = ["OPPONENTS", "Opponent", "greedy", "search", "uniform"]

# Takes a game that isn't over and a random generator; returns a move in SAN.
Opponent = Callable[[Game, random.Random], str]

MATE = 1000.0
NOISE = 0.05  # of the share of mobility, so that games differ


def uniform(game: Game, rng: random.Random) -> str:
    """Play any legal move.

    Example:
        >>> import random
        >>> from examples.chess.game import Game
        >>> from examples.chess.opponents import uniform
        >>> uniform(Game(), random.Random(0)) in Game().legal_moves
        True
    """
    return rng.choice(list(game.legal_moves))


def greedy(game: Game, rng: random.Random) -> str:
    """Give mate if possible, else take the most valuable piece, whatever the reply.

    Example:
        >>> import random
        >>> from examples.chess.game import Game
        >>> from examples.chess.opponents import greedy
        >>> greedy(Game("k7/8/K7/8/8/8/3n3R/8 w - - 0 1"), random.Random(0))
        'Rh8#'
    """
    return rng.choice(_best(game, depth=1))


def search(game: Game, rng: random.Random) -> str:
    """Play the best move after the opponent's best reply; of equal moves, a mobile one.

    Example:
        >>> import random
        >>> from examples.chess.game import Game
        >>> from examples.chess.opponents import search
        >>> game = Game("4k3/8/2p5/3p4/8/8/3R4/4K3 w - - 0 1")
        >>> search(game, random.Random(0)) != "Rxd5"  # the pawn is protected
        True
    """
    side = game.turn
    assert side is not None
    shares = {san: mobility(game.after(san), side) for san in _best(game, depth=2)}
    return max(shares, key=lambda san: shares[san] + rng.uniform(0, NOISE))


OPPONENTS: dict[str, Opponent] = {"random": uniform, "greedy": greedy, "search": search}


def _best(game: Game, *, depth: int) -> list[str]:
    """The moves with the highest value."""
    best = -math.inf
    moves: list[str] = []
    for san, action in game.actions.items():
        # Half a pawn less than the best, so that the value of an equal move is exact.
        value = -_value(game.state.child(action), depth - 1, -math.inf, -best + 0.5)
        if value > best:
            best, moves = value, []
        if value == best:
            moves.append(san)
    return moves


def _value(state: Any, depth: int, low: float, high: float) -> float:
    """The material, in pawns, of the side that moves next less the other's, by alpha-beta search.

    Args:
        state: OpenSpiel's state.
        depth: How many moves to look ahead.
        low: A value of at most this isn't better than another line.
        high: A value of at least this is a line that the other side avoids.
    """
    if state.is_terminal():
        return -(MATE + depth) if any(state.returns()) else 0.0
    if depth == 0:
        return _balance(str(state))
    best = -math.inf
    for action in state.legal_actions():
        best = max(best, -_value(state.child(action), depth - 1, -high, -max(low, best)))
        if best >= high:
            break
    return best


def _balance(fen: str) -> float:
    pieces, turn = fen.split()[:2]
    white = sum(
        value * (pieces.count(piece.upper()) - pieces.count(piece))
        for piece, value in VALUES.items()
    )
    return white if turn == "w" else -white
