"""`evaluate_batch` of 1,000 evaluations that sleep 10 ms, with 32 workers.

Measured with a sync `forward`, which sleeps in a worker thread, and with an async one. The shortest
possible time is 1,000 / 32 × 10 ms.
"""

from __future__ import annotations

import time
from typing import Any

import anyio

from benchmarks.timing import Findings, Measured, take_turns
from guerdon import Rubric

PAIRS = 1_000
WORKERS = 32
SLEEP = 0.010
ROUNDS = 7


class Sleeps(Rubric):
    """Blocks its thread while it sleeps."""

    def forward(self, action: Any, observation: Any) -> float:
        time.sleep(SLEEP)
        return 1.0


class SleepsAsync(Rubric):
    """Doesn't block while it sleeps."""

    async def forward(self, action: Any, observation: Any) -> float:
        await anyio.sleep(SLEEP)
        return 1.0


def run() -> Findings:
    """Run the benchmark."""
    best = PAIRS / WORKERS * SLEEP
    found = Findings()
    for rubric, kind in ((Sleeps(), "sync"), (SleepsAsync(), "async")):
        line = Measured(
            f"evaluate_batch of {PAIRS:,}, {kind}", f"{PAIRS:,} / {WORKERS} × 10 ms", 1.2
        )
        line.pairs = take_turns(_seconds(rubric), lambda: best, ROUNDS)
        found.lines.append(line)
    return found


def _seconds(rubric: Rubric) -> Any:
    pairs = [(number, None) for number in range(PAIRS)]

    def seconds() -> float:
        start = time.perf_counter()
        scores = anyio.run(rubric.evaluate_batch, pairs, WORKERS)
        assert scores == [1.0] * PAIRS
        return time.perf_counter() - start

    return seconds
