"""The rules: a game that each clue, guess or pass turns into the next one."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Self

from examples.codenames.models import Color, Ending
from examples.codenames.words import WORDS
from guerdon.errors import InvalidArgumentError

__all__ = ["Game"]

SIZE = 25
AGENTS = 7  # and one assassin; the others are bystanders
CLUES = 7


@dataclass(frozen=True, slots=True)
class Game:
    """A position of the game.

    Example:
        >>> from examples.codenames.game import Game
        >>> game = Game({"cow": "agent", "moon": "bystander"}).give_clue("animal", 1).guess("cow")
        >>> game.ending, game.hidden
        ('all found', ['moon'])

    Attributes:
        key: The words of the board with their colors.
        guessed: The words that were guessed, in order.
        clue: The clue of this turn; empty if one is expected.
        number: Its number.
        guesses_left: The number of guesses that remain in this turn.
        clues_left: The number of clues that remain.
        ending: How the game ended; None before.
    """

    key: dict[str, Color]
    guessed: list[str] = field(default_factory=list)
    clue: str = ""
    number: int = 0
    guesses_left: int = 0
    clues_left: int = CLUES
    ending: Ending | None = None

    @classmethod
    def begin(cls, seed: int | None) -> Self:
        """Return a game with a random board."""
        rng = random.Random(seed)
        words = rng.sample(WORDS, SIZE)
        key: dict[str, Color] = dict.fromkeys(words, "bystander")
        chosen = rng.sample(words, AGENTS + 1)
        key |= dict.fromkeys(chosen, "agent")
        key[chosen[0]] = "assassin"
        return cls(key)

    @property
    def hidden(self) -> list[str]:
        """The words that weren't guessed."""
        return [word for word in self.key if word not in self.guessed]

    def give_clue(self, word: str, number: int) -> Self:
        """Begin a turn.

        Raises:
            InvalidArgumentError: The clue is a word of the board, or contains one.
        """
        if self.clue:
            raise InvalidArgumentError(
                f"a guess or a pass of the guesser is expected, got the clue {word!r:.60}"
            )
        inside = [each for each in self.key if each in word]
        if not word or inside:
            problem = f"{word!r:.60} contains {inside[0]!r}" if inside else "it is empty"
            raise InvalidArgumentError(
                f"{problem}; a clue must be a word that neither is nor contains one of the board"
            )
        return replace(
            self,
            clue=word,
            number=number,
            guesses_left=number + 1,
            clues_left=self.clues_left - 1,
        )

    def guess(self, word: str) -> Self:
        """Reveal a word.

        Raises:
            InvalidArgumentError: The word isn't a hidden one, or a clue is expected.
        """
        if not self.clue:
            raise InvalidArgumentError(
                f"a clue of the spymaster is expected, got the guess {word!r:.60}"
            )
        if word not in self.hidden:
            problem = "was already guessed" if word in self.guessed else "isn't on the board"
            raise InvalidArgumentError(
                f"a guess must be a hidden word, and {word!r:.60} {problem}; the hidden words: "
                f"{', '.join(self.hidden)}"
            )
        game = replace(self, guessed=[*self.guessed, word], guesses_left=self.guesses_left - 1)
        if self.key[word] == "assassin":
            return replace(game, ending="assassin")
        if not any(self.key[each] == "agent" for each in game.hidden):
            return replace(game, ending="all found")
        if self.key[word] == "bystander" or not game.guesses_left:
            return game.end_turn()
        return game

    def end_turn(self) -> Self:
        """End the turn, as a pass does.

        Raises:
            InvalidArgumentError: A clue is expected.
        """
        if not self.clue:
            raise InvalidArgumentError("a clue of the spymaster is expected, got a pass")
        ending: Ending | None = None if self.clues_left else "out of clues"
        return replace(self, clue="", number=0, guesses_left=0, ending=ending)
