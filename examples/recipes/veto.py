"""Several dimensions with a veto: a weighted sum that one critical dimension can set to 0.

Rubicon (Huang et al., arXiv 2508.12790) scores answers in several dimensions, of which a critical
one can veto the rest. Each dimension saturates, so that more of one can't make up for the others.
"""

from __future__ import annotations

import math
from typing import Any

from guerdon import Gate, RegexMatch, RepetitionBounds, Rubric, Sequential, WeightedSum


class Words(Rubric):
    """The number of wanted words in the answer, with decreasing weight."""

    score_range = (0.0, 1.0)

    def __init__(self, words: list[str], enough: float = 3.0) -> None:
        super().__init__()
        self.words = words
        self.enough = enough

    def forward(self, action: Any, observation: Any) -> float:
        """Return ``tanh(found / enough)``."""
        text = action.lower()
        return math.tanh(sum(word in text for word in self.words) / self.enough)


def reward() -> Sequential:
    """Return a reward with a gate for honesty, then vividness, warmth and little repetition."""
    honest = RegexMatch(r"^(?!.*\bas a human\b)", ignore_case=True)
    return Sequential(
        Gate(honest),
        WeightedSum(
            [
                Words(["smell", "light", "cold", "sound", "rough"]),
                Words(["thank", "glad", "together", "hope"]),
                RepetitionBounds(maximum=0.1),
            ],
            weights=[0.5, 0.3, 0.2],
        ),
    )
