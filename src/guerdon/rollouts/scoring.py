"""Scoring recorded rollouts: a rubric is reset and replayed over each, step by step."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable, Iterator
from types import TracebackType
from typing import Any, Self, TypedDict

from guerdon.errors import AsyncRubricError, RolloutError
from guerdon.models.rollout import Rollout
from guerdon.rubrics.failure import say_failure
from guerdon.rubrics.replay import Replay, replay, replay_async
from guerdon.rubrics.rubric import Rubric

__all__ = ["ResultRow", "RolloutScorer", "score_rollouts"]


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
        rubric, done = self.rubric, Replay()
        try:
            if (rubric._traits or rubric._look()).is_async:
                self._run_async(replay_async(rubric, rollout.steps, done))
            else:
                replay(rubric, rollout.steps, done)
        except _LoopRunningError:
            raise
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # also sys.exit() and the like: they end a row, not the run
            said = say_failure(error, done.where())
            return self._invalid(rollout.id, rollout.group, done.components(), said)
        return {
            "id": rollout.id,
            "group": rollout.group,
            "score": done.score,
            "is_score_valid": True,
            "components": done.steps[0] if len(done.steps) == 1 else done.components(),
            "step_rewards": done.rewards,
            "error": "; ".join(done.told) if done.told else None,
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
