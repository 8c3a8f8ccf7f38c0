"""Hard rules before soft principles: what can be checked is checked first, and must hold.

OpenRubrics (Liu et al., arXiv 2510.07743) tells hard rules, which a prompt states, from
principles, which are matters of degree. Principles are often expensive to judge: behind the
rules, nobody judges an answer that has broken one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from guerdon import Guarded, LengthBounds, RegexMatch, Sequential, WeightedSum

Principle = Callable[[Any, Any], Any]


def reward(clear: Principle, helpful: Principle) -> Sequential:
    """Two rules, then two principles.

    Args:
        clear: Judges how clear an answer is, in [0, 1]; may be async, and may fail.
        helpful: The same for how helpful it is.
    """
    return Sequential(
        LengthBounds(minimum=1, maximum=300, unit="words"),
        RegexMatch(r"(?m)^- ", ignore_case=False),
        WeightedSum(
            [Guarded(clear, timeout=20.0, retries=2), Guarded(helpful, timeout=20.0, retries=2)],
            weights=[0.4, 0.6],
        ),
    )
