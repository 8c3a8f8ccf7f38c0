"""The reward: the game's own at its end, its hints, and a penalty for invalid answers."""

from __future__ import annotations

import re
from typing import Literal

from examples.textarena.models import TextArenaAction, TextArenaObservation
from guerdon import Rubric, RubricComposer, RubricDict

__all__ = [
    "ByGame",
    "Invalid",
    "LetterFound",
    "Marks",
    "Outcome",
    "Pegs",
    "WordleHints",
    "default_reward",
]

WON = 1.0


class Outcome(Rubric):
    """The game's own reward at its end: 1 if won, less for a part of it."""

    score_range = (-1.0, 1.0)

    def forward(self, action: TextArenaAction, observation: TextArenaObservation) -> float:
        """Return the reward, or 0 for a game that was not finished."""
        if observation.outcome is None:
            self.explain("the game was not finished in time")
            return 0.0
        return observation.outcome


class Invalid(Rubric):
    """The game rejected the answer; give it a negative weight."""

    score_range = (0.0, 1.0)

    def forward(self, action: TextArenaAction, observation: TextArenaObservation) -> float:
        """Return whether the answer was rejected."""
        if observation.invalid:
            self.explain("%.100r: %.200s", action.message, observation.text)
        return float(observation.invalid)


class Marks(Rubric):
    """Wordle: the share of letters of the guess with a mark, G (green) or Y (yellow)."""

    score_range = (0.0, 1.0)

    def __init__(self, mark: Literal["G", "Y"]) -> None:
        super().__init__()
        self.mark = mark

    def forward(self, action: TextArenaAction, observation: TextArenaObservation) -> float:
        """Return the share in feedback such as ``G X Y X X``; 0 without feedback."""
        if observation.outcome == WON:  # the game gives no feedback for the right word
            return float(self.mark == "G")
        found = re.search(r"^[GYX]( [GYX])+$", observation.text, re.MULTILINE)
        return found[0].count(self.mark) / len(found[0].split()) if found else 0.0


class WordleHints(Rubric):
    """Wordle: a letter in its place counts 1/5, a letter in another place 1/10."""

    score_range = (0.0, 1.0)

    def __init__(self) -> None:
        super().__init__()
        self.greens = Marks("G")
        self.yellows = Marks("Y")

    def forward(self, action: TextArenaAction, observation: TextArenaObservation) -> float:
        """Return the sum."""
        greens: float = self.greens(action, observation)
        yellows: float = self.yellows(action, observation)
        return greens + yellows / 2


class Pegs(Rubric):
    """Mastermind: a black peg counts 1/4, a white one 1/8."""

    score_range = (0.0, 1.0)

    def forward(self, action: TextArenaAction, observation: TextArenaObservation) -> float:
        """Return the sum; 1 for the right code, after which the game gives no feedback."""
        if observation.outcome == WON:
            return 1.0
        found = re.search(r"(\d) black peg\(s\), (\d) white peg\(s\)", observation.text)
        return (int(found[1]) + int(found[2]) / 2) / 4 if found else 0.0


class LetterFound(Rubric):
    """Hangman: the guessed letter is in the word, or the guessed word is right."""

    score_range = (0.0, 1.0)

    def forward(self, action: TextArenaAction, observation: TextArenaObservation) -> float:
        """Return whether the guess was right."""
        return float("is in the word" in observation.text or observation.outcome == WON)


class ByGame(Rubric):
    """A good answer in Wordle, Mastermind or Hangman; 0 in other games.

    Example:
        >>> from examples.textarena.rubrics import ByGame
        >>> sorted(ByGame().games)
        ['Hangman', 'Mastermind', 'Wordle']
    """

    score_range = (0.0, 1.0)

    def __init__(self) -> None:
        super().__init__()
        self.games = RubricDict(
            {"Wordle": WordleHints(), "Mastermind": Pegs(), "Hangman": LetterFound()}
        )

    def forward(self, action: TextArenaAction, observation: TextArenaObservation) -> float:
        """Return the score of the game's rubric, or 0 if it has none."""
        name = observation.game_id.partition("-")[0]
        if name not in self.games:
            self.explain("single answers of %s are not rewarded", observation.game_id)
            return 0.0
        score: float = self.games[name](action, observation)
        return score


def default_reward() -> RubricComposer:
    """Return the reward that ``reward.yaml`` describes.

    Example:
        >>> from examples.textarena.rubrics import default_reward
        >>> default_reward().weights
        {'hints': 0.1, 'invalid': -0.1, 'outcome': 1.0}
    """
    return RubricComposer(
        {"hints": ByGame(), "invalid": Invalid(), "outcome": Outcome()},
        weights={"hints": 0.1, "invalid": -0.1, "outcome": 1.0},
        normalize=False,
        episode_end=["outcome"],
    )
