"""`JudgeVerdict`: what a judge says, and the strict reading of how it says it."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NoReturn

from guerdon.errors import JudgeError
from guerdon.rubrics.judge.template import as_text
from guerdon.rubrics.judge.verdict_json import JsonObject, found_objects
from guerdon.rubrics.judge.verdict_text import (
    SaidScore,
    Scale,
    as_score,
    lone_score,
    marked_scores,
)

__all__ = ["JudgeVerdict", "parse_verdict"]

# Stands in the keys of caches: what was read otherwise is read again.
PARSER_VERSION = 3
# What is looked at of an answer, in characters, and how many objects in it.
MAX_CHARS = 200_000
MAX_OBJECTS = 1000
MAX_SCORES = 100
SCORE_KEYS = ("score", "rating", "grade")
REASON_KEYS = ("reasoning", "reason", "explanation", "justification", "rationale")
THOUGHT = re.compile(r"\s*<(think|thinking|reasoning)>(.*?)</\1>", re.DOTALL | re.IGNORECASE)
DECIMAL = re.compile(r"(?<!\d)\d+\.\d+")
OPEN_THOUGHT = re.compile(r"\s*<(think|thinking|reasoning)>", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class JudgeVerdict:
    """A judge's verdict.

    Example:
        >>> from guerdon.rubrics import JudgeVerdict
        >>> JudgeVerdict(0.5, "Half of it is right.").to_dict()
        {'score': 0.5, 'reasoning': 'Half of it is right.'}

    Attributes:
        score: A finite float in the range that was asked for; None where only criteria were.
        reasoning: Why, in the judge's words; may be empty.
        criteria: The score of each criterion that was asked for.
    """

    score: float | None
    reasoning: str = ""
    criteria: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it: ``{"score", "reasoning"}``, with ``criteria`` where there are any."""
        told: dict[str, Any] = {} if self.score is None else {"score": self.score}
        told["reasoning"] = self.reasoning
        return told | ({"criteria": dict(self.criteria)} if self.criteria else {})


def verdict_schema(
    criteria: Sequence[str] = (), *, score_range: Scale = (0.0, 1.0), marked: bool = False
) -> dict[str, Any]:
    """The JSON Schema of a verdict, for endpoints that hold a model to one.

    Example:
        >>> verdict_schema()["required"]
        ['reasoning', 'score']

    Args:
        criteria: What is scored one by one; then no score is asked for the whole.
        score_range: The lowest and highest score.
        marked: Whether the mark that the prompt tells is asked back, as ``mark``.
    """
    low, high = score_range
    score = {"type": "number", "minimum": low, "maximum": high}
    # The reasons first: a model that says its score first can only defend it.
    fields: dict[str, Any] = {"mark": {"type": "string"}} if marked else {}
    fields["reasoning"] = {"type": "string"}
    if criteria:
        fields["criteria"] = _object(dict.fromkeys(criteria, score))
    else:
        fields["score"] = score
    return _object(fields)


def _object(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(fields),
        "required": list(fields),
        "additionalProperties": False,
    }


def read_verdict(
    said: Mapping[str, Any],
    *,
    score_range: Scale = (0.0, 1.0),
    criteria: Sequence[str] = (),
    service: str = "",
) -> JudgeVerdict:
    """Read a verdict out of an object.

    Example:
        >>> read_verdict({"score": "8/10", "reasoning": "Good."})
        JudgeVerdict(score=0.8, reasoning='Good.', criteria={})

    Args:
        said: The object, with ``score`` (or ``criteria``, or each criterion itself).
        score_range: The lowest and highest score.
        criteria: What was to be scored one by one.
        service: Who said it, for messages.

    Raises:
        JudgeError: Something is missing, no number, or out of range.
    """
    return _Reading(score_range, tuple(criteria), service, str(dict(said))).of_object(said)


