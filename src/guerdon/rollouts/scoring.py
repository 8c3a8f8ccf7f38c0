"""Scoring recorded rollouts: a rubric is reset and replayed over each, step by step."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable, Iterator
from types import TracebackType
from typing import Any, Self, TypeAlias, TypedDict

from guerdon.errors import AsyncRubricError, RolloutError
from guerdon.models.rollout import MessageAction, MessageObservation, Rollout
from guerdon.rubrics import frames, step_rewards
from guerdon.rubrics.call import exact_sum, finite, namer
from guerdon.rubrics.components import add_components
from guerdon.rubrics.concurrency import evaluate
from guerdon.rubrics.failure import say_caught, say_failure
from guerdon.rubrics.frames import Frame
from guerdon.rubrics.rubric import Rubric

__all__ = ["ResultRow", "RolloutScorer", "score_rollouts"]

Steps: TypeAlias = "list[tuple[MessageAction, MessageObservation]]"


class ResultRow(TypedDict):
    """What comes out for one rollout.

    Example:
        >>> from guerdon import NumericAnswer, Rollout
        >>> rollout = Rollout.from_row({"id": "q7", "ground_truth": "42", "messages": [
        ...     {"role": "assistant", "content": "A: 42"}]})
        >>> [row] = score_rollouts(NumericAnswer(), [rollout])
        >>> row["id"], row["score"], row["is_score_valid"], row["step_rewards"], row["error"]
        ('q7', 1.0, True, [1.0], None)

    Attributes:
        id: The rollout's.
        group: The rollout's.
        score: The sum of the step values; None where the row is invalid.
        is_score_valid: Whether every step has a score.
        components: Those of the last step, by dotted name; where there are several steps, beside
            each ``name`` also ``name/mean``, its mean over the steps at which it has a value.
        step_rewards: One finite float a step; None where the row is invalid.
        error: What failed, in words. Beside a valid score it tells of failures that the reward
            itself dealt with, such as a `Guarded` with ``on_error="zero"``.
        fingerprint: That of the reward.
    """

    id: Any
    group: Any
    score: float | None
    is_score_valid: bool
    components: dict[str, float]
    step_rewards: list[float] | None
    error: str | None
    fingerprint: str


class _LoopRunningError(AsyncRubricError):
    """The caller's mistake, and no rollout's."""


class RolloutScorer:
    """Scores one rollout after the other with one rubric.

    Use it as a context manager, so that the event loop of an async rubric is closed at the end.

    Example:
        >>> from guerdon import NumericAnswer, Rollout
        >>> rollout = Rollout.from_row({"id": "q7", "ground_truth": "42", "messages": [
        ...     {"role": "user", "content": "6 × 7?"},
        ...     {"role": "assistant", "content": "A: 42"}]})
        >>> with RolloutScorer(NumericAnswer()) as scorer:
        ...     scorer.score(rollout)["score"]
        1.0

    Args:
        rubric: The rubric. Nobody else may call it meanwhile.
    """

    def __init__(self, rubric: Rubric) -> None:
        self.rubric = rubric
        self.fingerprint = rubric.fingerprint()
        self._loop: asyncio.Runner | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    def score(self, rollout: Rollout) -> ResultRow:
        """Score a rollout. What fails is told in the row, not raised.

        Raises:
            AsyncRubricError: The rubric is async and an event loop is running here already.
        """
        rubric = self.rubric
        values: list[float] = []
        steps: list[dict[str, float]] = []  # the components of each step that was begun
        told: list[str] = []
        try:
            traits = rubric._traits or rubric._look()
            if traits.is_async:
                self._run_async(_replay_async(rubric, rollout.steps, values, steps, told))
            else:
                if traits.stateful or rubric._log:
                    rubric.reset()
                call = namer(rubric)
                caught: dict[str, Exception] = {}
                for action, observation in rollout.steps:
                    named: dict[str, float] = {}
                    steps.append(named)
                    values.append(call(rubric, action, observation, named, caught))
                    if caught:
                        told.append(_told(caught, len(values) - 1, len(rollout.steps)))
                        caught.clear()
            score = values[0] if len(values) == 1 else finite(rubric, exact_sum(values))
            rewards = values
            if traits.holds_trajectory:
                rewards = rubric.compute_step_rewards()
                step_rewards.check(rubric, rewards, len(values))
        except _LoopRunningError:
            raise
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # also sys.exit() and the like: they end a row, not the run
            said = say_failure(error, f"step {len(values)}" if steps else None)
            return self._invalid(rollout.id, rollout.group, _components(steps), said)
        return {
            "id": rollout.id,
            "group": rollout.group,
            "score": score,
            "is_score_valid": True,
            "components": steps[0] if len(steps) == 1 else _components(steps),
            "step_rewards": rewards,
            "error": "; ".join(told) if told else None,
            "fingerprint": self.fingerprint,
        }

    def _run_async(self, replay: Coroutine[Any, Any, None]) -> None:
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            replay.close()
            raise _LoopRunningError(
                f"{type(self.rubric).__name__} is async, and an event loop is running here "
                "already; score rollouts outside of it, or in a thread of their own"
            )
        self._loop = self._loop or asyncio.Runner()
        self._loop.run(replay)

    def failed(self, error: RolloutError) -> ResultRow:
        """The row of a rollout that could not be read."""
        where = f"line {error.line}: " if error.line is not None else ""
        row = error.row if isinstance(error.row, dict) else None
        said = f"{where}{type(error).__name__}: {error}"
        if row is None:
            return self._invalid(None, None, {}, said)
        return self._invalid(row.get("id", error.line), row.get("group"), {}, said)

    def _invalid(self, found: Any, group: Any, named: dict[str, float], error: str) -> ResultRow:
        return {
            "id": found,
            "group": group,
            "score": None,
            "is_score_valid": False,
            "components": named,
            "step_rewards": None,
            "error": error,
            "fingerprint": self.fingerprint,
        }


def score_rollouts(rubric: Rubric, rollouts: Iterable[Rollout]) -> Iterator[ResultRow]:
    """Score rollouts with a rubric, in order, one at a time.

    Example:
        >>> from guerdon import NumericAnswer, read_rollouts
        >>> line = '{"ground_truth": "42", "messages": [{"role": "assistant", "content": "A: 42"}]}'
        >>> [row["score"] for row in score_rollouts(NumericAnswer(), read_rollouts([line, line]))]
        [1.0, 1.0]

    Args:
        rubric: The rubric; it is reset before each.
        rollouts: Any number of rollouts; no more than one is held.

    Yields:
        A row for each. What fails is told in its row.
    """
    with RolloutScorer(rubric) as scorer:
        yield from map(scorer.score, rollouts)


async def _replay_async(
    rubric: Rubric,
    steps: Steps,
    values: list[float],
    components: list[dict[str, float]],
    told: list[str],
) -> None:
    rubric.reset()
    for action, observation in steps:
        named: dict[str, float] = {}
        components.append(named)
        caught: dict[str, Exception] = {}
        recorder = Frame(None)
        token = frames.enter(recorder)
        try:
            values.append(await evaluate(rubric, action, observation))
        finally:
            frames.leave(token)
            if recorder.entries:
                add_components(named, rubric, recorder.entries[-1][3], "", caught)
        if caught:
            told.append(_told(caught, len(values) - 1, len(steps)))


def _components(steps: list[dict[str, float]]) -> dict[str, float]:
    """Those of the last step; of several steps, with the means over all."""
    if len(steps) < 2:
        return steps[0] if steps else {}
    last = dict(steps[-1])
    _add_means(last, steps)
    return last


def _told(caught: dict[str, Exception], step: int, steps: int) -> str:
    """What was raised at a step, and dealt with, in words."""
    return say_caught(caught, f"step {step}: " if steps > 1 else "")


def _add_means(last: dict[str, float], steps: list[dict[str, float]]) -> None:
    seen: dict[str, list[float]] = {}
    for step in steps:
        for name, value in step.items():
            seen.setdefault(name, []).append(value)
    for name, of_name in seen.items():
        last[f"{name}/mean"] = sum(of_name) / len(of_name)
