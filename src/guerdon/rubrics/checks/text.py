"""Texts: their pattern, their length, their repetition, or one exact text.

`ExactMatch` looks for an answer and leaves reasoning out. The others see the whole text, since they
judge its format.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

from guerdon._patterns import Pattern
from guerdon._thresholds import reaches
from guerdon._validation import check_choice, check_integer, check_number, check_type, shown
from guerdon.errors import InvalidArgumentError, MissingInputError
from guerdon.rubrics.checks.inputs import ExpectedAnswer, ground_truth_of, text_of
from guerdon.rubrics.rubric import Rubric
from guerdon.rubrics.state import Checked
from guerdon.types.reasoning import REASONING_TAGS

__all__ = ["ExactMatch", "LengthBounds", "RegexMatch", "RepetitionBounds"]


class RegexMatch(Rubric):
    r"""The text matches a regular expression.

    The whole text is searched, with its reasoning.

    Args:
        pattern: A regular expression in the syntax of Python's `re`. A match may take 5 seconds of
            CPU time. The package `regex` evaluates it; ``docs/compose.md`` lists the differences.
        field: The attribute or key of the action that contains the text.
        ignore_case: Whether upper and lower case are the same.
        full: Whether the whole text must match, rather than some part of it.

    Returns:
        1.0 if it matches, otherwise 0.0.

    Raises:
        InvalidArgumentError: `pattern` is not a string, or not a valid regular expression.
        MissingInputError: At evaluation, the action has no text.
        PatternTimeoutError: At evaluation, the match takes too long.

    Example:
        >>> RegexMatch(r"<answer>.+</answer>")("<answer>42</answer>", None)
        1.0
    """

    score_range = (0.0, 1.0)
    state_names: ClassVar[tuple[str, ...]] = ("pattern", "ignore_case")

    def __init__(
        self,
        pattern: str,
        *,
        field: str = "content",
        ignore_case: bool = False,
        full: bool = False,
    ) -> None:
        super().__init__()
        self._ignore_case = ignore_case
        self.pattern = pattern
        self.field = field
        self.full = full

    @property
    def pattern(self) -> str:
        """The regular expression."""
        return self._pattern

    @pattern.setter
    def pattern(self, value: str) -> None:
        check_type("pattern", value, str)
        self._regex = Pattern("pattern", value, ignore_case=self._ignore_case)
        self._pattern = value

    @property
    def ignore_case(self) -> bool:
        """Whether upper and lower case are the same."""
        return self._ignore_case

    @ignore_case.setter
    def ignore_case(self, value: bool) -> None:
        self._regex = Pattern("pattern", self._pattern, ignore_case=value)
        self._ignore_case = value

    def forward(self, action: Any, observation: Any) -> float:
        """Search the text of the action."""
        if self._regex.found_in(text_of(action, self.field), full=self.full):
            return 1.0
        self.explain("no match for %.80r", self._pattern)
        return 0.0


class ExactMatch(ExpectedAnswer):
    r"""The text is exactly the expected one.

    Reasoning is left out before. Apart from that, only what the arguments name is normalised.

    Args:
        expected: The right text; None uses the observation's ground truth, a string or an integer
            (of numpy, too).
        field: The attribute or key of the action that contains the text.
        strip: Whether white space at both ends of both texts is ignored.
        ignore_case: Whether upper and lower case are the same.
        reasoning_tags: The tags around reasoning, as for `split_reasoning`. White space next to
            reasoning is left out with it.

    Returns:
        1.0 if both are the same, otherwise 0.0.

    Raises:
        InvalidArgumentError: `expected` is neither a string nor None.
        MissingInputError: At evaluation, the action has no text, or the observation has no ground
            truth that is a string or an integer.

    Example:
        >>> ExactMatch("Paris")(" Paris\n", None)
        1.0
    """

    score_range = (0.0, 1.0)

    def __init__(
        self,
        expected: str | None = None,
        *,
        field: str = "content",
        strip: bool = True,
        ignore_case: bool = False,
        reasoning_tags: Sequence[str] = REASONING_TAGS,
    ) -> None:
        super().__init__(reasoning_tags)
        self.expected = expected
        self.field = field
        self.strip = strip
        self.ignore_case = ignore_case

    def checked(self, value: Any) -> str | None:
        """Return the right text."""
        if value is not None and not isinstance(value, str):
            raise InvalidArgumentError(
                f"`expected` must be a string, or None for the ground truth, got {shown(value)}"
            )
        return value

    def forward(self, action: Any, observation: Any) -> float:
        """Compare the text of the action with the right one."""
        stated = self.answer_of(action)
        wanted = self._expected
        if wanted is None:
            truth = ground_truth_of(observation)
            if isinstance(truth, bool) or not isinstance(truth, str | int):
                raise MissingInputError(
                    "ExactMatch requires a ground truth that is a string or an integer, got "
                    f"{type(truth).__name__}; NumericAnswer compares other numbers"
                )
            wanted = str(truth)
        if self.strip:
            stated, wanted = stated.strip(), wanted.strip()
        if self.ignore_case:
            stated, wanted = stated.casefold(), wanted.casefold()
        if stated == wanted:
            return 1.0
        self.explain("found %.80r, wanted %.80r", stated, wanted)
        return 0.0


_LENGTHS: dict[str, Callable[[str], int]] = {
    "characters": len,
    "words": lambda text: len(text.split()),
    "lines": lambda text: len(text.splitlines()),
}


class LengthBounds(Rubric):
    """The text is neither too short nor too long.

    The whole text is counted, with its reasoning.

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

    The whole text is counted, with its reasoning.

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
        if reaches(self.maximum, share):
            return 1.0
        self.explain(
            "%.3f of the %d-grams are repeats, wanted at most %s", share, size, self.maximum
        )
        return 0.0
