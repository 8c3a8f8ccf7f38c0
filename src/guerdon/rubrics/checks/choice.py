"""Answers that are the right option of a multiple-choice question."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from guerdon._validation import shown
from guerdon.errors import InvalidArgumentError, MissingInputError
from guerdon.rubrics.checks.answers import answer_part, extract_answer
from guerdon.rubrics.checks.inputs import AnswerCheck, field_of, ground_truth_of, text_of
from guerdon.rubrics.checks.quantity import plain_signs
from guerdon.types.reasoning import REASONING_TAGS

__all__ = ["ChoiceAnswer"]

_ACCEPTED = (
    "a list of texts, a mapping from letters to texts, or {'label': […], 'text': […]}, "
    "with 2 to 26 options"
)
_MARKED = re.compile(
    r"(?:(?:option|choice|letter)\s+)?(?P<open>[(\[]?)(?P<label>[A-Za-z]|[0-9]{1,2})(?P<close>[)\]]?)"
    r"(?P<mark>\s*[.:,;)/&+—–-]|\s+(?:and|or|because|since|as|is\s(?:the\s)?(?:correct|right|best))\b|\s|$)"
    r"(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_SECOND = re.compile(r"\s*(?:and\s|or\s|[,/&]|\()?\s*\(?([A-Za-z])\)?\s*(?:$|[,;./&)]|and\s|or\s)")
_LETTER_BEHIND = re.compile(r"(?P<text>.+\S)\s*[(\[](?P<label>[A-Z])[)\]]", re.DOTALL)
_EDGES = " \t\r\n*_`$\"'“”‘’"


class ChoiceAnswer(AnswerCheck):
    r"""The answer is the right option.

    The answer is the one that `extract_answer` reads (`\boxed{B}`, `Answer: (b)`, `The answer is
    B`), or the only line that is an option (`B`, `**B) Paris**`). It is an option's letter, its
    text, or both if they belong together. Two letters are no answer.

    Args:
        expected: The right option: its letter, its text, or its index from 0; None uses the
            observation's ground truth.
        choices: The options: texts, which get the letters from A, a mapping from letters to texts,
            or ``{"label": […], "text": […]}``. None uses `choices` or `options` of the
            observation's metadata or of the observation; without them, only letters are read.
        field: The attribute or key of the action that contains the text.
        reasoning_tags: The tags around reasoning, which is left out, as for `split_reasoning`.

    Returns:
        1.0 for the right option; 0.0 for another, for what is none, and if no answer is stated.

    Raises:
        InvalidArgumentError: `choices` can't be read, or `expected` isn't one of them.
        MissingInputError: At evaluation, the action has no text, the observation has no ground
            truth, its options can't be read, or the right one isn't among them.

    Example:
        >>> ChoiceAnswer("Paris", choices=["Rome", "Paris"])("The answer is (B).", None)
        1.0
    """

    score_range = (0.0, 1.0)
    reads: tuple[str, ...] = ("ground_truth",)
    state_names: ClassVar[tuple[str, ...]] = ("expected", "choices")

    def __init__(
        self,
        expected: str | int | None = None,
        *,
        choices: Sequence[str] | Mapping[str, Any] | None = None,
        field: str = "content",
        reasoning_tags: Sequence[str] = REASONING_TAGS,
    ) -> None:
        super().__init__(reasoning_tags)
        self._expected: str | int | None = None
        self.choices = choices
        self.expected = expected
        self.field = field

    @property
    def choices(self) -> dict[str, str] | None:
        """The texts of the options by their letters; None for those of the observation."""
        return self._choices

    @choices.setter
    def choices(self, value: Sequence[str] | Mapping[str, Any] | None) -> None:
        options = None if value is None else _options(value)
        if value is not None and options is None:
            raise InvalidArgumentError(f"`choices` must be {_ACCEPTED}, got {shown(value)}")
        self._choices = options

    @property
    def expected(self) -> str | int | None:
        """The right option as it was set; None for the ground truth."""
        return self._expected

    @expected.setter
    def expected(self, value: str | int | None) -> None:
        if value is not None and self._choices and _wanted(value, self._choices) is None:
            raise InvalidArgumentError(f"`expected` must be an option, got {shown(value)}")
        self._expected = value
        self.reads = () if value is not None else type(self).reads

    def forward(self, action: Any, observation: Any) -> float:
        """Compare the option that the action states with the right one."""
        text = text_of(action, self.field)
        options = self._choices or _observed(observation)
        truth = ground_truth_of(observation) if self._expected is None else self._expected
        wanted = _wanted(truth, options)
        if wanted is None:
            raise MissingInputError(
                f"the right option must be one of {', '.join(options) or 'A to Z'} or its text, got "
                f"{shown(truth)}"
            )
        stated = _stated(text, options, self.reasoning_tags)
        if stated == wanted:
            return 1.0
        self.explain(
            *("found %s, wanted %s", stated, wanted) if stated else ("no single option is stated",)
        )
        return 0.0


def _observed(observation: Any) -> dict[str, str]:
    """The options of an observation; none if it doesn't say."""
    for holder in (field_of(observation, "metadata"), observation):
        for name in ("choices", "options"):
            value = field_of(holder, name)
            if value is not None:
                options = _options(value)
                if options is None:
                    raise MissingInputError(
                        f"the observation's {name!r} must be {_ACCEPTED}, got {shown(value)}"
                    )
                return options
    return {}


