"""The reward: the solution has an answer, the answer is right, and the style is good."""

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
    """The solution has an answer: it is neither empty nor cut off."""

    score_range = (0.0, 1.0)

    def forward(self, action: Any, observation: Any) -> float:
        """Search for an answer line or a box with any content."""
        return 0.0 if extract_answer(action.content) is None else 1.0


class Style(Rubric):
    """The solution is short, shows its work and doesn't repeat itself."""

    score_range = (0.0, 1.0)

    def __init__(self) -> None:
        super().__init__()
        self.length = LengthBounds(maximum=60, unit="words")
        self.work = RegexMatch(r"\d\s*[-+*/×÷]\s*\$?\d")
        self.repetition = RepetitionBounds(maximum=0.2)

    def forward(self, action: Any, observation: Any) -> float:
        """Return the mean of the three checks."""
        scores = [float(check(action, observation)) for check in self.children()]
        return sum(scores) / len(scores)


class Solution(Rubric):
    """A solution of a word problem: answered, correct, and in good style."""

    score_range = (0.0, 1.0)

    def __init__(self) -> None:
        super().__init__()
        self.answered = Gate(Answered())
        self.correct = Gate(NumericAnswer())
        self.style = Style()

    def forward(self, action: Any, observation: Any) -> float:
        """Return 0 at the first closed gate; a right answer scores 0.8 plus 0.2 for its style."""
        if not self.answered(action, observation) or not self.correct(action, observation):
            return 0.0
        return 0.8 + 0.2 * float(self.style(action, observation))


# Only the verdict: whether the answer is right.
correct = NumericAnswer

# The same gates as a tree of containers; the score of a right answer is its style alone.
as_containers = Sequential(
    Gate(Answered()),
    Gate(NumericAnswer()),
    WeightedSum(
        [LengthBounds(maximum=60, unit="words"), RepetitionBounds(maximum=0.2)],
        weights=[0.5, 0.5],
    ),
)
