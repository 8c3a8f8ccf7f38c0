"""`EnvPool` of 64 in threads: its overhead on an empty step, and steps that sleep.

An empty step returns the same observation each time; it is compared with a plain loop over 64
environments. 64 steps that sleep 10 ms take at least 10 ms.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from benchmarks.timing import Findings, Measured, take_turns
from guerdon import Action, Environment, EnvPool, Observation, RegexMatch, State

SLOTS = 64
SLEEP = 0.010
ROUNDS = 25
BATCHES = 50
SLEEPING_ROUNDS = 10
SLEEPING_BATCHES = 20


class Empty(Environment[Action, Observation, State]):
    """An environment with an empty step."""

    state = State()

    def __init__(self) -> None:
        super().__init__(rubric=RegexMatch("."))
        self.observation = Observation()

    def reset(self, seed: int | None = None) -> Observation:
        return self.observation

    def step(self, action: Action) -> Observation:
        return self.observation


class Sleeping(Empty):
    """An environment with a step that sleeps."""

    def step(self, action: Action) -> Observation:
        time.sleep(SLEEP)
        return self.observation


def run() -> Findings:
    """Run the benchmark."""
    empty = Measured(
        f"EnvPool of {SLOTS} in threads, empty step",
        "plain loop",
        30e-6,
        per=SLOTS * BATCHES,
        unit="slot",
        more=True,
    )
    sleeping = Measured(
        f"EnvPool of {SLOTS} in threads, 10 ms step",
        f"{SLOTS} at once",
        1 / 0.8,
        per=SLOTS * SLEEPING_BATCHES,
        unit="slot",
    )
    with asyncio.Runner() as runner:
        seconds = _pool(runner, Empty, BATCHES)
        empty.pairs = take_turns(seconds, _plain_loop(), ROUNDS)
        seconds = _pool(runner, Sleeping, SLEEPING_BATCHES)
        best = SLEEP * SLEEPING_BATCHES
        sleeping.pairs = take_turns(seconds, lambda: best, SLEEPING_ROUNDS)
    assert empty.ours
    assert sleeping.ours
    return Findings(
        [empty, sleeping],
        [
            f"EnvPool of {SLOTS}: {1 / empty.ours:,.0f} empty steps/s; "
            f"{1 / sleeping.ours:,.0f} steps/s of 10 ms, at most {SLOTS / SLEEP:,.0f} are possible"
        ],
    )


def _pool(
    runner: asyncio.Runner, environment: type[Environment[Any, Any, Any]], batches: int
) -> Callable[[], float]:
    actions = [Action()] * SLOTS

    async def stepped() -> float:
        async with EnvPool(environment, n=SLOTS) as pool:
            await pool.reset_batch()
            await pool.step_batch(actions)
            start = time.perf_counter()
            for _ in range(batches):
                observations = await pool.step_batch(actions)
            seconds = time.perf_counter() - start
            assert not any(each is None or each.metadata for each in observations)
        return seconds

    return lambda: runner.run(stepped())


def _plain_loop() -> Callable[[], float]:
    environments = [Empty() for _ in range(SLOTS)]
    actions = [Action()] * SLOTS

    def stepped() -> float:
        start = time.perf_counter()
        for _ in range(BATCHES):
            for environment, action in zip(environments, actions, strict=True):
                environment.step(action)
        return time.perf_counter() - start

    return stepped
