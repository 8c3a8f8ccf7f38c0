"""`RubricComposer.compute` with 5 rubrics, compared with 5 calls and a sum in plain Python.

The rubrics return a constant, so that only the calls and the sum are timed. The plain version has
no normalisation, no observed ranges, and only the checks of the calls themselves.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

from benchmarks.timing import Findings, Measured, take_turns
from guerdon import Rubric, RubricComposer

CALLS = 20_000
ROUNDS = 25
BAR = 2.0


class Constant(Rubric):
    """Returns a constant."""

    score_range = (0.0, 1.0)

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def forward(self, action: Any, observation: Any) -> float:
        return self.value


def run() -> Findings:
    """Run the benchmark."""
    rubrics = {name: Constant(place / 5) for place, name in enumerate("abcde")}
    weights = dict.fromkeys(rubrics, 0.2)
    every_step = RubricComposer(rubrics, weights)
    some_at_end = RubricComposer(rubrics, weights, episode_end=["e"])
    observation = {"done": True}

    def plain() -> float:
        start = perf_counter()
        for _ in range(CALLS):
            components = {name: rubric("a", observation) for name, rubric in rubrics.items()}
            sum(weights[name] * score for name, score in components.items())
        return perf_counter() - start

    def composed(composer: RubricComposer) -> float:
        start = perf_counter()
        for _ in range(CALLS):
            composer.compute("a", observation)
        return perf_counter() - start

    lines = []
    for suffix, composer in (("", every_step), (", one of them at the end", some_at_end)):
        line = Measured(
            f"composer of 5, compute{suffix}", "5 calls, a dict, a sum", BAR, per=CALLS, unit="call"
        )
        line.pairs = take_turns(lambda composer=composer: composed(composer), plain, ROUNDS)  # type: ignore[misc]
        lines.append(line)
    return Findings(lines)