def parse_verdict(
    text: str,
    *,
    score_range: Scale = (0.0, 1.0),
    criteria: Sequence[str] = (),
    service: str = "",
    mark: str | None = None,
    quotes: Sequence[str] = (),
) -> JudgeVerdict:
    r"""Read a verdict out of what a judge wrote, strictly: in doubt there is none.

    A JSON object counts, where it is the answer or stands on lines of its own; otherwise scores
    that say that they are one, such as ``Score: 0.2``, at the beginning of a line or a sentence;
    otherwise an answer that is a number and nothing else. ``8/10`` and ``80%`` mean that part of a
    range that begins at 0; anything out of range is refused, as are two that differ.

    Example:
        >>> parse_verdict("1. Bad code. Score: 0.2").score
        0.2
        >>> parse_verdict("Rating: **8/10**").score
        0.8
        >>> parse_verdict("Score: -0.5")
        Traceback (most recent call last):
            ...
        guerdon.errors.JudgeError: the verdict's score is -0.5; it takes a number from 0 to 1

    Args:
        text: What the judge wrote.
        score_range: The lowest and highest score.
        criteria: What was to be scored one by one.
        service: Who wrote it, for messages.
        mark: Where given, an object with this ``mark`` counts, whatever else is there.
        quotes: What was judged: scores and unmarked objects that stand in it, but for upper case,
            white space and zeros that mean nothing, are the judge's quotations. So is, where a
            mark is given, an answer that is only the number that one of these is.

    Raises:
        JudgeError: There is no verdict, more than one, or one that is out of range.
    """
    reading = _Reading(score_range, tuple(criteria), service, text)
    if len(text) > MAX_CHARS:
        reading.fail(f"the answer has {len(text)} characters; a verdict has at most {MAX_CHARS}")
    return reading.of_text(_without_thought(reading, text), mark, _Quotes(quotes, mark))


def _without_thought(reading: _Reading, text: str) -> str:
    text = text.removeprefix("\ufeff")
    thought = THOUGHT.match(text)
    rest = text[thought.end() :] if thought else text
    if OPEN_THOUGHT.match(rest):
        reading.fail("the answer ends while the model still thinks; give it more tokens")
    return _unfenced(rest.strip())


def _unfenced(text: str) -> str:
    """What a fence holds, where the answer is one."""
    first, _, rest = text.partition("\n")
    body = rest.removesuffix("```")
    if not first.startswith("```") or body == rest or "```" in first[3:] + body:
        return text
    return body.strip()


