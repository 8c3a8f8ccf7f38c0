"""What a `RubricComposer` is made of: names, weights, and which are due at the end."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from guerdon.errors import InvalidArgumentError
from guerdon.rubrics.containers import finite_argument
from guerdon.rubrics.function import RubricLike
from guerdon.rubrics.rubric import Rubric

__all__ = [
    "ScoreRange",
    "checked_flag",
    "declared_range",
    "matched_weights",
    "named_rubrics",
    "names_at_end",
]


class ScoreRange(NamedTuple):
    """Where a rubric's scores lie.

    Example:
        >>> from guerdon import RegexMatch, RubricComposer
        >>> RubricComposer({"polite": RegexMatch("please")}, {"polite": 1.0}).ranges()
        {'polite': ScoreRange(low=0.0, high=1.0, source='declared')}

    Attributes:
        low: The lowest score.
        high: The highest score.
        source: ``"declared"`` by the rubric, or ``"observed"`` so far.
    """

    low: float
    high: float
    source: str


def named_rubrics(rubrics: Any) -> dict[str, RubricLike]:
    """Rubrics by name; those of a list are numbered."""
    if isinstance(rubrics, Mapping):
        return dict(rubrics)
    if isinstance(rubrics, Rubric) or not isinstance(rubrics, Iterable):
        raise InvalidArgumentError(
            f"{rubrics!r:.80} is no mapping of names to rubrics, and no list of them"
        )
    return {f"rubric_{place}": rubric for place, rubric in enumerate(rubrics)}


def matched_weights(named: Collection[str], weights: Any) -> dict[str, float]:
    """One weight for each name."""
    if isinstance(weights, str) or not isinstance(weights, Iterable):
        raise InvalidArgumentError(
            f"weights is {weights!r:.80}; it takes one number a rubric, by its name or in order"
        )
    if not isinstance(weights, Mapping):
        given = list(weights)
        if len(given) != len(named):
            raise InvalidArgumentError(
                f"the {len(named)} rubrics and {len(given)} weights of RubricComposer must match; "
                "a rubric takes one weight"
            )
        weights = dict(zip(named, given, strict=True))
    if weights.keys() != set(named):
        raise InvalidArgumentError(
            f"the weights are named {list(weights)}, the rubrics {list(named)}; a rubric takes "
            "one weight, by its name"
        )
    return {name: finite_argument(weights[name], f"weights[{name!r}]") for name in named}


def names_at_end(episode_end: Any, named: Collection[str]) -> frozenset[str]:
    """The names that are due only at the end."""
    if isinstance(episode_end, str):
        raise InvalidArgumentError(f"episode_end is {episode_end!r}; it takes a list of names")
    unknown = [name for name in episode_end if name not in named]
    if unknown:
        raise InvalidArgumentError(
            f"episode_end names {', '.join(map(repr, unknown))}; there are {list(named)}"
        )
    return frozenset(episode_end)


def declared_range(rubric: Rubric) -> tuple[float, float] | None:
    """The range that a rubric declares; None of one that has an end at infinity, or none at all.

    Raises:
        InvalidArgumentError: What it declares is no range.
    """
    declared = rubric._range()
    if declared is None:
        return None
    try:
        low, high = declared
        ordered = low <= high
    except (TypeError, ValueError):
        ordered = False
    if not ordered:
        raise InvalidArgumentError(
            f"{type(rubric).__name__}.score_range is {declared!r:.80}; it takes the lowest and "
            "the highest score"
        )
    return (low, high) if math.isfinite(high - low) else None


def checked_flag(value: Any) -> bool:
    """What is given as `normalize`."""
    if not isinstance(value, bool):
        raise InvalidArgumentError(f"normalize is {value!r:.80}; it takes True or False")
    return value
