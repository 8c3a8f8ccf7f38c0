"""`Criterion`: one of several things that a judge scores in one answer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any, ClassVar

from guerdon.errors import InvalidArgumentError, RubricError
from guerdon.rubrics.checks.inputs import number_within
from guerdon.rubrics.rubric import Rubric

__all__ = ["Criterion"]

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)

# What the judge that is evaluated just now has heard, by criterion.
current_scores: ContextVar[Mapping[int, float]] = ContextVar("guerdon_criteria")


class Criterion(Rubric):
    """One criterion of an `LLMJudge`, and a component of its score.

    Example:
        >>> from guerdon.rubrics import Criterion
        >>> Criterion("It is easy to follow.", weight=2)
        Criterion(description='It is easy to follow.', weight=2.0)

    Args:
        description: What the judge is told of it.
        weight: Its weight in the judge's score, over 0.
    """

    state_names: ClassVar[tuple[str, ...]] = ("weight",)

    def __init__(self, description: str = "", *, weight: float = 1.0) -> None:
        super().__init__()
        if not isinstance(description, str):
            raise InvalidArgumentError(f"a criterion's description is {description!r:.80}, no text")
        self.description = description
        self.weight = weight

    @property
    def weight(self) -> float:
        """The weight in the judge's score."""
        return self._weight

    @weight.setter
    def weight(self, weight: float) -> None:
        self._weight = number_within(weight, "weight", low=0.0)
        if self._weight == 0.0:
            raise InvalidArgumentError("weight is 0; a criterion takes a number over 0")

    def forward(self, action: Any, observation: Any) -> float:
        """What the judge said of it."""
        score = current_scores.get({}).get(id(self))
        if score is None:
            raise RubricError("a criterion is scored by its judge alone; call the judge")
        return score


def criteria_of(
    given: Sequence[str] | Mapping[str, str | Criterion] | None, taken: Any
) -> dict[str, Criterion]:
    """The criteria that an argument means.

    Args:
        given: Names; or names with what they mean.
        taken: What has attributes that no criterion may hide.

    Raises:
        InvalidArgumentError: A name can't be one, or stands twice.
    """
    if given is None:
        return {}
    if isinstance(given, str) or not isinstance(given, (Mapping, Sequence)) or not given:
        raise InvalidArgumentError(
            f"criteria is {given!r:.80}; it takes names, or names with what they mean"
        )
    named = given if isinstance(given, Mapping) else dict.fromkeys(given, "")
    if len(named) < len(given):
        raise InvalidArgumentError(f"criteria names one twice: {list(given)}")
    for name in named:
        if not isinstance(name, str) or not NAME.fullmatch(name) or hasattr(taken, name):
            raise InvalidArgumentError(
                f"criteria names {name!r:.80}; a name has letters, digits and underscores, and is "
                "no attribute of LLMJudge"
            )
    return {name: each if isinstance(each, Criterion) else Criterion(each)
            for name, each in named.items()}  # fmt: skip
