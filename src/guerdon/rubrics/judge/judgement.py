"""`Judgement`: what one or several verdicts come to."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from guerdon.errors import InvalidArgumentError
from guerdon.rubrics.judge.verdict import JudgeVerdict
from guerdon.rubrics.step_rewards import exact_sum

__all__ = ["Judgement"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the verdicts of all samples of all judges come to.

    Example:
        >>> from guerdon.rubrics import JudgeVerdict, Judgement
        >>> verdicts = JudgeVerdict(0.0, "No."), JudgeVerdict(1.0, "Yes.")
        >>> print(Judgement(0.5, "No.", verdicts=verdicts, disagreement=0.5))
        of 2 verdicts, which differ by 0.5 (standard deviation): No.

    Attributes:
        score: A finite float in the judge's range.
        reasoning: That of the verdict nearest to the score.
        criteria: The score of each criterion, where there are any.
        verdicts: The verdicts, judge by judge.
        disagreement: The standard deviation of the verdicts' scores, √(Σ(sᵢ − s̄)²/n); 0.0 for one.
    """

    score: float
    reasoning: str = ""
    criteria: Mapping[str, float] = field(default_factory=dict)
    verdicts: tuple[JudgeVerdict, ...] = ()
    disagreement: float = 0.0

    def __str__(self) -> str:
        """Why the score is what it is, in words, with the disagreement where there are several."""
        if len(self.verdicts) < 2:
            return self.reasoning
        return (
            f"of {len(self.verdicts)} verdicts, which differ by {self.disagreement:.3g} (standard "
            f"deviation): {self.reasoning}"
        )


def _mean(scores: Sequence[float]) -> float:
    return _among(scores, exact_sum(scores) / len(scores))


def _among(scores: Collection[float], mean: float) -> float:
    """A mean, which rounding may have put beyond all that it is the mean of."""
    return min(max(mean, min(scores)), max(scores))


def _majority(scores: Sequence[float]) -> float:
    counts = Counter(scores)
    most = max(counts.values())
    return min(score for score, count in counts.items() if count == most)


# Of as many that are as frequent, the majority is the lowest: a doubt earns nothing.
AGGREGATES: dict[str, Callable[[Sequence[float]], float]] = {
    "majority": _majority,
    "mean": _mean,
    "median": statistics.median,
}


def check_aggregate(name: str) -> str:
    """Check the name of an aggregation.

    Raises:
        InvalidArgumentError: It is none.
    """
    if name not in AGGREGATES:
        raise InvalidArgumentError(
            f"aggregate is {name!r:.80}; it takes {', '.join(map(repr, AGGREGATES))}"
        )
    return name


def judgement_of(
    verdicts: Sequence[JudgeVerdict], aggregate: str, *, weights: Mapping[str, float] | None = None
) -> Judgement:
    """Aggregate verdicts.

    Example:
        >>> verdicts = [JudgeVerdict(0.0), JudgeVerdict(1.0), JudgeVerdict(1.0)]
        >>> judgement_of(verdicts, "majority").score
        1.0

    Args:
        verdicts: At least one.
        aggregate: ``"mean"``, ``"median"`` or ``"majority"`` (the most frequent score, the lowest
            of several).
        weights: Those of the criteria, where there are any: each is aggregated by itself, and the
            score is their mean by weight, Σ wᵢ·sᵢ / Σ wᵢ.
    """
    combine = AGGREGATES[aggregate]
    scores = [_score_of(verdict, weights) for verdict in verdicts]
    criteria = {name: combine([verdict.criteria[name] for verdict in verdicts])
                for name in weights or ()}  # fmt: skip
    score = _weighted(criteria, weights) if weights else combine(scores)
    nearest = min(range(len(scores)), key=lambda place: abs(scores[place] - score))
    return Judgement(
        score,
        verdicts[nearest].reasoning,
        criteria,
        tuple(verdicts),
        statistics.pstdev(scores) if len(scores) > 1 else 0.0,
    )


def _score_of(verdict: JudgeVerdict, weights: Mapping[str, float] | None) -> float:
    if weights:
        return _weighted(verdict.criteria, weights)
    assert verdict.score is not None  # only one that was asked for criteria has none
    return verdict.score


def _weighted(criteria: Mapping[str, float], weights: Mapping[str, float]) -> float:
    total = exact_sum(weight * criteria[name] for name, weight in weights.items())
    mean = total / exact_sum(weights.values())
    return _among([criteria[name] for name in weights], mean)
