"""All or nothing: the reward is 1 if every criterion is met, otherwise 0.

AdvancedIF (He et al., arXiv 2511.10507) trains with this reward. Partial credit would encourage a
model to follow only the easy parts of an instruction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from guerdon import ExactMatch, LengthBounds, RegexMatch, Rubric, RubricDict, ValidJson


class AllOf(Rubric):
    """Every criterion is met."""

    score_range = (0.0, 1.0)

    def __init__(self, criteria: Mapping[str, Any]) -> None:
        super().__init__()
        self.criteria = RubricDict(criteria)

    def forward(self, action: Any, observation: Any) -> float:
        """Evaluate all criteria, so that each is in the components, and name the unmet ones."""
        scores = {name: each(action, observation) for name, each in self.criteria.items()}
        missing = [name for name, score in scores.items() if score < 1.0]
        self.explain("missing: %s", ", ".join(missing) or "none")
        return 0.0 if missing else 1.0


def reward() -> AllOf:
    """Return a reward for a short reply in JSON that contains thanks."""
    return AllOf(
        {
            "json": ValidJson({"type": "object", "required": ["verdict", "reason"]}),
            "short": LengthBounds(maximum=200),
            "thanks": RegexMatch(r"\bthank", ignore_case=True),
        }
    )


def same_words() -> AllOf:
    """Return a reward that combines a ready-made check and a function."""
    return AllOf({"right": ExactMatch(), "one_line": lambda action, _: float("\n" not in action)})
