"""`ComparisonReport`, and `compare_rewards`, which makes one of two rewards and some rollouts."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from guerdon.rollouts.comparing.changes import RewardChange, changes_of_rewards
from guerdon.rollouts.comparing.comparison import Comparison, compare_rows
from guerdon.rollouts.scoring.scorers import score_rollouts, scorer_of
from guerdon.rubrics.functions.decorator import RewardFunction
from guerdon.rubrics.rubric import Rubric
from guerdon.types.rollout import Rollout

__all__ = ["ComparisonReport", "compare_rewards"]


@dataclass(frozen=True, slots=True)
class ComparisonReport:
    """Two rewards on the same rollouts: what changed in them, and what came of it.

    Example:
        >>> from guerdon import NumericAnswer
        >>> report = compare_rewards(NumericAnswer(), NumericAnswer(), [])
        >>> report.changes, report.comparison.rows, report.is_unsteady
        ((), 0, False)

    Attributes:
        comparison: How the scores moved.
        changes: What changed from one reward to the other.
        fingerprint_before: That of the reward before, as in its result rows.
        fingerprint_after: That of the reward after.
        seconds: How long scoring took, both together.
        interrupted: Whether ctrl-C ended it; it tells of the rollouts up to there.
    """

    comparison: Comparison
    changes: tuple[RewardChange, ...]
    fingerprint_before: str
    fingerprint_after: str
    seconds: float = 0.0
    interrupted: bool = False

    @property
    def is_unsteady(self) -> bool:
        """Whether one and the same reward gave two scores: it doesn't repeat itself."""
        movement = self.comparison.movement
        same = self.fingerprint_before == self.fingerprint_after
        return same and bool(movement.rose or movement.fell)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON can hold it."""
        return {
            "fingerprints": {"before": self.fingerprint_before, "after": self.fingerprint_after},
            "changes": [change.to_dict() for change in self.changes],
            "interrupted": self.interrupted,
            "unsteady": self.is_unsteady,
            "seconds": round(self.seconds, 6),
            **self.comparison.to_dict(),
        }


def compare_rewards(
    before: Rubric | RewardFunction,
    after: Rubric | RewardFunction,
    rollouts: Iterable[Rollout],
    *,
    top: int = 10,
    score_failed: bool = False,
) -> ComparisonReport:
    """Score rollouts with two rewards, and compare.

    Each reward has the rollouts for itself: `after` is given copies, so that what `before` does
    to a rollout changes nothing.

    Example:
        >>> from guerdon import Rollout, NumericAnswer
        >>> rollout = Rollout.from_row({"id": "q7", "ground_truth": "42", "messages": [
        ...     {"role": "assistant", "content": "A: 43"}]})
        >>> strict, lenient = NumericAnswer(), NumericAnswer(tolerance=1.0)
        >>> report = compare_rewards(strict, lenient, [rollout])
        >>> str(report.changes[0]), report.comparison.moved[0].difference
        ('tolerance: 0.0 → 1.0', 1.0)

    Args:
        before: A rubric, which is reset before each rollout; or a reward function.
        after: A rubric or a reward function.
        rollouts: Any number. Where a reward scores batches, those of a group follow each other.
        top: How many rollouts, and flipped pairs, are told one by one, from 0.
        score_failed: Whether an episode that ended with an error is scored all the same; else its
            row is invalid.

    Raises:
        RolloutError: A reward scores batches, and the rollouts of a group stand apart.
        InvalidArgumentError: `top` is no int from 0 on.
    """
    start = perf_counter()
    changes = tuple(changes_of_rewards(before, after))
    ones, others = itertools.tee(_twice(rollouts))
    comparison = compare_rows(
        score_rollouts(before, (one for one, _ in ones), score_failed=score_failed),
        score_rollouts(after, (other for _, other in others), score_failed=score_failed),
        top=top,
    )
    return ComparisonReport(
        comparison,
        changes,
        _fingerprint(before),
        _fingerprint(after),
        seconds=perf_counter() - start,
    )


def _twice(rollouts: Iterable[Rollout]) -> Iterator[tuple[Rollout, Rollout]]:
    """Each rollout with a copy of it, made before anybody has seen it."""
    for rollout in rollouts:
        yield rollout, copy.deepcopy(rollout)


def _fingerprint(reward: Rubric | RewardFunction) -> str:
    with scorer_of(reward) as scorer:
        return scorer.fingerprint
