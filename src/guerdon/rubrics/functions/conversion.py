"""Rubrics as reward functions."""

from __future__ import annotations

import itertools
import threading
from contextlib import nullcontext
from typing import Any

import anyio
from anyio.lowlevel import RunVar

from guerdon.rubrics.evaluation import Replay, replay, replay_async
from guerdon.rubrics.function import RubricLike, as_rubric
from guerdon.rubrics.functions.decorator import RewardFunction
from guerdon.types.evaluate_result import EvaluateResult, StepOutput
from guerdon.types.message import Message
from guerdon.types.rollout import Rollout

__all__ = ["as_reward_function"]

_numbers = itertools.count()

# Seconds between two looks at what another thread or task holds.
LOOK_AGAIN_S = 0.001


def as_reward_function(rubric: RubricLike) -> RewardFunction:
    """A pointwise reward function made of a rubric, or of anything that `as_rubric` takes.

    Each assistant turn is an action, what follows it is its observation; the rubric is reset and
    replayed over them. The score is the sum of the steps', each of which has a step output; the
    components are the metrics.

    Example:
        >>> from guerdon import NumericAnswer
        >>> from guerdon.rubrics import as_reward_function
        >>> solved = as_reward_function(NumericAnswer())
        >>> result = solved([{"role": "user", "content": "6 × 7?"},
        ...                  {"role": "assistant", "content": "A: 42"}], ground_truth="42")
        >>> result.score, result.step_outputs[0].step_index
        (1.0, 0)

    Args:
        rubric: The rubric. Of an async tree, the function is async. The function may be called by
            several threads or tasks at once; the rubric itself, by nobody else.

    Raises:
        RubricDefinitionError: It is none.
    """
    if isinstance(rubric, RewardFunction):
        return rubric
    tree = as_rubric(rubric)

    traits = tree._look()
    # What remembers steps sees one rollout at a time, however many are scored at once.
    alone = _Alone() if traits.stateful or traits.holds_trajectory else nullcontext()

    def scored(messages: list[Message], **columns: Any) -> EvaluateResult:
        done, steps = Replay(), _steps(messages, columns)
        with alone:
            replay(tree, steps, done)
        return _result(done, steps)

    async def scored_async(messages: list[Message], **columns: Any) -> EvaluateResult:
        done, steps = Replay(), _steps(messages, columns)
        async with alone:
            await replay_async(tree, steps, done)
        return _result(done, steps)

    function = scored_async if traits.is_async else scored
    function.__name__ = function.__qualname__ = tree._title()
    function.__doc__ = tree.__doc__
    return RewardFunction(function)


class _Alone:
    """Lets in one at a time, whatever thread or event loop it comes from."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # A loop's own tasks queue up before its lock, so that one of them at most looks again.
        # Some versions of anyio tell variables apart by their names alone.
        self._queue: RunVar[anyio.Lock] = RunVar(f"guerdon_alone_{next(_numbers)}")

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    async def __aenter__(self) -> None:
        queue = self._queue.get(None)
        if queue is None:
            queue = anyio.Lock()
            self._queue.set(queue)
        async with queue:
            while not self._lock.acquire(blocking=False):
                await anyio.sleep(LOOK_AGAIN_S)

    async def __aexit__(self, *error: object) -> None:
        self._lock.release()


def _steps(messages: list[Message], columns: dict[str, Any]) -> list[tuple[Any, Any]]:
    return list(Rollout.from_row({"messages": messages, **columns}).steps)


def _result(done: Replay, steps: list[tuple[Any, Any]]) -> EvaluateResult:
    outputs = [
        StepOutput(step_index=action.turn, base_reward=reward)
        for (action, _), reward in zip(steps, done.rewards, strict=True)
    ]
    return EvaluateResult(
        score=done.score,
        metrics=done.components(),
        step_outputs=outputs,
        error="; ".join(done.handled) or None,
    )
