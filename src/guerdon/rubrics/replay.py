"""Evaluating a rubric over a recorded episode."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

from guerdon.rubrics.calling import evaluate_named, evaluate_step, evaluate_step_async
from guerdon.rubrics.failure import describe_handled, finite
from guerdon.rubrics.recording import Evaluation, Recorder
from guerdon.rubrics.step_rewards import exact_sum
from guerdon.types.score import Score


class Replay:
    """The scores of a rubric over a recorded episode, also of one that failed halfway.

    Attributes:
        values: The score of each step.
        steps: The components of each step that was started.
        handled: Exceptions that were raised and handled, one line per step.
        trees: The score of every rubric at each step that was started; None without trees.
        score: The sum of the values.
        rewards: The reward of each step, as trajectory rubrics spread them.

    Args:
        keeps_trees: Whether to keep the trees, for which every rubric is recorded.
    """

    score: float
    rewards: list[float]
    handled: Sequence[str] = ()

    def __init__(self, *, keeps_trees: bool = False) -> None:
        self.values: list[float] = []
        self.steps: list[dict[str, float]] = []
        self.trees: list[Score] | None = [] if keeps_trees else None

    def components(self) -> dict[str, float]:
        """Return each over the episode: its sum over the steps that have it, as the score is."""
        if len(self.steps) == 1:
            return self.steps[0]
        values: dict[str, list[float]] = {}
        for step in self.steps:
            for name, value in step.items():
                values.setdefault(name, []).append(value)
        return {name: exact_sum(of_steps) for name, of_steps in values.items()}

    def where(self, first: int = 0) -> str | None:
        """Return the step at which the replay failed, in words.

        Args:
            first: The number of the first step.
        """
        if not self.steps:
            return None
        if len(self.values) == len(self.steps):  # all were scored: the episode itself failed
            return "after the last step"
        return f"step {first + len(self.values)}"

    def _begin(self) -> None:
        self.values, self.steps, self.handled = [], [], ()
        if self.trees is not None:
            self.trees = []

    def _recorder(self) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext() if self.trees is None else Recorder(keeps_trees=True)

    def _add(self, evaluation: Evaluation, steps: Sequence[tuple[Any, Any]]) -> None:
        """Take the evaluation of the next step.

        Raises:
            Exception: What the rubric raised.
        """
        self.steps.append(evaluation.components)
        if self.trees is not None and evaluation.tree is not None:
            self.trees.append(evaluation.tree)
        if evaluation.error is not None:
            raise evaluation.error
        assert evaluation.value is not None
        self.values.append(evaluation.value)
        if evaluation.handled:
            self._describe(evaluation.handled, steps)

    def _finish(self, rubric: Any) -> None:
        values = self.rewards = self.values
        self.score = finite(rubric, exact_sum(values))
        if rubric._find_traits().has_trajectory:
            self.rewards = rubric.compute_step_rewards()

    def _describe(self, handled: dict[str, Exception], steps: Sequence[tuple[Any, Any]]) -> None:
        number = getattr(steps[0][0], "turn", 0) + len(self.values) - 1
        where = f"step {number}: " if len(steps) > 1 else ""
        self.handled = [*self.handled, describe_handled(handled, where)]


def replay(rubric: Any, steps: Sequence[tuple[Any, Any]], into: Replay) -> None:
    """Evaluate a sync tree over the steps of an episode, after a reset.

    Args:
        rubric: The tree. Nothing else may call it meanwhile.
        steps: Pairs of an action and an observation, `done` on the last.
        into: Takes the results, also where it fails; what it contained is dropped.

    Raises:
        Exception: What a rubric raised.
    """
    if into.trees is not None:
        _replay_with_trees(rubric, steps, into)
        return
    values: list[float] = []
    begun: list[dict[str, float]] = []
    into.values, into.steps, into.handled = values, begun, ()
    traits = rubric._traits or rubric._find_traits()
    if traits.stateful or rubric._log:
        rubric.reset()
    handled: dict[str, Exception] = {}
    for action, observation in steps:
        named: dict[str, float] = {}
        begun.append(named)
        values.append(evaluate_named(rubric, action, observation, named, handled))
        if handled:
            into._describe(handled, steps)
            handled.clear()
    if len(values) == 1 and not traits.has_trajectory:  # the usual case, in the hot loop
        into.score, into.rewards = values[0], values
    else:
        into._finish(rubric)


def _replay_with_trees(rubric: Any, steps: Sequence[tuple[Any, Any]], into: Replay) -> None:
    into._begin()
    rubric.reset()
    with into._recorder():
        for action, observation in steps:
            into._add(evaluate_step(rubric, action, observation), steps)
    into._finish(rubric)


async def replay_async(rubric: Any, steps: Iterable[tuple[Any, Any]], into: Replay) -> None:
    """Like `replay`, for any tree."""
    steps = list(steps)
    into._begin()
    rubric.reset()
    with into._recorder():
        for action, observation in steps:
            into._add(await evaluate_step_async(rubric, action, observation), steps)
    into._finish(rubric)
