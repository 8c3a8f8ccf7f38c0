"""The action, observation and state of text games."""

from __future__ import annotations

from pydantic import Field

from guerdon import Action, Observation, State

__all__ = ["TextArenaAction", "TextArenaObservation", "TextArenaState"]

LONGEST = 1000  # characters of an answer


class TextArenaAction(Action):
    """An answer; each game describes its format in its first text.

    Example:
        >>> from examples.textarena.models import TextArenaAction
        >>> TextArenaAction(message="I try [crane].").message
        'I try [crane].'

    Attributes:
        message: The text; a game reads the part in square brackets.
    """

    message: str = Field(max_length=LONGEST)


class TextArenaObservation(Observation):
    """What the game says.

    Example:
        >>> from examples.textarena.models import TextArenaObservation
        >>> TextArenaObservation(game_id="Wordle-v0", text="Guess!", transcript="Guess!").invalid
        False

    Attributes:
        game_id: The game's ID in textarena, such as ``Wordle-v0``.
        text: What the game has said since the last answer; after a reset, the rules.
        transcript: Everything said so far; the lines of answers begin with ``> ``.
        invalid: Whether the game rejected the last answer.
        outcome: The game's own reward at its end, in [-1, 1]; None before, and for a game that was
            not finished in time.
    """

    game_id: str
    text: str
    transcript: str
    invalid: bool = False
    outcome: float | None = None


class TextArenaState(State):
    """The state of a game.

    Example:
        >>> from examples.textarena.models import TextArenaState
        >>> TextArenaState(game_id="Wordle-v0").over
        True

    Attributes:
        game_id: The game; None before the first reset.
        invalid_answers: The number of answers that the game rejected.
        over: Whether no game is running.
    """

    game_id: str | None = None
    invalid_answers: int = 0
    over: bool = True
