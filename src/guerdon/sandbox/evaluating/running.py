"""Calling a reward where the caller waits, whatever it is made of."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from guerdon.rubrics.evaluation import Replay, replay, replay_async
from guerdon.rubrics.failure import say_failure
from guerdon.rubrics.functions.function import Mode, RewardFunction, failed
from guerdon.rubrics.rubric import Rubric
from guerdon.types.evaluate_result import EvaluateResult, StepOutput
from guerdon.types.message import Message
from guerdon.types.rollout import Rollout

if TYPE_CHECKING:
    import asyncio

__all__ = ["FunctionRunner", "Loop", "RubricRunner", "Runner"]


class Loop:
    """An event loop for what is async.

    Args:
        keep: Whether one serves all calls; else each has its own.
    """

    def __init__(self, keep: bool) -> None:
        self._keep = keep
        self._runner: asyncio.Runner | None = None

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Wait for it."""
        import asyncio  # only where something is async

        if not self._keep:
            with asyncio.Runner() as runner:
                return runner.run(work)
        self._runner = self._runner or asyncio.Runner()
        return self._runner.run(work)

    def close(self) -> None:
        """Close the loop that was kept."""
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()


class Runner(Protocol):
    """Scores conversations with one reward."""

    mode: Mode

    def run(
        self, rollouts: list[list[Message]], ground_truth: Any, others: dict[str, Any]
    ) -> list[EvaluateResult]:
        """Score them; what fails is told in the results.

        Args:
            rollouts: The conversations; of a pointwise reward, one.
            ground_truth: Of one its own, of a batch the list of them.
            others: What else is given by name.
        """
        ...


class FunctionRunner:
    """Scores with a reward function.

    Args:
        function: The function, sync or async.
        loop: Where an async one runs.
    """

    def __init__(self, function: RewardFunction, loop: Loop) -> None:
        self.mode = function.mode
        self._function = function
        self._loop = loop

    def run(
        self, rollouts: list[list[Message]], ground_truth: Any, others: dict[str, Any]
    ) -> list[EvaluateResult]:
        """See `Runner`."""
        given = rollouts if self.mode == "batch" else rollouts[0]
        try:
            found = self._function.evaluate(given, ground_truth, others)
            if self._function.is_async:
                found = self._loop.run(found)
        except BaseException as error:  # also a cancellation: here it is the function's own
            return [failed(error) for _ in rollouts]
        return found if self.mode == "batch" else [found]


class RubricRunner:
    """Scores with a rubric, which is replayed; a failure tells the step and the rubric.

    Args:
        rubric: The rubric.
        loop: Where one with an async member runs.
    """

    mode: Mode = "pointwise"

    def __init__(self, rubric: Rubric, loop: Loop) -> None:
        self._rubric = rubric
        self._loop = loop

    def run(
        self, rollouts: list[list[Message]], ground_truth: Any, others: dict[str, Any]
    ) -> list[EvaluateResult]:
        """See `Runner`."""
        columns = others if ground_truth is None else others | {"ground_truth": ground_truth}
        done, first = Replay(), 0
        try:
            rollout = Rollout.from_row({**columns, "messages": rollouts[0]})
            first = rollout.first_turn
            if (self._rubric._traits or self._rubric._look()).is_async:
                self._loop.run(replay_async(self._rubric, rollout.steps, done))
            else:
                replay(self._rubric, rollout.steps, done)
        except BaseException as error:  # as above
            said = say_failure(error, done.where(first))
            return [EvaluateResult(is_score_valid=False, error=said, metrics=done.components())]
        outputs = [
            StepOutput(step_index=action.turn, base_reward=reward)
            for (action, _), reward in zip(rollout.steps, done.rewards, strict=True)
        ]
        error_told = "; ".join(done.handled) or None
        result = EvaluateResult(
            score=done.score, metrics=done.components(), step_outputs=outputs, error=error_told
        )
        return [result]
