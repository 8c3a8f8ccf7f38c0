"""Replaying a rubric over a recorded episode, step by step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from guerdon.rubrics import frames, step_rewards
from guerdon.rubrics.call import exact_sum, finite, namer
from guerdon.rubrics.components import add_components
from guerdon.rubrics.concurrency import evaluate
from guerdon.rubrics.failure import say_caught
from guerdon.rubrics.frames import Frame
from guerdon.rubrics.rubric import Rubric

__all__ = ["Replay", "replay", "replay_async"]


class Replay:
    """What a rubric gave, step by step; also of an episode on which it failed halfway.

    Attributes:
        values: The score of each step.
        steps: The components of each step that was begun.
        told: What was raised, and dealt with, in words.
        score: The sum of the values.
        rewards: The reward of each step, as a trajectory rubric spreads them.
    """

    score: float  # known at the end, as the rewards are
    rewards: list[float]
    told: Sequence[str] = ()  # no list of its own before there is something to tell

    def __init__(self) -> None:
        self.values: list[float] = []
        self.steps: list[dict[str, float]] = []

    def components(self) -> dict[str, float]:
        """Those of the last step; of several steps, with the means over all."""
        steps = self.steps
        if len(steps) < 2:
            return steps[0] if steps else {}
        last = dict(steps[-1])
        seen: dict[str, list[float]] = {}
        for step in steps:
            for name, value in step.items():
                seen.setdefault(name, []).append(value)
        for name, of_name in seen.items():
            last[f"{name}/mean"] = sum(of_name) / len(of_name)
        return last

    def where(self, first: int = 0) -> str | None:
        """The step that was under way, in words.

        Args:
            first: The number of the first.
        """
        if not self.steps:
            return None
        if len(self.values) == len(self.steps):  # all were scored: it is about the episode
            return "after the last step"
        return f"step {first + len(self.values)}"

    def _finish(self, rubric: Rubric) -> None:
        values = self.rewards = self.values
        self.score = finite(rubric, exact_sum(values))
        if (rubric._traits or rubric._look()).holds_trajectory:
            self.rewards = rubric.compute_step_rewards()
            step_rewards.check(rubric, self.rewards, len(values))

    def _tell(self, caught: dict[str, Exception], steps: list[tuple[Any, Any]]) -> None:
        number = getattr(steps[0][0], "turn", 0) + len(self.values) - 1
        where = f"step {number}: " if len(steps) > 1 else ""
        self.told = [*self.told, say_caught(caught, where)]


def replay(rubric: Rubric, steps: list[tuple[Any, Any]], into: Replay) -> None:
    """Replay a sync tree, after a reset.

    Args:
        rubric: The tree. Nobody else may call it meanwhile.
        steps: Pairs of an action and an observation, `done` on the last.
        into: Where to put what it gives, as far as it comes; what stood there is forgotten.

    Raises:
        Exception: What a rubric raised.
    """
    values: list[float] = []
    begun: list[dict[str, float]] = []
    into.values, into.steps, into.told = values, begun, ()
    traits = rubric._traits or rubric._look()
    if traits.stateful or rubric._log:
        rubric.reset()
    call = namer(rubric)
    caught: dict[str, Exception] = {}
    for action, observation in steps:
        named: dict[str, float] = {}
        begun.append(named)
        values.append(call(rubric, action, observation, named, caught))
        if caught:
            into._tell(caught, steps)
            caught.clear()
    if len(values) == 1 and not traits.holds_trajectory:  # the usual case, in the hot loop
        into.score, into.rewards = values[0], values
    else:
        into._finish(rubric)


async def replay_async(rubric: Rubric, steps: Iterable[tuple[Any, Any]], into: Replay) -> None:
    """The same of a tree with an async member."""
    steps = list(steps)
    into.values, into.steps, into.told = [], [], ()
    rubric.reset()
    for action, observation in steps:
        named: dict[str, float] = {}
        into.steps.append(named)
        caught: dict[str, Exception] = {}
        recorder = Frame(None)
        token = frames.enter(recorder)
        try:
            into.values.append(await evaluate(rubric, action, observation))
        finally:
            frames.leave(token)
            if recorder.entries:
                add_components(named, rubric, recorder.entries[-1][3], "", caught)
        if caught:
            into._tell(caught, steps)
    into._finish(rubric)