def _options(value: Any) -> dict[str, str] | None:
    """The texts of options by their letters; None if they can't be read."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, Mapping) and {*value} == {"label", "text"}:
        value = dict(zip(*(map(str, value[name]) for name in ("label", "text")), strict=False))
    if isinstance(value, list | tuple):
        value = dict(zip(string.ascii_uppercase, value, strict=False)) if len(value) <= 26 else {}
    if not isinstance(value, Mapping) or not 2 <= len(value) <= 26:
        return None
    options = {str(label).strip(" ().:").upper(): str(text) for label, text in value.items()}
    if len(options) < len(value) or any(not re.fullmatch("[A-Z]|[0-9]{1,2}", key) for key in options):
        return None
    marked = {label: re.match(rf"\s*\(?{label}\s?[).:]\s*", text) for label, text in options.items()}
    if all(marked.values()):
        options = {label: text[marked[label].end() :] for label, text in options.items()}  # type: ignore[union-attr]
    texts = {label: _plain(text) for label, text in options.items()}
    # A text that is the letter of another option could mean both.
    is_clear = all(texts.get(text.upper(), text) == text for text in texts.values())
    return options if is_clear and all(texts.values()) else None


def _wanted(truth: Any, options: Mapping[str, str]) -> str | None:
    if isinstance(truth, int) and not isinstance(truth, bool):
        return [*options][truth] if 0 <= truth < len(options) else None
    return _read(truth, options) or None if isinstance(truth, str) else None


def _stated(text: str, options: Mapping[str, str], tags: Sequence[str]) -> str | None:
    """The option that a text states, if there is one."""
    rest = answer_part(text, tags).strip()
    if "\n" not in rest:
        label = _read(rest, options)
        if label is not None:
            return label
    answer = extract_answer(text, reasoning_tags=tags)
    if answer is not None:
        return _read(answer, options)
    labels = {_read(line, options, in_prose=True) for line in rest.splitlines()} - {None}
    return labels.pop() if len(labels) == 1 else None


def _read(text: str, options: Mapping[str, str], *, in_prose: bool = False) -> str | None:
    """The letter of the option that a text is; None if it is none, "" if it contradicts itself."""
    text = _plain(text, fold=False)
    named = [label for label, option in options.items() if _plain(option) == text.casefold()]
    if len(named) == 1:
        return named[0]
    bare = text[1:-1] if text[:1] in tuple("([") and text[-1:] in tuple(")]") else text
    marked = _LETTER_BEHIND.fullmatch(text) if options else None
    marked = marked or _MARKED.fullmatch(bare if len(bare) < 3 else text)
    if marked is None:
        return None
    label = marked["label"].upper()
    if (options and label not in options) or (in_prose and marked["label"].islower()):
        return None
    if "rest" not in marked.groupdict():
        other = _read(marked["text"], options)
        return other if other in (label, None) else ""
    return _with_rest(label, marked, options)


def _with_rest(label: str, marked: re.Match[str], options: Mapping[str, str]) -> str | None:
    """The letter, if what follows it doesn't name another option and doesn't make it a word."""
    rest = _plain(marked["rest"], fold=False)
    other = _read(rest, options) if rest and options else None
    if label == "A" and marked["mark"].strip() == ":" and re.fullmatch(r"\(?[A-Z]\)?", rest):
        return rest.strip("()")  # "A: B" answers with B
    if other not in (None, label) or _SECOND.match(marked["mark"].strip() + " " + rest):
        return ""
    is_word = rest and not marked["mark"].strip() and not marked["close"]
    return None if is_word and other is None else label


def _plain(text: str, *, fold: bool = True) -> str:
    text = " ".join(plain_signs(text[:2000]).lstrip(_EDGES).rstrip(_EDGES + ".,;:!?").split())
    return text.casefold() if fold else text
