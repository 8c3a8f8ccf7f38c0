"""Hierarchical gating: each level counts only where the one under it holds.

Feedback from unit tests has levels: code that doesn't parse, code that doesn't run, code that
fails tests, code that passes. RLTF (Liu et al., arXiv 2307.04349) rewards them apart; as gates,
style is never bought with broken code.

The environment ran the tests, and says in the observation's metadata how many there were
(``tests``) and how many passed (``passed``).
"""

from __future__ import annotations

from typing import Any

from guerdon import Gate, LengthBounds, PythonCompiles, Rubric, Sequential, WeightedSum
from guerdon.errors import MissingInputError


class PassesTests(Rubric):
    """The share of the tests that pass."""

    score_range = (0.0, 1.0)
    reads = ("tests", "passed")

    def forward(self, action: Any, observation: Any) -> float:
        """Divide; where nobody ran the tests there is no score."""
        metadata = observation.metadata
        if not metadata.get("tests"):
            raise MissingInputError("the observation's metadata has no 'tests' to pass")
        self.explain("%s of %s pass", metadata["passed"], metadata["tests"])
        return float(metadata["passed"] / metadata["tests"])


def reward() -> Sequential:
    """It parses, then at least half of the tests pass, then how many and how short."""
    tests = PassesTests()
    return Sequential(
        Gate(PythonCompiles()),
        Gate(tests, threshold=0.5),
        WeightedSum([tests, LengthBounds(maximum=40, unit="lines")], weights=[0.8, 0.2]),
    )
