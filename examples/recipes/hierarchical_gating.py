"""Hierarchical gating: each level counts only if the level below passes.

Feedback from unit tests has levels: code that doesn't parse, code that doesn't run, code that
fails tests, code that passes. RLTF (Liu et al., arXiv 2307.04349) rewards each level differently.
With gates, good style can't make up for broken code.

The environment runs the tests, and reports in the observation's metadata how many there are
(``tests``) and how many passed (``passed``).
"""

from __future__ import annotations

from typing import Any

from guerdon import Gate, LengthBounds, PythonCompiles, Rubric, Sequential, WeightedSum
from guerdon.errors import MissingInputError


class PassesTests(Rubric):
    """The share of passed tests."""

    score_range = (0.0, 1.0)
    reads = ("tests", "passed")

    def forward(self, action: Any, observation: Any) -> float:
        """Return the share; raise if the tests didn't run."""
        metadata = observation.metadata
        if not metadata.get("tests"):
            raise MissingInputError("the observation's metadata has no 'tests'")
        self.explain("%s of %s pass", metadata["passed"], metadata["tests"])
        return float(metadata["passed"] / metadata["tests"])


def reward() -> Sequential:
    """Return a reward with gates for parsing and half of the tests, then tests and length."""
    tests = PassesTests()
    return Sequential(
        Gate(PythonCompiles()),
        Gate(tests, threshold=0.5),
        WeightedSum([tests, LengthBounds(maximum=40, unit="lines")], weights=[0.8, 0.2]),
    )
