"""Scoring recorded rollouts: a rubric is reset and replayed over each, step by step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

from guerdon.errors import InvalidArgumentError, RolloutError
from guerdon.rollouts.scoring.function_scorer import FunctionScorer
from guerdon.rollouts.scoring.grouping import groups_of
from guerdon.rollouts.scoring.own_loop import LoopRunningError, OwnLoop
from guerdon.rollouts.scoring.rows import (
    ResultRow,
    failed_row,
    invalid_row,
)
from guerdon.rubrics.failure import say_failure
from guerdon.rubrics.functions.decorator import RewardFunction
from guerdon.rubrics.replay import Replay, replay, replay_async
from guerdon.rubrics.rubric import Rubric
from guerdon.types.rollout import Rollout

__all__ = ["RolloutScorer", "failure_of", "refuse_parameters", "score_rollouts", "scorer_of"]


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
        self._loop = OwnLoop()
        self._done = Replay()  # one for all: each begins it anew

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._loop.close()

    @property
    def takes_groups(self) -> bool:
        """Whether it scores the rollouts of a group together: a rubric sees one at a time."""
        return False

    def score_group(self, rollouts: Sequence[Rollout]) -> list[ResultRow]:
        """Score rollouts, one after the other."""
        return [self.score(rollout) for rollout in rollouts]

    def score(self, rollout: Rollout) -> ResultRow:
        """Score a rollout. What fails is told in the row, not raised.

        Raises:
            AsyncRubricError: The rubric is async and an event loop is running here already.
        """
        rubric, done = self.rubric, self._done
        try:
            if (rubric._traits or rubric._look()).is_async:
                self._loop.run(replay_async(rubric, rollout.steps, done), type(rubric).__name__)
            else:
                replay(rubric, rollout._steps or rollout.steps, done)
        except LoopRunningError:
            raise
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # also sys.exit() and the like: they end a row, not the run
            said = say_failure(error, done.where(rollout.first_turn))
            return invalid_row(
                rollout.id,
                rollout.group,
                self.fingerprint,
                error=said,
                components=done.components(),
            )
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

    def failed(self, error: RolloutError) -> ResultRow:
        """The row of a rollout that could not be read."""
        return failed_row(error, self.fingerprint)


def scorer_of(
    reward: Rubric | RewardFunction, parameters: dict[str, Any] | None = None
) -> RolloutScorer | FunctionScorer:
    """What scores rollouts with a reward.

    Args:
        reward: A rubric, or a reward function.
        parameters: What the function is given by name.

    Raises:
        InvalidArgumentError: A rubric takes no parameters; or the function takes others.
    """
    if isinstance(reward, RewardFunction):
        return FunctionScorer(reward, parameters)
    refuse_parameters(parameters)
    return RolloutScorer(reward)


def refuse_parameters(parameters: dict[str, Any] | None) -> None:
    """Refuse what a rubric is given by name.

    Raises:
        InvalidArgumentError: There is such a thing.
    """
    if parameters:
        raise InvalidArgumentError(
            f"a rubric takes no parameters, but {sorted(parameters)} were given; reward functions "
            "on messages take them"
        )


def score_rollouts(
    reward: Rubric | RewardFunction,
    rollouts: Iterable[Rollout],
    *,
    score_failed: bool = False,
) -> Iterator[ResultRow]:
    """Score rollouts, in order.

    Example:
        >>> from guerdon import NumericAnswer, read_rollouts
        >>> line = '{"ground_truth": "42", "messages": [{"role": "assistant", "content": "A: 42"}]}'
        >>> [row["score"] for row in score_rollouts(NumericAnswer(), read_rollouts([line, line]))]
        [1.0, 1.0]

    Args:
        reward: A rubric, which is reset before each; or a reward function. One that scores
            batches gets the rollouts of a group together, which must follow each other.
        rollouts: Any number of rollouts; no more than one, or than one group, is held.
        score_failed: Whether an episode that ended with an error is scored all the same; else its
            row is invalid and says why.

    Yields:
        A row for each. What fails is told in its row.

    Raises:
        RolloutError: The reward scores batches, and the rollouts of a group stand apart.
    """
    with scorer_of(reward) as scorer:
        if scorer.takes_groups:
            for together in groups_of(rollouts):
                yield from _scored_together(scorer, together, score_failed)
            return
        score = scorer.score
        for rollout in rollouts:
            if "ended" in rollout.columns and rollout.failure and not score_failed:
                yield scorer.failed(failure_of(rollout))
            else:
                yield score(rollout)


def failure_of(rollout: Rollout, line: int | None = None) -> RolloutError:
    """The error of an episode that failed, for its row."""
    return RolloutError(str(rollout.failure), line=line, row=rollout.columns)


def _scored_together(
    scorer: RolloutScorer | FunctionScorer, rollouts: Sequence[Rollout], score_failed: bool
) -> Iterator[ResultRow]:
    """The rows of a group; the episodes that failed are compared with nobody."""
    counted = [each for each in rollouts if score_failed or each.failure is None]
    rows = iter(scorer.score_group(counted) if counted else ())
    for rollout in rollouts:
        failed = not score_failed and rollout.failure is not None
        yield scorer.failed(failure_of(rollout)) if failed else next(rows)