@dataclass(frozen=True, slots=True)
class _Reading:
    """One answer that is read."""

    scale: Scale
    criteria: tuple[str, ...]
    service: str
    answer: str

    def fail(self, why: str) -> NoReturn:
        raise JudgeError(why, service=self.service, answer=self.answer[:2000])

    def of_text(self, text: str, mark: str | None, quotes: _Quotes) -> JudgeVerdict:
        if not text:
            self.fail("the answer is empty; it takes a verdict, such as Score: 0.5")
        found = list(islice(found_objects(text), MAX_OBJECTS + 1))
        if len(found) > MAX_OBJECTS:
            self.fail(f"the answer holds more than {MAX_OBJECTS} objects")
        marked = [one for one in found if mark is not None and one.value.get("mark") == mark]
        if marked:
            return self._one([self.of_object(one.value) for one in marked])
        if found and found[0].is_all:
            if mark is not None and quotes.hold(found[0].text):
                self.fail("the answer repeats an object that stands in what is judged")
            return self.of_object(found[0].value)
        claims = [one for one in found if self._is_verdict(one.value)]
        verdicts = [self.of_object(each.value) for each in claims
                    if not quotes.hold(each.text)]  # fmt: skip
        spared = text
        for one in found:
            spared = spared.replace(one.text, "\n") if one.value else spared
        if verdicts and not all(one.is_alone for one in claims):
            self.fail("an object stands within other words, so that it may be a quotation")
        said = self._of_words(spared, quotes, needed=not verdicts)
        return self._one([*verdicts, *said])

    def _is_verdict(self, value: Mapping[str, Any]) -> bool:
        keys = {str(key).lower() for key in value}
        return bool(keys & {*SCORE_KEYS, "criteria"} or keys >= set(self.criteria) > set())

    def _one(self, verdicts: Sequence[JudgeVerdict]) -> JudgeVerdict:
        first = verdicts[0]
        for other in verdicts[1:]:
            if (other.score, dict(other.criteria)) != (first.score, dict(first.criteria)):
                said = " and ".join(f"{_said(each)}" for each in (first, other))
                self.fail(f"the answer holds verdicts that differ: {said}")
        return first

    def of_object(self, said: Mapping[str, Any]) -> JudgeVerdict:
        keys = {str(key).lower(): value for key, value in said.items()}
        if isinstance(said, JsonObject) and said.twice:
            self.fail(f"the object holds {said.twice} twice")
        reasons = (keys[key] for key in REASON_KEYS if isinstance(keys.get(key), str))
        reasoning = as_text(next(reasons, ""))  # with no half of a surrogate pair
        if self.criteria:
            inner = keys.get("criteria", said)
            return JudgeVerdict(None, reasoning, self._criteria(inner))
        given = [keys[key] for key in SCORE_KEYS if key in keys]
        if not given:
            self.fail(f"the object has no score, but {sorted(map(str, said))[:10]}")
        scores = {self._score(value, "score") for value in given}
        if len(scores) > 1:
            self.fail(f"the object holds scores that differ: {sorted(scores)}")
        return JudgeVerdict(scores.pop(), reasoning)

    def _criteria(self, said: Any) -> dict[str, float]:
        if not isinstance(said, Mapping):
            self.fail(f"criteria is {said!r:.80}; it takes an object with {list(self.criteria)}")
        missing = [name for name in self.criteria if name not in said]
        if missing:
            self.fail(f"the verdict lacks the criteria {missing}; it has {list(said)[:20]}")
        return {name: self._criterion(name, said[name]) for name in self.criteria}

    def _criterion(self, name: str, value: Any) -> float:
        if isinstance(value, Mapping):
            return self._score(value.get("score"), name)
        return self._score(value, name)

    def _score(self, value: Any, name: str) -> float:
        low, high = self.scale
        number: float | None
        if isinstance(value, str):
            said = lone_score(value)
            number = None if said is None else as_score(said, self.scale)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            number = _float(value)
        else:
            number = None
        if number is None or not low <= number <= high:
            shown = f"{number:g}" if number is not None and math.isfinite(number) else repr(value)
            self.fail(
                f"the verdict's {name} is {shown:.80}; it takes a number from {low:g} to {high:g}"
            )
        return number + 0.0  # no -0.0

    def _of_words(self, text: str, quotes: _Quotes, *, needed: bool) -> list[JudgeVerdict]:
        """The verdict in words, if there is one; none is a failure where it is needed."""
        if self.criteria:
            if not needed:
                return []
            scores = {name: self._marked(text, (name,), quotes) for name in self.criteria}
            missing = [name for name, score in scores.items() if score is None]
            if missing:
                self.fail(f"the answer scores no {missing}; it takes {missing[0]}: and a number")
            return [JudgeVerdict(None, text, {name: score for name, score in scores.items()
                                         if score is not None})]  # fmt: skip
        score = self._marked(text, None, quotes)
        if score is None and needed:
            alone = lone_score(text)
            if alone is None:
                self.fail("the answer holds no verdict; it takes one, such as Score: 0.5")
            if quotes.are(alone, self.scale):
                self.fail(
                    f"the answer is {alone.text!r}, the number that is judged, without the mark"
                )
            return [JudgeVerdict(self._value(alone))]
        return [] if score is None else [JudgeVerdict(score, text)]

    def _marked(self, text: str, names: tuple[str, ...] | None, quotes: _Quotes) -> float | None:
        """The one score that is marked as such, or with one of the names."""
        found = list(islice(marked_scores(text, names), MAX_SCORES + 1))
        if len(found) > MAX_SCORES:
            self.fail(f"the answer holds more than {MAX_SCORES} scores")
        said = [one for one in found if not quotes.hold(one.text)]
        scores = {self._value(one) for one in said}
        if len(scores) > 1:
            self.fail(f"the answer holds scores that differ: {sorted(scores)}")
        if said and not any(one.is_statement for one in said):
            self.fail(f"{said[0].text!r:.80} stands within other words and may be a quotation")
        return scores.pop() if scores else None

    def _value(self, said: SaidScore) -> float:
        value = as_score(said, self.scale)
        if value is None:
            low, high = self.scale
            self.fail(f"{said.text!r:.80} can't be told on the scale from {low:g} to {high:g}")
        return self._score(value, "score")


def _said(verdict: JudgeVerdict) -> str:
    return str(dict(verdict.criteria)) if verdict.criteria else f"{verdict.score:g}"


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer of hundreds of digits
        return math.inf


class _Quotes:
    """What was judged, and may be quoted."""

    def __init__(self, texts: Sequence[str], mark: str | None) -> None:
        self._texts, self._mark = texts, mark
        self._plain: list[str] | None = None

    def hold(self, said: str) -> bool:
        """Whether something stands there, be it in other letters, spaces or digits."""
        if self._plain is None:  # which most answers don't need
            self._plain = [_plain(text) for text in self._texts]
        plain = _plain(said)
        whole = re.compile(re.escape(plain) + r"(?!\d|(?<=\d)\.\d)")  # 1 doesn't stand in 12
        if any(whole.search(text) for text in self._plain):
            return True
        close = "".join(plain.split())  # JSON is the same without any
        return said.startswith("{") and any(close in "".join(text.split()) for text in self._plain)

    def are(self, said: SaidScore, scale: Scale) -> bool:
        """Whether one of them is that number and nothing else, where the judge was told a mark."""
        if self._mark is None:
            return False
        numbers = (lone_score(text) for text in self._texts)
        return as_score(said, scale) in [as_score(each, scale) for each in numbers if each]


def _plain(text: str) -> str:
    text = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(DECIMAL.sub(_shortest, text).split())


def _shortest(number: re.Match[str]) -> str:
    """A number without the zeros at its end: 1.00 is 1."""
    return number[0].rstrip("0").rstrip(".")
