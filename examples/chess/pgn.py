"""Reads games in Portable Game Notation, and makes rollouts of them, one for each side.

`guerdon score` scores the rollouts with the reward of the environment::

    python -m examples.chess.pgn examples/chess/games.pgn > games.jsonl
    guerdon score games.jsonl --reward examples/chess/reward.yaml --by player
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from examples.chess.game import Game, Result, Side
from examples.chess.models import ChessObservation
from examples.chess.notation import find_move
from guerdon.errors import InvalidArgumentError

__all__ = ["PgnGame", "main", "read_pgn", "replay", "rollouts", "to_rollout"]

SIDES: tuple[Side, ...] = get_args(Side)
RESULTS: tuple[Result, ...] = get_args(Result)
TOKEN = re.compile(
    r'\[\s*(?P<name>\w+)\s+"(?P<value>(?:[^"\\]|\\.)*)"\s*\]'
    r"|(?P<skipped>\{[^}]*\}|;.*|^%.*|\$\d+|[!?]+|\s+)"
    r"|(?P<bracket>[()])"
    r"|(?P<result>1-0|0-1|1/2-1/2|\*)"
    r"|(?P<move>(?:[A-Za-z]|0-0|--)[\w=+#-]*)"
    r"|(?P<number>\d+\.*|\.+)",
    re.MULTILINE,
)


@dataclass(slots=True)
class PgnGame:
    """A game as a file has it.

    Example:
        >>> from examples.chess.pgn import read_pgn
        >>> [game] = read_pgn('[White "Ann"] 1. f3 e5 2. g4?? {Oh.} Qh4# 0-1')
        >>> game.headers["White"], game.moves, game.result
        ('Ann', ['f3', 'e5', 'g4', 'Qh4#'], '0-1')

    Attributes:
        number: Its number in the file, from 1.
        headers: The headers, such as ``White``.
        moves: The moves of both sides, in SAN, without comments, variations and annotations.
        result: ``1-0``, ``0-1``, ``1/2-1/2``, or ``*`` if it is unknown or the game goes on.
    """

    number: int
    headers: dict[str, str] = field(default_factory=dict)
    moves: list[str] = field(default_factory=list)
    result: str = "*"


def read_pgn(text: str) -> Iterator[PgnGame]:
    """Read games, whose moves aren't checked.

    Args:
        text: The text of a file.

    Raises:
        InvalidArgumentError: The text isn't in Portable Game Notation.
    """
    game = PgnGame(1)
    for token in _tokens(text):
        if token["name"]:
            # The game before has no result at its end.
            if game.moves or token["name"] in game.headers:
                yield game
                game = PgnGame(game.number + 1)
            game.headers[token["name"]] = re.sub(r"\\(.)", r"\1", token["value"])
        elif token["move"]:
            game.moves.append(token["move"])
        elif token["result"]:
            game.result = token["result"]
            yield game
            game = PgnGame(game.number + 1)
    if game.moves or game.headers:
        yield game


def _tokens(text: str) -> Iterator[re.Match[str]]:
    """The tokens of a file, without those of variations."""
    depth = place = 0
    while place < len(text):
        token = TOKEN.match(text, place)
        if token is None:
            line = text.count("\n", 0, place) + 1
            raise InvalidArgumentError(f"line {line}: not PGN: {text[place : place + 20]!r}")
        place = token.end()
        if token["bracket"]:
            depth += 1 if token["bracket"] == "(" else -1
        elif depth == 0:
            yield token
        if depth < 0:
            break
    if depth != 0:
        raise InvalidArgumentError("not PGN: the brackets of variations don't match")


def replay(pgn: PgnGame) -> Game:
    """Play a game to its end.

    Example:
        >>> from examples.chess.pgn import read_pgn, replay
        >>> [game] = read_pgn("1. f3 e5 2. g4 Qh4# 0-1")
        >>> replay(game).ended_by
        'checkmate'

    Args:
        pgn: The game.

    Raises:
        InvalidArgumentError: A move is illegal or ambiguous, or the game is over before it.
    """
    game = _begin(pgn)
    while len(game.moves) < len(pgn.moves):
        _play_next(pgn, game)
    return game


def to_rollout(pgn: PgnGame, side: Side) -> dict[str, Any]:
    """Return a game as a rollout: what an agent of a side would have seen and answered.

    The observations are JSON, as in the rollouts of `RLRolloutWorker`.

    Example:
        >>> from examples.chess.pgn import read_pgn, to_rollout
        >>> [game] = read_pgn("1. f3 e5 2. g4 Qh4# 0-1")
        >>> [message["content"] for message in to_rollout(game, "black")["messages"][1::2]]
        ['e5', 'Qh4#']

    Args:
        pgn: The game. Its result ends it if the rules don't: a player resigned, or both agreed.
        side: The side.

    Raises:
        InvalidArgumentError: The moves can't be played, or they have another result.
    """
    game = _begin(pgn)
    previous: str | None = None
    last_moves: list[str] = []
    messages: list[dict[str, str]] = []
    while len(game.moves) < len(pgn.moves):
        is_own = game.turn == side
        if is_own:
            messages.append(_message(game, side, previous, last_moves))
            previous, last_moves = game.fen, []
        san = _play_next(pgn, game)
        last_moves.append(san)
        if is_own:
            messages.append({"role": "assistant", "content": san})
    ended = _ended(pgn, game)
    messages.append(_message(game, side, previous, last_moves, ended))
    return {
        "id": f"{pgn.number}-{side}",
        "side": side,
        "player": pgn.headers.get(side.capitalize(), "?"),
        "result": ended[0] if ended else game.result,
        "messages": messages,
    }


def rollouts(text: str) -> Iterator[dict[str, Any]]:
    """Return the rollouts of all games of a file; of a game that can't be played, the error.

    Example:
        >>> from examples.chess.pgn import rollouts
        >>> next(rollouts("1. e5 *"))["error"]
        "game 1, ply 1: 'e5' is not a legal move of white, whose turn it is"

    Args:
        text: The text of a file.

    Raises:
        InvalidArgumentError: The text isn't in Portable Game Notation.
    """
    for pgn in read_pgn(text):
        for side in SIDES:
            try:
                yield to_rollout(pgn, side)
            except InvalidArgumentError as error:
                yield {"id": f"{pgn.number}-{side}", "ended": "error", "error": str(error)}


def _begin(pgn: PgnGame) -> Game:
    if "FEN" in pgn.headers:
        raise InvalidArgumentError(
            f"game {pgn.number}: it has a FEN header; only games from the first position are read"
        )
    return Game()


def _play_next(pgn: PgnGame, game: Game) -> str:
    """Play the next move of a game, and return it."""
    move = pgn.moves[len(game.moves)]
    where = f"game {pgn.number}, ply {len(game.moves) + 1}"
    if game.turn is None:
        raise InvalidArgumentError(f"{where}: {move!r} after the end by {game.ended_by}")
    try:
        san = find_move(move, game.legal_moves, game.turn)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{where}: {error}") from error
    game.play(san)
    return san


def _ended(pgn: PgnGame, game: Game) -> tuple[Result, str] | None:
    """How the game ended otherwise than by the rules; None if it didn't."""
    known = {pgn.result, pgn.headers.get("Result", "*"), game.result or "*"} - {"*"}
    if len(known) > 1:
        raise InvalidArgumentError(
            f"game {pgn.number}: the file or the board has different results: "
            f"{', '.join(sorted(known))}"
        )
    if game.result is None:
        for result in RESULTS:
            if result in known:
                return result, "resignation or agreement"
    return None


def _message(
    game: Game,
    side: Side,
    previous: str | None,
    last_moves: list[str],
    ended: tuple[Result, str] | None = None,
) -> dict[str, str]:
    seen = ChessObservation.of(
        game, side, previous_fen=previous, last_moves=last_moves, ended=ended
    )
    text = seen.model_dump_json(exclude={"done", "reward", "metadata"})
    return {"role": "user", "content": text}


def main() -> int:
    """Print the rollouts of a file as JSONL."""
    if len(sys.argv) != 2:
        print("usage: python -m examples.chess.pgn GAMES.pgn", file=sys.stderr)
        return 2
    path = sys.argv[1]
    try:
        for row in rollouts(Path(path).read_text(encoding="utf-8-sig", errors="replace")):
            print(json.dumps(row))
    except (InvalidArgumentError, OSError) as error:
        print(f"error: {path}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
