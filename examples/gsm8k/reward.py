"""The reward: an answer first, then the right one, then how it is written."""

from __future__ import annotations

from typing import Any

from guerdon import (
    Gate,
    LengthBounds,
    NumericAnswer,
    RegexMatch,
    RepetitionBounds,
    Rubric,
    Sequential,
    WeightedSum,
)
from guerdon.rubrics import extract_answer


class Answered(Rubric):
    """The solution states an answer: it was not cut off, and is not empty."""

    score_range = (0.0, 1.0)

    def forward(self, action: Any, observation: Any) -> float:
        """Look for an answer line or a box, with any content."""
        return 0.0 if extract_answer(action.content) is None else 1.0


class Style(Rubric):
    """The solution is short, shows its work and doesn't repeat itself."""

    score_range = (0.0, 1.0)

    def __init__(self) -> None:
        super().__init__()
        self.brief = LengthBounds(maximum=60, unit="words")
        self.works = RegexMatch(r"\d\s*[-+*/×÷]\s*\$?\d")
        self.fluent = RepetitionBounds(maximum=0.2)

    def forward(self, action: Any, observation: Any) -> float:
        """Take the mean of the three."""
        scores = [float(check(action, observation)) for check in self.children()]
        return sum(scores) / len(scores)


class Solution(Rubric):
    """A solution of a word problem: answered, answered rightly, and then its style."""

    score_range = (0.0, 1.0)

    def __init__(self) -> None:
        super().__init__()
        self.answered = Gate(Answered())
        self.correct = Gate(NumericAnswer())
        self.style = Style()

    def forward(self, action: Any, observation: Any) -> float:
        """Stop at the first gate that is closed; a right answer is worth 0.8 in any style."""
        if not self.answered(action, observation) or not self.correct(action, observation):
            return 0.0
        return 0.8 + 0.2 * float(self.style(action, observation))


# Nothing but the verdict: the answer is right, or it isn't.
correct = NumericAnswer

# The same gates as a tree of containers; style is all the score then.
as_containers = Sequential(
    Gate(Answered()),
    Gate(NumericAnswer()),
    WeightedSum(
        [LengthBounds(maximum=60, unit="words"), RepetitionBounds(maximum=0.2)],
        weights=[0.5, 0.5],
    ),
)
