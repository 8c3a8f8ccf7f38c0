"""Calls of a leaf, a `WeightedSum` of 3 and a `Sequential` of 3, without recording.

The rubrics return a constant, so that only the call is timed. The same classes of openenv are timed
in a separate process; rounds alternate.
"""

from __future__ import annotations

import sys

from benchmarks.contestant import Contestant
from benchmarks.openenv_home import VERSION
from benchmarks.timing import Findings, Measured, take_turns

CALLS = 20_000
ROUNDS = 25
BARS = {"leaf": 0.35, "weighted_sum": 0.30, "sequential": 0.30}
NAMES = {
    "leaf": "leaf call",
    "weighted_sum": "WeightedSum of 3",
    "sequential": "Sequential of 3",
}


def run(openenv: str, missing: str) -> Findings:
    """Run the benchmark.

    Args:
        openenv: An interpreter with openenv, or ``""``.
        missing: The reason if openenv is missing.
    """
    lines = [
        Measured(NAMES[task], f"openenv {VERSION}", bar, per=CALLS, unit="call", missing=missing)
        for task, bar in BARS.items()
    ]
    with Contestant(sys.executable, "guerdon") as ours:
        if missing:
            for task, line in zip(BARS, lines, strict=True):
                line.pairs = take_turns(ours.seconds(task, CALLS), lambda: 0.0, ROUNDS)
            return Findings(lines)
        with Contestant(openenv, "openenv") as theirs:
            for task, line in zip(BARS, lines, strict=True):
                line.pairs = take_turns(
                    ours.seconds(task, CALLS), theirs.seconds(task, CALLS), ROUNDS
                )
    return Findings(lines)
