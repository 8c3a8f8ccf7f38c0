"""The rewards of the spymaster and of the guesser."""

from __future__ import annotations

from typing import ClassVar

from examples.codenames.models import CodenamesAction, CodenamesObservation
from examples.codenames.words import fits
from guerdon import Rubric, RubricComposer

__all__ = ["ClueQuality", "CodenamesRubric", "GuessQuality", "Guesser", "Outcome", "Spymaster"]


class ClueQuality(Rubric):
    """The clue fits words of the team, and no others.

    A quarter for each hidden agent that it fits, less a quarter for each other hidden word; the
    assassin counts three times. 0 for a clue that the table of associations doesn't have.

    Example:
        >>> from examples.codenames.models import CodenamesAction, CodenamesObservation
        >>> from examples.codenames.rubrics import ClueQuality
        >>> observation = CodenamesObservation(words=["bee", "spider", "moon"])
        >>> observation._colors = {"bee": "agent", "spider": "bystander", "moon": "agent"}
        >>> clue = CodenamesAction(kind="clue", word="insect", number=1)
        >>> ClueQuality()(clue, observation)
        0.0
    """

    score_range = (-1.0, 1.0)

    _points: ClassVar = {"agent": 1, "bystander": -1, "assassin": -3}

    def forward(self, action: CodenamesAction, observation: CodenamesObservation) -> float:
        """Return the quality of a clue; 0 for a guess or a pass."""
        if action.kind != "clue":
            return 0.0
        colors = observation._colors
        fitting = [word for word in observation.hidden if word in fits(action.word)]
        self.explain("%s fits %s", action.word, ", ".join(fitting) or "no hidden word")
        points = sum(self._points[colors[word]] for word in fitting)
        return max(-1.0, min(1.0, points / 4))


class GuessQuality(Rubric):
    """The guess is an agent: 1; any other word is -1, a pass or a clue 0.

    Example:
        >>> from examples.codenames.models import CodenamesAction, CodenamesObservation
        >>> from examples.codenames.rubrics import GuessQuality
        >>> observation = CodenamesObservation(words=["cow"], revealed={"cow": "agent"})
        >>> GuessQuality()(CodenamesAction(kind="guess", word="cow"), observation)
        1.0
    """

    score_range = (-1.0, 1.0)

    def forward(self, action: CodenamesAction, observation: CodenamesObservation) -> float:
        """Return the quality of a guess."""
        if action.kind != "guess":
            return 0.0
        return 1.0 if observation.revealed[action.word] == "agent" else -1.0


class Outcome(Rubric):
    """All agents were found: 1. The assassin was: -1. The clues ran out: 0.

    Example:
        >>> from examples.codenames.models import CodenamesObservation
        >>> from examples.codenames.rubrics import Outcome
        >>> Outcome()(None, CodenamesObservation(words=[], done=True, ending="assassin"))
        -1.0
    """

    score_range = (-1.0, 1.0)

    def forward(self, action: CodenamesAction, observation: CodenamesObservation) -> float:
        """Return the outcome; 0 before the end."""
        return {"all found": 1.0, "assassin": -1.0}.get(observation.ending or "", 0.0)


class Spymaster(RubricComposer):
    """The spymaster's reward: its clues, the guesses that they led to, and the outcome.

    Example:
        >>> from examples.codenames.rubrics import Spymaster
        >>> Spymaster().weights
        {'clue_quality': 0.2, 'guess_quality': 0.05, 'outcome': 1.0}
    """

    def __init__(self) -> None:
        super().__init__(
            {"clue_quality": ClueQuality(), "guess_quality": GuessQuality(), "outcome": Outcome()},
            weights={"clue_quality": 0.2, "guess_quality": 0.05, "outcome": 1.0},
            normalize=False,
        )


class Guesser(RubricComposer):
    """The guesser's reward: its guesses, and the outcome.

    Example:
        >>> from examples.codenames.rubrics import Guesser
        >>> Guesser().weights
        {'guess_quality': 0.1, 'outcome': 1.0}
    """

    def __init__(self) -> None:
        super().__init__(
            {"guess_quality": GuessQuality(), "outcome": Outcome()},
            weights={"guess_quality": 0.1, "outcome": 1.0},
            normalize=False,
        )


class CodenamesRubric(RubricComposer):
    """Clue quality and outcome: a reward for each role, and their sum for the team.

    Example:
        >>> from examples.codenames.rubrics import CodenamesRubric
        >>> CodenamesRubric().weights
        {'spymaster': 1.0, 'guesser': 1.0}
    """

    def __init__(self) -> None:
        super().__init__(
            {"spymaster": Spymaster(), "guesser": Guesser()},
            weights={"spymaster": 1.0, "guesser": 1.0},
            normalize=False,
        )
