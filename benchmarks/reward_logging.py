"""Logging the reward of a step to a file of JSON lines, from the thread of the training loop.

The CPU time of the calling thread is compared with an empty loop. The loop logs as fast as possible
into a queue for all steps, while the writer threads run. The wall time per step, and until the
file is complete, are printed below the table.
"""

from __future__ import annotations

import tempfile
from time import perf_counter, thread_time

from benchmarks.timing import Findings, Measured, take_turns
from guerdon.tracking import RewardLogger

STEPS = 200_000  # enough for the writer to run at the same time
ROUNDS = 5
BAR_S = 5e-6
COMPONENTS = {"tests": 1.0, "style": 0.25, "efficiency": 0.5, "format": 1.0, "toxicity": -0.125}


def run() -> Findings:
    """Run the benchmark."""
    line = Measured(
        "a step logged, jsonl", "an empty loop", BAR_S, per=STEPS, unit="step", more=True
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
            cpu_seconds = thread_time() - start
            clock.append(perf_counter() - began)
            if not logger.flush():
                raise RuntimeError("the file was not complete in time")
            complete.append(perf_counter() - began)
            return cpu_seconds

        line.pairs = take_turns(ours, _nothing, ROUNDS)
        sent = logger.status()["jsonl"].sent
    found = Findings([line])
    if sent != STEPS * ROUNDS:
        found.notes.append(f"{sent:,} of {STEPS * ROUNDS:,} steps were logged")
    found.notes.append(
        f"a step logged takes {min(clock) / STEPS * 1e6:.1f} µs of wall time (at most "
        f"{max(clock) / STEPS * 1e6:.1f}); until the file is complete, "
        f"{min(complete) / STEPS * 1e6:.1f} µs per step"
    )
    return found


def _nothing() -> float:
    start = thread_time()
    for _ in range(STEPS):
        pass
    return thread_time() - start
