"""Answers that are the right option of a multiple-choice question."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from typing import Any, cast

from guerdon._validation import shown
from guerdon.errors import GuerdonError, InvalidArgumentError, MissingInputError
from guerdon.rubrics.checks.answers import answer_part, extract_answer
from guerdon.rubrics.checks.inputs import ExpectedAnswer, field_of, ground_truth_of, text_of
from guerdon.rubrics.checks.quantity import plain_signs
from guerdon.rubrics.state import Checked
from guerdon.types.reasoning import REASONING_TAGS

__all__ = ["ChoiceAnswer"]

_MARKED = re.compile(
    r"(?:(?:option|choice|letter)\s+)?[({\[]?\s*(?P<label>[A-Z]|[0-9]{1,2})(?P<close>(?:\s*[)}\]])?)\s*"
    r"(?P<mark>[.:,;)/&+—–-]|(?<=\s)(?:and|or|because|since|as|is (?:correct|right|the best))\b|)"
    r"(?P<rest>(?<!\w).*|\s.*|)",
    re.IGNORECASE,
)
_SECOND = re.compile(
    r"(?i:\s*[.,;]?\s*(?:(?:(?:and|or|no|wait|actually|sorry|maybe|perhaps|possibly|else)\b,?\s?)+"
    r"|[/&+(])?)\s*\(?(?:[A-H]|[a-h](?!\.))\)?\s*(?:$|[,;./&)]|and\s|or\s)"
)
_OTHER = re.compile(r"(?i)\W*(?:and|or|no|wait|actually|sorry)\b")
_REASON = re.compile(r"\s*(?:,|\(|\bbecause\b|\bsince\b|[.;:]\s|\s[-–—]\s)")
_WRONG = re.compile(  # of this option, not of another one
    r"(?i)\W*(?:(?!because|since|all\b|others?\b|(?-i:[A-Z]\b))[\w-]+ ){0,9}"
    r"(?:incorrect|wrong|not (?:correct|right))\b"
)
_LETTER = re.compile(r"\(?[A-Z]\)?")
_FIRST_LETTER = re.compile(r"\W?[A-Z]\b")
_LETTER_BEHIND = re.compile(r"(?P<text>.+\S)\s*[(\[](?:option )?(?P<label>[A-Z])[)\]]")
_LABEL = re.compile("[A-Z]|[0-9]{1,2}")
_EDGES = " \t\r\n*_`$\"'“”‘’"


def check_choices(
    name: str, value: Any, *, error: type[GuerdonError] = InvalidArgumentError
) -> dict[str, str]:
    """Return the texts of options by their letters.

    Example:
        >>> check_choices("choices", ["(A) Rome", "(B) Paris"])
        {'A': 'Rome', 'B': 'Paris'}

    Args:
        name: The argument's name, for the message.
        value: The argument.
        error: The exception to raise.

    Raises:
        InvalidArgumentError: They can't be read, or a text is the letter of another option.
    """
    options = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(options, Mapping) and {*options} == {"label", "text"}:
        labels, options = options["label"], options["text"]
    elif isinstance(options, Mapping):
        labels, options = [*options], [*options.values()]
    else:
        labels = string.ascii_uppercase[: len(options)] if isinstance(options, list | tuple) else ""
    labels = [str(label).strip(" ().:").upper() for label in labels]
    if 2 <= len({*labels}) == len(options) <= 26 and all(map(_LABEL.fullmatch, labels)):
        marks = [rf"\s*\(?{label}[).:]\s*" for label in labels]
        texts = [
            re.sub(rf"\A{mark}", "", str(text)) for mark, text in zip(marks, options, strict=True)
        ]
        plain = dict(zip(labels, (_plain(text).upper() for text in texts), strict=True))
        if all(text and plain.get(text, text) == text for text in plain.values()):
            return dict(zip(labels, texts, strict=True))
    raise error(
        f"`{name}` must be 2 to 26 options, none of them the letter of another one: a list of "
        "texts, a mapping from letters to texts, or {'label': […], 'text': […]}, got "
        f"{shown(value)}"
    )


class ChoiceAnswer(ExpectedAnswer):
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
    choices = Checked(check_choices, optional=True)

    def __init__(
        self,
        expected: str | int | None = None,
        *,
        choices: Sequence[str] | Mapping[str, Any] | None = None,
        field: str = "content",
        reasoning_tags: Sequence[str] = REASONING_TAGS,
    ) -> None:
        super().__init__(reasoning_tags)
        self.choices = choices
        self.expected = expected
        self.field = field

    def checked(self, value: Any) -> str | int | None:
        """Return the right option as it was set."""
        if value is not None and self.choices and _wanted(value, self.choices) is None:
            raise InvalidArgumentError(f"`expected` must be an option, got {shown(value)}")
        return cast(str | int | None, value)

    def forward(self, action: Any, observation: Any) -> float:
        """Compare the option that the action states with the right one."""
        text = text_of(action, self.field)
        options = self.choices or _observed(observation)
        truth = ground_truth_of(observation) if self._expected is None else self._expected
        wanted = _wanted(truth, options)
        if wanted is None:
            raise MissingInputError(
                f"the right option must be one of {', '.join(options) or 'A to Z'} or its text, "
                f"got {shown(truth)}"
            )
        stated = _stated(text, options, self.reasoning_tags)
        if stated == wanted:
            return 1.0
        self.explain("found %s, wanted %s", stated or "no single option", wanted)
        return 0.0


def _observed(observation: Any) -> dict[str, str]:
    """The options of an observation; none if it doesn't say."""
    for holder in (field_of(observation, "metadata"), observation):
        for name in ("choices", "options"):
            value = field_of(holder, name)
            if value is not None:
                return check_choices(f"observation.{name}", value, error=MissingInputError)
    return {}


