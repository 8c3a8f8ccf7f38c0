"""Makes textarena's games without a download, and with a random generator of their own."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from guerdon.errors import InvalidArgumentError, MissingExtraError

__all__ = ["GAMES", "WORDS", "check_game", "make_game", "random_of"]

# Games with one player that need no network and no model, and accept any answer without an error.
# fmt: off
GAMES = (
    "2048-v0", "2048-v0-mega-easy", "Bandit-v0", "Blackjack-v0", "FifteenPuzzle-v0",
    "FrozenLake-v0", "FrozenLake-v0-hardcore", "FrozenLake-v0-random", "Hangman-v0",
    "Mastermind-v0", "Mastermind-v0-hard", "Minesweeper-v0", "Minesweeper-v0-small", "PegJump-v0",
    "Secretary-v0", "Sudoku-v0", "Sudoku-v0-easy", "TowerOfHanoi-v0",
    "TowerOfHanoi-v0-medium", "Wordle-v0",
)
# fmt: on

WORDS = tuple(Path(__file__).with_name("words.txt").read_text(encoding="utf-8").split())

_importing = threading.Lock()
_generator: ContextVar[random.Random] = ContextVar("generator")  # of the game that is called


def check_game(game: str) -> str:
    """Return the ID of a game.

    Example:
        >>> from examples.textarena.offline import check_game
        >>> check_game("Wordle-v0")
        'Wordle-v0'

    Raises:
        InvalidArgumentError: The game is unknown, or isn't played here.
    """
    if game not in GAMES:
        raise InvalidArgumentError(f"`game` must be one of {', '.join(GAMES)}; got {game!r:.100}")
    return game


def make_game(game: str, generator: random.Random) -> Any:
    """Return one of textarena's environments, without its wrappers.

    Example:
        >>> import random
        >>> from examples.textarena.offline import make_game
        >>> def main():
        ...     print(make_game("Wordle-v0", random.Random(1)).num_guesses)

    Args:
        game: The ID of the game.
        generator: What some games draw from already when they are made.

    Raises:
        MissingExtraError: The package ``textarena`` isn't installed.
    """
    with _importing, random_of(generator):
        registration = _textarena().envs.registration
        module, _, _ = registration.ENV_REGISTRY[f"{game}-raw"].entry_point.partition(":")
        import_module(module).random = _Random()  # type: ignore[attr-defined]
        return registration.make(f"{game}-raw")


@contextmanager
def random_of(generator: random.Random) -> Iterator[None]:
    """Let the games that are called in this block draw from a generator.

    Example:
        >>> import random
        >>> from examples.textarena.offline import make_game, random_of
        >>> def main():
        ...     generator = random.Random(7)
        ...     game = make_game("Mastermind-v0", generator)
        ...     with random_of(generator):
        ...         game.reset(num_players=1)
    """
    token = _generator.set(generator)
    try:
        yield
    finally:
        _generator.reset(token)


class _Random:
    """The module `random` of a game, whose functions draw from the generator of `random_of`."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_generator.get(), name)


class _Words:
    """The corpus `nltk.corpus.words`, with our list."""

    @staticmethod
    def words(*fileids: str) -> list[str]:
        return list(WORDS)


@cache
def _textarena() -> Any:
    """Import textarena, and its games with words, which download data when they are imported."""
    try:
        import nltk
        import textarena
        from textarena.envs.utils import word_lists
    except ImportError as error:
        raise MissingExtraError(
            "TextArenaEnvironment requires the package textarena: pip install 'guerdon[textarena]'",
            extra="textarena",
        ) from error
    replaced = nltk.download, nltk.pos_tag, nltk.corpus.words
    nltk.download = lambda *names, **options: False
    nltk.pos_tag = lambda words: [(word, "NN") for word in words]  # all of ours are nouns
    nltk.corpus.words = word_lists.words = _Words
    # Its files of 100,000 words, which it reads in a second, are read once for all games.
    dictionary = word_lists.EnglishDictionary(keep_proper_nouns=False, include_nltk=True)
    word_lists.EnglishDictionary = lambda **options: dictionary
    try:
        import_module("textarena.envs.Wordle.env")
        import_module("textarena.envs.Hangman.env")
    finally:
        nltk.download, nltk.pos_tag, nltk.corpus.words = replaced
    return textarena
