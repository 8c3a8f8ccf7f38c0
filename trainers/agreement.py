"""Whether scores that arrived through a trainer are those of the reward that is called directly."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from guerdon.credit import StepBatch, grpo
from guerdon.rubrics import as_reward_function
from trainers.rollouts import make_reward, make_rollouts

ROLLOUTS = make_rollouts()

# What arrives for a rollout: a score, or None, NaN or an exception.
Arrival = float | None | Exception


def attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function, and return what it returns or raises."""
    try:
        return function(*arguments)
    except Exception as error:
        return error


def direct(rows: Sequence[dict[str, Any]]) -> list[Arrival]:
    """Call the reward itself."""
    function = as_reward_function(make_reward())
    results = [function.evaluate(row["messages"], row["ground_truth"]) for row in rows]
    return [result.score if result.is_score_valid else None for result in results]


class Agreement(NamedTuple):
    """How what arrived through a trainer differs from the reward that is called directly.

    Attributes:
        way: The trainer.
        rows: The number of rollouts.
        score: The largest difference of a score; infinite if a score is missing or superfluous.
        advantage: The same of an advantage of GRPO.
        numbers: How many failures arrived as a number.
        failures: What arrives for a failure.
    """

    way: str
    rows: int
    score: float
    advantage: float
    numbers: int
    failures: str

    def cells(self, tolerance: float = 1e-9) -> list[str]:
        """Return a row of the table; differences up to the tolerance are not shown exactly."""
        differences = [_shown(each, tolerance) for each in (self.score, self.advantage)]
        return [self.way, f"{self.rows:,}", *differences, str(self.numbers), self.failures]


HEADER = (
    "trainer", "rows", "scores differ by", "advantages differ by", "failures as a number",
    "what arrives for a failure",
)  # fmt: skip


def _shown(difference: float, tolerance: float) -> str:
    if difference == 0:
        return "0"
    return f"≤ {tolerance:g}" if difference <= tolerance else f"{difference:.1e}"


def table(*rows: Sequence[str]) -> str:
    """Return a table of Markdown; the first row is the header."""
    header, *others = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([header, "|---" * len(rows[0]) + "|", *others])


def advantages(scores: Sequence[float | None]) -> list[float | None]:
    """Return the advantages of the rollouts, None for those without a score."""
    rows = range(len(scores))
    batch = StepBatch.from_arrays(
        [0.0 if score is None else score for score in scores],
        trajectory=[*rows],
        step=[0 for _ in rows],
        group=[row["group"] for row in ROLLOUTS],
        valid=[score is not None for score in scores],
    )
    credit = grpo(batch)
    return [
        each if counts else None
        for each, counts in zip(credit.advantage.tolist(), credit.mask.tolist(), strict=True)
    ]


def agreement(
    way: str, arrived: Sequence[Arrival], credited: Sequence[float | None] | None = None
) -> Agreement:
    """Compare what arrived with the reward that is called directly.

    Args:
        way: The trainer.
        arrived: What arrived for each rollout.
        credited: Its advantages; by default those of guerdon for what arrived.
    """
    expected = direct(ROLLOUTS)
    scores = [each if _is_number(each) else None for each in arrived]
    failures = [got for got, score in zip(arrived, expected, strict=True) if score is None]
    kinds = sorted({_kind(each) for each in failures})
    return Agreement(
        way,
        len(scores),
        _difference(scores, expected),
        _difference(credited or advantages(scores), advantages(expected)),
        sum(map(_is_number, failures)),
        ", ".join(kinds),
    )


def _is_number(arrived: Arrival) -> bool:
    return isinstance(arrived, (int, float)) and not math.isnan(arrived)


def _kind(arrived: Arrival) -> str:
    if isinstance(arrived, Exception):
        return f"`{type(arrived).__name__}`"
    return "None" if arrived is None else "NaN" if math.isnan(arrived) else "a number"


def _difference(one: Sequence[Any], other: Sequence[Any]) -> float:
    pairs = list(zip(one, other, strict=True))
    if any((a is None) != (b is None) for a, b in pairs):
        return math.inf
    return max(abs(a - b) for a, b in pairs if a is not None)