def _wanted(truth: Any, options: Mapping[str, str]) -> str | None:
    if isinstance(truth, int) and not isinstance(truth, bool):
        return [*options][truth] if 0 <= truth < len(options) else None
    return _read(truth, options) or None if isinstance(truth, str) else None


def _stated(text: str, options: Mapping[str, str], tags: Sequence[str]) -> str | None:
    """The option that a text states, "" if it contradicts itself."""
    part = answer_part(text, tags).strip()
    answer = extract_answer(text, reasoning_tags=tags)
    # "A: Paris" is an option; "A) is too small. The answer is B." states one behind its letter.
    is_option = _FIRST_LETTER.match(part) and extract_answer(part[3:], reasoning_tags=()) is None
    label = _read(part, options) if "\n" not in part and (answer is None or is_option) else None
    if label is not None:
        return label
    if answer is not None:
        return _read(answer, options)
    labels = {_read(line, options, in_prose=True) for line in part.splitlines()} - {None, ""}
    return labels.pop() if len(labels) == 1 else None


def _read(text: str, options: Mapping[str, str], *, in_prose: bool = False) -> str | None:
    """The letter of the option that a text is; None if it is none, "" if it contradicts itself."""
    text = _plain(text)
    behind = None if in_prose else _LETTER_BEHIND.fullmatch(text)
    if behind is not None and not _FIRST_LETTER.match(text):
        return behind["label"] if _named(behind["text"], options) in (None, behind["label"]) else ""
    label = _named(text, options)
    marked = None if label else _MARKED.fullmatch(text)
    if marked is None:
        return label
    label, rest = marked["label"].upper(), _plain(marked["rest"])
    is_in_parentheses = rest[:1] + rest[-1:] == "()"
    rest = rest[1:-1] if is_in_parentheses else rest
    is_prose = in_prose and (label != marked["label"] or marked["mark"] in ("and", "or"))
    if is_prose or (options and label not in options):
        return None
    other = _named(rest, options)
    if other is not None:
        return label if other == label else ""
    if label == "A" and marked["mark"] == ":" and _LETTER.fullmatch(rest):
        return rest.strip("()")  # "A: B" answers with B
    separator = marked["mark"] or marked["close"].strip()
    is_text = separator in (".", ":", ")") and not _OTHER.match(rest)
    is_wrong = marked["mark"][:1] in ".:,;)–—-" and _WRONG.match(rest)
    if is_wrong or (not is_text and _SECOND.match(f"{marked['mark']} {rest}")):
        return ""
    is_word = rest and not (marked["mark"] or marked["close"] or is_in_parentheses)
    return None if is_word else label


def _named(text: str, options: Mapping[str, str]) -> str | None:
    """The letter of the only option with a text."""
    text = text.casefold()
    plain = {label: _plain(option).casefold() for label, option in options.items()}
    labels = [label for label, option in plain.items() if option == text]
    if not labels and (reason := _REASON.search(text)):  # "Paris, because it is the capital"
        name, rest = text[: reason.start()], text[reason.start() :]
        others = [option for option in plain.values() if option != name and option in rest]
        labels = [label for label, option in plain.items() if option == name and not others]
    return labels[0] if len(labels) == 1 else None


def _plain(text: str) -> str:
    text = plain_signs(text[:4000]).replace("**", "")
    return " ".join(text.lstrip(_EDGES).rstrip(_EDGES + ".,;:!?").split())
