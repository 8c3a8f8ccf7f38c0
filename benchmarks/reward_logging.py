"""Logging the reward of a step, on the thread of the training loop, to a file of JSON lines.

What is measured is the time that the caller's own thread works, against a loop that does nothing.
It logs as fast as it can while the threads that write work, too, into a queue that takes it all;
what a step takes by the clock then, and when the file is complete, is told below the table.
"""

from __future__ import annotations

import tempfile
from time import perf_counter, thread_time

from benchmarks.timing import Findings, Measured, take_turns
from guerdon.tracking import RewardLogger

STEPS = 200_000  # long enough for the writer to work at the same time
ROUNDS = 5
BAR_S = 5e-6
COMPONENTS = {"tests": 1.0, "style": 0.25, "efficiency": 0.5, "format": 1.0, "toxicity": -0.125}


def run() -> Findings:
    """Measure."""
    line = Measured(
        "a step logged, jsonl", "a loop that does nothing", BAR_S, per=STEPS, unit="step", more=True
    )
    clock: list[float] = []
    complete: list[float] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        RewardLogger("jsonl", path=folder, run_name="run", queue_size=STEPS) as logger,
    ):

        def ours() -> float:
            start, began = thread_time(), perf_counter()
            for step in range(STEPS):
                logger.log_step(step, 0, 0.5, COMPONENTS, "env-0")
            spent = thread_time() - start
            clock.append(perf_counter() - began)
            if not logger.flush():
                raise RuntimeError("the file was not complete in time")
            complete.append(perf_counter() - began)
            return spent

        line.pairs = take_turns(ours, _nothing, ROUNDS)
        sent = logger.status()["jsonl"].sent
    found = Findings([line])
    if sent != STEPS * ROUNDS:
        found.notes.append(f"{sent:,} of {STEPS * ROUNDS:,} steps were logged")
    found.notes.append(
        f"a step logged takes {min(clock) / STEPS * 1e6:.1f} µs by the clock (at most "
        f"{max(clock) / STEPS * 1e6:.1f}); it is in the file {min(complete) / STEPS * 1e6:.1f} µs "
        "a step after the first"
    )
    return found


def _nothing() -> float:
    start = thread_time()
    for _ in range(STEPS):
        pass
    return thread_time() - start
