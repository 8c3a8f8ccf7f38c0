"""The action, observation and state of Codenames."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import Field, PrivateAttr

from guerdon import Action, Observation, State

__all__ = ["CodenamesAction", "CodenamesObservation", "CodenamesState", "Color", "Ending"]

Color: TypeAlias = Literal["agent", "bystander", "assassin"]
Ending: TypeAlias = Literal["all found", "assassin", "out of clues"]


class CodenamesAction(Action):
    """A clue of the spymaster, or a guess or a pass of the guesser.

    Example:
        >>> from examples.codenames.models import CodenamesAction
        >>> CodenamesAction(kind="clue", word="animal", number=2).word
        'animal'

    Attributes:
        kind: What it is.
        word: The clue, or the guess: in lower-case letters; empty for a pass.
        number: For a clue, the number of words that it fits, from 1 to 9.
    """

    kind: Literal["clue", "guess", "pass"]
    word: str = Field(default="", pattern="^[a-z]*$", max_length=30)
    number: int = Field(default=1, ge=1, le=9)


class CodenamesObservation(Observation):
    """The board as the agent that acts next sees it, in ``metadata["agent"]``.

    Example:
        >>> from examples.codenames.models import CodenamesObservation
        >>> CodenamesObservation(words=["cow", "moon"], revealed={"cow": "agent"}).hidden
        ['moon']

    Attributes:
        words: The 25 words of the board.
        revealed: The colors of the words that were guessed.
        key: The colors of all words, for the spymaster, and for both after the end; otherwise
            empty.
        clue: The clue of this turn; empty if one is expected.
        number: Its number.
        guesses_left: The number of guesses that remain in this turn.
        clues_left: The number of clues that remain in this game.
        ending: How the game ended; None before.
    """

    words: list[str]
    revealed: dict[str, Color] = Field(default_factory=dict)
    key: dict[str, Color] = Field(default_factory=dict)
    clue: str = ""
    number: int = 0
    guesses_left: int = 0
    clues_left: int = 0
    ending: Ending | None = None

    _colors: dict[str, Color] = PrivateAttr(default_factory=dict)  # the key, for the rubrics

    @property
    def hidden(self) -> list[str]:
        """The words that weren't guessed."""
        return [word for word in self.words if word not in self.revealed]


class CodenamesState(State):
    """The state of a game. Clients can read it, so that it doesn't contain the key.

    Example:
        >>> from examples.codenames.models import CodenamesState
        >>> CodenamesState(clues=["animal 2"]).clues
        ['animal 2']

    Attributes:
        clues: The clues that were given, with their numbers.
    """

    clues: list[str] = Field(default_factory=list)
