"""All or nothing: an instruction is followed only where every part of it is.

AdvancedIF (He et al., arXiv 2511.10507) trains on a reward of 1 where all criteria of a prompt's
rubric hold and 0 otherwise. Partial credit invites a model to follow the easy parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from guerdon import ExactMatch, LengthBounds, RegexMatch, Rubric, RubricDict, ValidJson


class AllOf(Rubric):
    """Every criterion holds."""

    score_range = (0.0, 1.0)

    def __init__(self, criteria: Mapping[str, Any]) -> None:
        super().__init__()
        self.criteria = RubricDict(criteria)

    def forward(self, action: Any, observation: Any) -> float:
        """Evaluate all, so that each shows among the components, and tell which are missing."""
        scores = {name: each(action, observation) for name, each in self.criteria.items()}
        missing = [name for name, score in scores.items() if score < 1.0]
        self.explain("missing: %s", ", ".join(missing) or "none")
        return 0.0 if missing else 1.0


def reward() -> AllOf:
    """A reply in JSON, short, that thanks and gives no other verdict than the right one."""
    return AllOf(
        {
            "json": ValidJson({"type": "object", "required": ["verdict", "reason"]}),
            "short": LengthBounds(maximum=200),
            "thanks": RegexMatch(r"\bthank", ignore_case=True),
        }
    )


def same_words() -> AllOf:
    """A criterion of one's own stands beside ready-made ones."""
    return AllOf({"right": ExactMatch(), "one_line": lambda action, _: float("\n" not in action)})
