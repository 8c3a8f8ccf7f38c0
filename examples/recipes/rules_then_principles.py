"""Hard rules before soft principles: an answer is judged only if it follows the rules.

OpenRubrics (Liu et al., arXiv 2510.07743) distinguishes hard rules, which a prompt states, from
principles, which are matters of degree. Principles are often expensive to judge; with the rules
first, answers that break one are never judged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from guerdon import Guarded, LengthBounds, RegexMatch, Sequential, WeightedSum

Principle = Callable[[Any, Any], Any]


def reward(clear: Principle, helpful: Principle) -> Sequential:
    """Return a reward with two rules before two principles.

    Args:
        clear: Scores the clarity of an answer in [0, 1]; may be async and may raise.
        helpful: Scores its helpfulness in the same way.
    """
    return Sequential(
        LengthBounds(minimum=1, maximum=300, unit="words"),
        RegexMatch(r"(?m)^- ", ignore_case=False),
        WeightedSum(
            [Guarded(clear, timeout=20.0, retries=2), Guarded(helpful, timeout=20.0, retries=2)],
            weights=[0.4, 0.6],
        ),
    )
