"""`Ensemble`: one score of several rubrics that measure the same, and how much they disagree."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from guerdon._thresholds import is_zero, reaches
from guerdon._validation import check_choice, check_number
from guerdon.errors import InvalidArgumentError, RubricError
from guerdon.rubrics import step_rewards
from guerdon.rubrics.containers import Container
from guerdon.rubrics.evaluation import adaptive, score_child, score_children
from guerdon.rubrics.function import RubricLike
from guerdon.rubrics.recording import is_pending
from guerdon.rubrics.rubric import Rubric
from guerdon.rubrics.state import Checked

__all__ = ["Ensemble"]


def _majority(scores: Sequence[float]) -> float:
    """The most frequent score, the lowest of several; rounding makes no difference."""
    votes = {score: sum(is_zero(other - score) for other in scores) for score in set(scores)}
    return min(score for score in votes if votes[score] == max(votes.values()))


# How scores of one thing become one score; also those of the verdicts of a judge.
REDUCTIONS: dict[str, Callable[[Sequence[float]], float]] = {
    "majority": _majority,
    "mean": statistics.mean,
    "median": statistics.median,
    "min": min,
}


class Disagreement(Rubric):
    """The standard deviation of the scores of the members, √(Σ(sᵢ − s̄)²/n)."""

    def forward(self, action: Any, observation: Any) -> float:
        """Return the standard deviation of the scores, which are the action."""
        return float(statistics.pstdev(action))


class Ensemble(Container):
    """One score of several rubrics that measure the same, such as judges of different kinds.

    In an async tree the members are evaluated concurrently. If one fails, the ensemble fails. The
    standard deviation of their scores is the component ``disagreement``; while a trajectory rubric
    among them waits for the end of the episode, they are not compared. The step rewards are the
    reduction of those of the members.

    Example:
        >>> from guerdon import Ensemble, LengthBounds, RegexMatch
        >>> polite = [RegexMatch("please"), RegexMatch("thank"), LengthBounds(minimum=20)]
        >>> ensemble = Ensemble(polite, reduce="majority", agree=0.6)
        >>> ensemble("please, and thank you", None), ensemble("please come", None)
        (1.0, 0.0)
        >>> ensemble.score("please come", None).components()["disagreement"]
        0.4714045207910317
        >>> ensemble.agree = 0.7
        >>> ensemble.score("please come", None).error
        'RubricError: the members disagree: 1, 0, 0 have an agreement of 0.667, wanted at least 0.7'

    Args:
        rubrics: The members, at least one: rubrics or functions with the same range of scores.
        reduce: ``"mean"``, ``"median"``, ``"min"`` or ``"majority"`` (the most frequent score, the
            lowest of several).
        agree: The lowest accepted agreement, in [0, 1]; below it the ensemble fails. The agreement
            is 1 − Σ|sᵢ − s|/(n·range) for the result s; with scores of 0 and 1, the share of the
            members whose score is the result. The range is that of the members, 1 if one of them
            declares none. None accepts any.

    Raises:
        InvalidArgumentError: There is no member, or an argument is outside of what is accepted.
    """

    state_names = ("reduce", "agree")
    tunable = ("agree",)
    reduce = Checked(check_choice, choices=REDUCTIONS)
    agree: Checked[float | None] = Checked(check_number, optional=True, low=0, high=1)

    def __init__(
        self,
        rubrics: Iterable[RubricLike],
        reduce: str = "mean",
        *,
        agree: float | None = None,
    ) -> None:
        super().__init__()
        self._add({f"rubric_{index}": rubric for index, rubric in enumerate(rubrics)})
        if not self._children:
            raise InvalidArgumentError("`rubrics` must contain at least one rubric")
        self.disagreement = Disagreement()
        self.reduce = reduce
        self.agree = agree

    @adaptive
    async def forward(self, action: Any, observation: Any) -> float:
        """Evaluate the members, and reduce their scores."""
        given = await score_children(self, self._members(), action, observation)
        scores = [float(score) for score in given]  # no longer credited to one member
        result = REDUCTIONS[self.reduce](scores)
        if not any(map(is_pending, given)):
            await score_child(self, self.disagreement, scores, observation)
            self._check_agreement(scores, result)
        return result

    def _members(self) -> list[Rubric]:
        return [child for child in self._children.values() if child is not self.disagreement]

    def _check_agreement(self, scores: Sequence[float], result: float) -> None:
        low, high = self._range() or (0.0, 1.0)
        width = high - low if 0 < high - low < math.inf else 1.0
        agreement = statistics.mean(1 - abs(score - result) / width for score in scores)
        if self.agree is not None and not reaches(agreement, self.agree):
            listed = ", ".join(f"{score:.6g}" for score in scores)
            raise RubricError(
                f"the members disagree: {listed} have an agreement of {agreement:.3g}, wanted at "
                f"least {self.agree:g}"
            )

    def _range(self) -> tuple[float, float] | None:
        declared = [each for each in (child._range() for child in self._members()) if each]
        if not declared or len(declared) < len(self._members()):
            return None
        return min(low for low, _ in declared), max(high for _, high in declared)

    def _rewards_by_step(self) -> dict[int, float]:
        members = [step_rewards.by_step(child) for child in self._members()]
        rows = {
            stamp: [rewards.get(stamp, 0.0) for rewards in members]
            for stamp in step_rewards.stamps(self)
        }
        reduced = REDUCTIONS[self.reduce]
        return {
            stamp: math.nan if any(map(math.isnan, row)) else reduced(row)
            for stamp, row in rows.items()
        }
