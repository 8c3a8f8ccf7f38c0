"""Answers that are the right number."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

from guerdon._validation import check_number, shown
from guerdon.errors import InvalidArgumentError, MissingInputError
from guerdon.rubrics.checks.answers import extract_answer
from guerdon.rubrics.checks.inputs import ExpectedAnswer, ground_truth_of, text_of
from guerdon.rubrics.checks.quantity import Quantity, read_quantity
from guerdon.rubrics.checks.units import conversion
from guerdon.rubrics.state import Checked
from guerdon.types.reasoning import REASONING_TAGS

__all__ = ["NumericAnswer"]

_APPROXIMATELY = re.compile(r"≈|\\approx(?![a-z])")
_SENTENCE = re.compile(
    r"(?:(?!not\b|never\b|no\b|least\b|most\b|than\b|between\b|if\b|wrong\b)[A-Za-z][a-z'’]*,?\s+){2,12}"
    r"([$€£¥₹-]{0,2}[0-9].*)"
)
_READABLE = (
    r"a number, or a text that is one (72, $1,234.50, 1/2, 50%) or states it in \boxed{…} or on an "
    "answer line (A: 72, #### 72)"
)


class NumericAnswer(ExpectedAnswer):
    r"""The answer states the right number.

    The answer is the last one that the text states outside of reasoning in an explicit form
    (`\boxed{…}`, `<answer>…</answer>`, `A: 72`, `#### 72`), or else in a sentence (`The answer is
    72`), or the whole text if it is only a number; never merely the last number in it.

    Numbers are compared as exact fractions. If both sides have a unit of measure or a currency,
    100 cm equals 1 m, and 5 km differs from 5 m; nouns such as eggs are no units. If
    only one side has one, the numbers alone are compared, except that 50% equals both 0.5 and 50.

    Args:
        expected: The right number, or a text that states it; None uses the observation's ground
            truth, which may be a number of Python or numpy, its text, or a worked solution.
        tolerance: The largest accepted difference as a share of the right number, at least 0; if
            the right number is 0, the largest difference itself.
        field: The attribute or key of the action that contains the text.
        reasoning_tags: The tags around reasoning, which is left out, as for `split_reasoning`.

    Returns:
        1.0 for the right number; 0.0 for another, for an answer that is not a single number, and
        if no answer is stated.

    Raises:
        InvalidArgumentError: `expected` states no number, or `tolerance` is out of range.
        MissingInputError: At evaluation, the action has no text, or the observation has no ground
            truth that states a number.

    Example:
        >>> NumericAnswer("72")("48 + 24 = 72 clips\nA: $72.00", None)
        1.0
    """

    score_range = (0.0, 1.0)
    state_names: ClassVar[tuple[str, ...]] = ("tolerance",)
    tolerance = Checked(check_number, low=0)

    def __init__(
        self,
        expected: str | float | Decimal | Fraction | None = None,
        *,
        tolerance: float = 0.0,
        field: str = "content",
        reasoning_tags: Sequence[str] = REASONING_TAGS,
    ) -> None:
        super().__init__(reasoning_tags)
        self.expected = expected
        self.tolerance = tolerance
        self.field = field

    def checked(self, value: Any) -> str | float | None:
        """Return the right number as it is stored; its value is kept beside it."""
        self._wanted = _wanted_from(value)
        if self._wanted is None and value is not None:
            raise InvalidArgumentError(f"`expected` must be {_READABLE}, got {shown(value)}")
        return str(value) if isinstance(value, Decimal | Fraction) else value

    def forward(self, action: Any, observation: Any) -> float:
        """Compare the number that the action states with the right one."""
        text = text_of(action, self.field)
        wanted = self._wanted
        if wanted is None:
            wanted = _ground_truth(observation)
        answer = extract_answer(text, reasoning_tags=self.reasoning_tags)
        if answer is None:
            self.explain("no answer is stated: no answer line, box or bare number")
            return 0.0
        stated = _numbers_in(answer)
        if not stated:
            self.explain("the answer %.80r is not one number", answer)
            return 0.0
        for number in stated:
            if number == wanted or _agree(number, wanted, self.tolerance):
                return 1.0
        self.explain("found %s, wanted %s", stated[-1], wanted)
        return 0.0


def _numbers_in(answer: str) -> list[Quantity]:
    """The number of an answer; of `1/3 ≈ 0.33` the exact and the rounded one."""
    number = read_quantity(answer)
    if number is None and (sentence := _SENTENCE.fullmatch(answer)):  # "There are 42 ways."
        number = read_quantity(sentence[1])
    if number is not None:
        return [number]
    members = [*map(read_quantity, _APPROXIMATELY.split(answer))]
    return [member for member in members if member] if members[-1] else []


def _agree(stated: Quantity, wanted: Quantity, tolerance: float) -> bool:
    value = stated.value
    if stated.unit and wanted.unit:
        factor = conversion(stated.unit, wanted.unit)
        return factor is not None and _near(value * factor, wanted.value, tolerance)
    if _near(value, wanted.value, tolerance):
        return True
    return stated.percent != wanted.percent and _near(
        value / 100 if stated.percent else value * 100, wanted.value, tolerance
    )


def _near(stated: Fraction, wanted: Fraction, tolerance: float) -> bool:
    if not tolerance:
        return stated == wanted
    return abs(stated - wanted) <= Fraction(repr(tolerance)) * (abs(wanted) or 1)


def _ground_truth(observation: object) -> Quantity:
    truth = ground_truth_of(observation)
    wanted = _wanted_in(truth) if type(truth) is str else _wanted_from(truth)
    if wanted is None:
        raise MissingInputError(
            f"the observation's ground truth states no number: it must be {_READABLE}, got "
            f"{shown(truth)}"
        )
    return wanted


def _wanted_from(value: object) -> Quantity | None:
    """The number of an author or a data set; None if the value is not a number."""
    if isinstance(value, str):
        return _wanted_in(str(value))
    if isinstance(value, int | Fraction) and not isinstance(value, bool):
        return Quantity(Fraction(value))
    # A float means the decimal that is written, so that 0.1 is 1/10.
    return read_quantity(str(value)) if isinstance(value, float | Decimal) else None


@lru_cache(maxsize=512)
def _wanted_in(text: str) -> Quantity | None:
    """Cached because every rollout of a group has the same ground truth."""
    stated = extract_answer(text)
    return None if stated is None else read_quantity(stated)
