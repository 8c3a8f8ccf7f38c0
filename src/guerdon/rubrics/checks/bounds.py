"""How long a text is, and how often it repeats itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal

from guerdon.errors import InvalidArgumentError
from guerdon.rubrics.checks.inputs import number_within, text_of
from guerdon.rubrics.rubric import Rubric

__all__ = ["LengthBounds", "RepetitionBounds"]


def _count_words(text: str) -> int:
    return len(text.split())


def _count_lines(text: str) -> int:
    return len(text.splitlines())


_LENGTHS: dict[str, Callable[[str], int]] = {
    "characters": len,
    "words": _count_words,
    "lines": _count_lines,
}


class LengthBounds(Rubric):
    """The text is neither too short nor too long.

    Args:
        minimum: The least accepted length, at least 0.
        maximum: The greatest accepted length, at least `minimum`; None for no limit.
        unit: What is counted: `characters`, `words` (split at white space) or `lines`.
        field: The attribute or key of the action that holds the text.

    Returns:
        1.0 for a length from `minimum` to `maximum`, both included, otherwise 0.0.

    Raises:
        InvalidArgumentError: If a bound is no integer or negative, `maximum` is under `minimum`, or
            `unit` is unknown.
        MissingInputError: At evaluation, if the action has no text.

    Example:
        >>> LengthBounds(1, 5, unit="words")("a short answer", None)
        1.0
    """

    score_range = (0.0, 1.0)
    state_names: ClassVar[tuple[str, ...]] = ("minimum", "maximum", "unit")

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

    @property
    def minimum(self) -> int:
        """The least accepted length."""
        return self._minimum

    @minimum.setter
    def minimum(self, value: int) -> None:
        self._minimum = _length(value, "minimum")

    @property
    def maximum(self) -> int | None:
        """The greatest accepted length; None for no limit."""
        return self._maximum

    @maximum.setter
    def maximum(self, value: int | None) -> None:
        self._maximum = None if value is None else _length(value, "maximum")

    @property
    def unit(self) -> Literal["characters", "words", "lines"]:
        """What is counted."""
        return self._unit

    @unit.setter
    def unit(self, value: Literal["characters", "words", "lines"]) -> None:
        if value not in _LENGTHS:
            raise InvalidArgumentError(f"unit is {value!r}; accepted are {', '.join(_LENGTHS)}")
        self._unit = value
        self._length_of = _LENGTHS[value]

    def forward(self, action: Any, observation: Any) -> float:
        """Count the text of the action."""
        length = self._length_of(text_of(action, self.field))
        maximum = self._maximum
        if length >= self._minimum and (maximum is None or length <= maximum):
            return 1.0
        self._check_order()
        self.explain("%d %s, wanted %s to %s", length, self._unit, self._minimum, maximum)
        return 0.0

    def _check_order(self) -> None:
        """Not done by the setters: both bounds may be set one after the other."""
        if self._maximum is not None and self._maximum < self._minimum:
            raise InvalidArgumentError(
                f"maximum is {self._maximum}; accepted is an integer of at least "
                f"minimum ({self._minimum}), or None"
            )


def _length(value: object, name: str, *, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidArgumentError(
            f"{name} is {value!r:.80}; accepted is an integer of at least {least}"
        )
    return value


class RepetitionBounds(Rubric):
    r"""The text does not repeat itself too much.

    The share of repeats is

    .. math:: 1 - \frac{\text{distinct word n-grams}}{\text{word n-grams}}

    where words are split at white space and case makes no difference. A text of fewer than `ngram`
    words has a share of 0. A run without white space is one word, however long.

    Args:
        maximum: The greatest accepted share of repeats, 0 to 1.
        ngram: How many words in a row make one n-gram, at least 1.
        field: The attribute or key of the action that holds the text.

    Returns:
        1.0 for a share of at most `maximum`, otherwise 0.0.

    Raises:
        InvalidArgumentError: If `maximum` or `ngram` is out of range.
        MissingInputError: At evaluation, if the action has no text.

    Example:
        >>> RepetitionBounds(0.2, ngram=2)("so it is so it is so it is", None)
        0.0
    """

    score_range = (0.0, 1.0)
    state_names: ClassVar[tuple[str, ...]] = ("maximum", "ngram")

    def __init__(self, maximum: float = 0.2, *, ngram: int = 4, field: str = "content") -> None:
        super().__init__()
        self.maximum = maximum
        self.ngram = ngram
        self.field = field

    @property
    def maximum(self) -> float:
        """The greatest accepted share of repeats."""
        return self._maximum

    @maximum.setter
    def maximum(self, value: float) -> None:
        self._maximum = number_within(value, "maximum", low=0.0, high=1.0)

    @property
    def ngram(self) -> int:
        """How many words in a row make one n-gram."""
        return self._ngram

    @ngram.setter
    def ngram(self, value: int) -> None:
        self._ngram = _length(value, "ngram", least=1)

    def forward(self, action: Any, observation: Any) -> float:
        """Count the distinct n-grams of the text."""
        words = text_of(action, self.field).lower().split()
        size = self._ngram
        total = len(words) - size + 1
        if total < 2:
            return 1.0
        distinct = len(set(zip(*(words[shift:] for shift in range(size)), strict=False)))
        share = 1.0 - distinct / total
        if share <= self._maximum:
            return 1.0
        self.explain(
            "%.3f of the %d-grams are repeats, wanted at most %s", share, size, self._maximum
        )
        return 0.0
