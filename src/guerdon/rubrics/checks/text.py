"""Texts that match a pattern, or are one exact text."""

from __future__ import annotations

from typing import Any, ClassVar

from guerdon._validation import shown
from guerdon.errors import InvalidArgumentError, MissingInputError
from guerdon.rubrics.checks.inputs import compiled_regex, ground_truth_of, text_of
from guerdon.rubrics.rubric import Rubric

__all__ = ["ExactMatch", "RegexMatch"]


class RegexMatch(Rubric):
    r"""The text matches a regular expression.

    Args:
        pattern: A regular expression of Python's `re`. It runs without a time limit, so one that
            backtracks without end on some text does so here too.
        field: The attribute or key of the action that contains the text.
        ignore_case: Whether upper and lower case are the same.
        full: Whether the whole text must match, rather than some part of it.

    Returns:
        1.0 if it matches, otherwise 0.0.

    Raises:
        InvalidArgumentError: `pattern` is not a valid regular expression.
        MissingInputError: At evaluation, the action has no text.

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
        self._regex = compiled_regex(value, ignore_case=self._ignore_case)
        self._pattern = value

    @property
    def ignore_case(self) -> bool:
        """Whether upper and lower case are the same."""
        return self._ignore_case

    @ignore_case.setter
    def ignore_case(self, value: bool) -> None:
        self._regex = compiled_regex(self._pattern, ignore_case=value)
        self._ignore_case = value

    def forward(self, action: Any, observation: Any) -> float:
        """Search the text of the action."""
        text = text_of(action, self.field)
        found = self._regex.fullmatch(text) if self.full else self._regex.search(text)
        if found is not None:
            return 1.0
        self.explain("no match for %.80r", self._pattern)
        return 0.0


class ExactMatch(Rubric):
    r"""The text is exactly the expected one.

    Args:
        expected: The right text; None uses the observation's ground truth, a string or an integer.
        field: The attribute or key of the action that contains the text.
        strip: Whether white space at both ends of both texts is ignored.
        ignore_case: Whether upper and lower case are the same.

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
    reads: tuple[str, ...] = ("ground_truth",)
    state_names: ClassVar[tuple[str, ...]] = ("expected",)

    def __init__(
        self,
        expected: str | None = None,
        *,
        field: str = "content",
        strip: bool = True,
        ignore_case: bool = False,
    ) -> None:
        super().__init__()
        self.expected = expected
        self.field = field
        self.strip = strip
        self.ignore_case = ignore_case

    @property
    def expected(self) -> str | None:
        """The right text; None for the ground truth."""
        return self._expected

    @expected.setter
    def expected(self, value: str | None) -> None:
        if value is not None and not isinstance(value, str):
            raise InvalidArgumentError(
                f"`expected` must be a string, or None for the ground truth, got {shown(value)}"
            )
        self._expected = value
        self.reads = () if value is not None else type(self).reads

    def forward(self, action: Any, observation: Any) -> float:
        """Compare the text of the action with the right one."""
        found = text_of(action, self.field)
        wanted = self._expected
        if wanted is None:
            wanted = _text_of_truth(ground_truth_of(observation))
        if self.strip:
            found, wanted = found.strip(), wanted.strip()
        if self.ignore_case:
            found, wanted = found.casefold(), wanted.casefold()
        if found == wanted:
            return 1.0
        self.explain("found %.80r, wanted %.80r", found, wanted)
        return 0.0


def _text_of_truth(truth: object) -> str:
    if isinstance(truth, str):
        return truth
    if isinstance(truth, int) and not isinstance(truth, bool):
        return str(truth)
    raise MissingInputError(
        f"ExactMatch requires a ground truth that is a string or an integer, got "
        f"{type(truth).__name__}; NumericAnswer compares other numbers"
    )
