"""`Environment.step` in process: the echo environment, beside a plain class without guerdon's.

Both build the same observation, call the same rubric of one leaf, and set the reward and the same
metadata. The plain method has the fingerprint as a constant, reports no failure, and takes no tree
of rubrics. A note has the time of `EnvAdapter.step`, which a server and a pool call: it checks
what the environment returns, and records rubrics that the author calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.echo_guerdon import Echo, EchoAction, EchoObservation, Length
from benchmarks.timing import Findings, Measured, seconds, take_turns
from guerdon.envs.runner import EnvAdapter

STEPS = 1_000
ROUNDS = 200
ACTION = EchoAction(message="hello")


class PlainEcho:
    """What `Echo` does in a step, without `Environment`."""

    def __init__(self) -> None:
        self.rubric = Length()
        self.fingerprint = self.rubric.fingerprint()
        self.step_count = 0

    def step(self, action: EchoAction) -> EchoObservation:
        self.step_count += 1
        if action.late_s:
            time.sleep(action.late_s)
        observation = EchoObservation(echoed=action.message * action.times)
        observation.reward = self.rubric(action, observation)
        observation.metadata.update(reward_components={}, reward_fingerprint=self.fingerprint)
        return observation


def run() -> Findings:
    """Run the benchmark."""
    environment, plain = Echo(), PlainEcho()
    environment.reset()
    adapter = EnvAdapter(environment)
    assert environment.step(ACTION) == plain.step(ACTION) == adapter.step(ACTION)
    line = Measured(
        "Environment.step, one leaf rubric", "plain method", 1.6, per=STEPS, unit="step"
    )
    line.pairs = take_turns(_steps(environment.step), _steps(plain.step), ROUNDS)
    adapted = _steps(adapter.step)
    fastest = min(adapted() for _ in range(ROUNDS)) / STEPS
    assert line.theirs
    note = (
        f"the same step as a server calls it: {seconds(fastest, 'step')}, "
        f"{fastest / line.theirs:.2f} times the plain method's"
    )
    return Findings([line], [note])


def _steps(step: Callable[[Any], Any]) -> Callable[[], float]:
    def stepped() -> float:
        start = time.perf_counter()
        for _ in range(STEPS):
            step(ACTION)
        return time.perf_counter() - start

    return stepped
