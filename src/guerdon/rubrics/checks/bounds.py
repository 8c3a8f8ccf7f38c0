"""The length of a text, and how often it repeats itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal

from guerdon._validation import check_choice, check_integer, check_number
from guerdon.errors import InvalidArgumentError
from guerdon.rubrics.checks.inputs import text_of
from guerdon.rubrics.rubric import Rubric
from guerdon.rubrics.state import Checked

__all__ = ["LengthBounds", "RepetitionBounds"]

_LENGTHS: dict[str, Callable[[str], int]] = {
    "characters": len,
    "words": lambda text: len(text.split()),
    "lines": lambda text: len(text.splitlines()),
}


class LengthBounds(Rubric):
    """The text is neither too short nor too long.

    Args:
        minimum: The lowest accepted length, at least 0.
        maximum: The highest accepted length, at least `minimum`; None for no limit.
        unit: `characters`, `words` (split at white space) or `lines`.
        field: The attribute or key of the action that contains the text.

    Returns:
        1.0 for a length from `minimum` to `maximum`, both included, otherwise 0.0.

    Raises:
        InvalidArgumentError: A bound is not an integer or negative, `maximum` is less than
            `minimum`, or `unit` is unknown.
        MissingInputError: At evaluation, the action has no text.

    Example:
        >>> LengthBounds(1, 5, unit="words")("a short answer", None)
        1.0
    """

    score_range = (0.0, 1.0)
    state_names: ClassVar[tuple[str, ...]] = ("minimum", "maximum", "unit")
    minimum = Checked(check_integer, low=0)
    maximum: Checked[int | None] = Checked(check_integer, optional=True, low=0)
    unit = Checked(check_choice, choices=_LENGTHS)

    def __init__(
        self,
        minimum: int = 0,
        maximum: int | None = None,
        *,
        unit: Literal["characters", "words", "lines"] = "characters",
        field: str = "content",
    ) -> None:
        super().__init__()
        self.minimum = minimum
        self.maximum = maximum
        self.unit = unit
        self.field = field
        self._check_order()

    def forward(self, action: Any, observation: Any) -> float:
        """Count the text of the action."""
        length = _LENGTHS[self.unit](text_of(action, self.field))
        maximum = self.maximum
        if length >= self.minimum and (maximum is None or length <= maximum):
            return 1.0
        self._check_order()
        self.explain("%d %s, wanted %s to %s", length, self.unit, self.minimum, maximum)
        return 0.0

    def _check_order(self) -> None:
        """Check the bounds together; not when one is set, as the other may be set next."""
        if self.maximum is not None and self.maximum < self.minimum:
            raise InvalidArgumentError(
                f"`maximum` must be >= `minimum` ({self.minimum}) or None, got {self.maximum}"
            )


class RepetitionBounds(Rubric):
    r"""The text does not repeat itself too much.

    The share of repeats is

    .. math:: 1 - \frac{\text{distinct word n-grams}}{\text{word n-grams}}

    where words are split at white space and case is ignored. A text of fewer than `ngram`
    words has a share of 0. A run without white space is one word, however long.

    Args:
        maximum: The highest accepted share of repeats, in [0, 1].
        ngram: The number of consecutive words of an n-gram, at least 1.
        field: The attribute or key of the action that contains the text.

    Returns:
        1.0 for a share of at most `maximum`, otherwise 0.0.

    Raises:
        InvalidArgumentError: `maximum` or `ngram` is out of range.
        MissingInputError: At evaluation, the action has no text.

    Example:
        >>> RepetitionBounds(0.2, ngram=2)("so it is so it is so it is", None)
        0.0
    """

    score_range = (0.0, 1.0)
    state_names: ClassVar[tuple[str, ...]] = ("maximum", "ngram")
    maximum = Checked(check_number, low=0, high=1)
    ngram = Checked(check_integer, low=1)

    def __init__(self, maximum: float = 0.2, *, ngram: int = 4, field: str = "content") -> None:
        super().__init__()
        self.maximum = maximum
        self.ngram = ngram
        self.field = field

    def forward(self, action: Any, observation: Any) -> float:
        """Count the distinct n-grams of the text."""
        words = text_of(action, self.field).lower().split()
        size = self.ngram
        total = len(words) - size + 1
        if total < 2:
            return 1.0
        distinct = len(set(zip(*(words[shift:] for shift in range(size)), strict=False)))
        share = 1.0 - distinct / total
        if share <= self.maximum:
            return 1.0
        self.explain(
            "%.3f of the %d-grams are repeats, wanted at most %s", share, size, self.maximum
        )
        return 0.0
