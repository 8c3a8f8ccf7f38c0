"""`JudgeVerdict`: one answer of a judge, how it is parsed, and how several are aggregated."""

from __future__ import annotations

import json
import re
import statistics
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn, TypeAlias

from guerdon._logging import shortened
from guerdon._validation import shown
from guerdon.errors import JudgeError
from guerdon.rubrics.ensemble import REDUCTIONS
from guerdon.rubrics.judge.template import as_text
from guerdon.rubrics.recording import MAX_DETAIL
from guerdon.types.reasoning import split_reasoning

__all__ = ["JudgeVerdict", "Judgement", "parse_verdict"]

# Part of the keys of caches: increase it when an answer is parsed differently.
PARSER_VERSION = 5
# The most characters, opening braces and scores of an answer.
MAX_CHARS = 200_000
MAX_BRACES = 1000
MAX_SCORES = 100
# The most characters of an answer in the message of an error.
MAX_SHOWN = 300

NUMBER = r"[-+−]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?"
# 0.8, 8/10, 8 out of 10, 80%
VALUE = (
    rf"(?P<number>{NUMBER})"
    r"(?:\s?(?P<percent>%)|[*`\])]{0,9}\s?(?:/|out of|of)\s?(?P<whole>\d+(?:\.\d+)?))?"
)
OPEN, CLOSE = r"[*_`\[({$]{0,9}", r"[*_`\])}$]{0,9}"  # Markdown and brackets around a value
LONE_VALUE = re.compile(rf"{OPEN}\s?{VALUE}\s?{CLOSE}\.?", re.IGNORECASE)
LONE_CHARS = 60
LABELS = ("score", "rating", "grade", "verdict")
LABEL = "|".join(LABELS)
# Score: 0.8, **Score** is 0.8, <score>0.8
LABELLED_VALUE = re.compile(
    rf"(?<!\w)(?:<(?:{LABEL})>|(?:{LABEL})[*_`]{{0,9}}[ \t]?(?:[:=]|is\b)[*_`]{{0,9}})"
    rf"\s{{0,9}}{OPEN}{VALUE}",
    re.IGNORECASE,
)
# What may follow a value: the end of the line, a punctuation mark and a word, or "(poor)".
END = re.compile(
    rf"{CLOSE}(?:\s{{0,9}}</(?:{LABEL})>)?[ \t]{{0,9}}"
    r"(?:$|\([^()\d\n]{1,99}\)|[.,;][*_`]{0,9}(?:$|[ \t]+(?:$|[^\s\d])))",
    re.MULTILINE,
)
# What may precede a label: the beginning of a line or a sentence, a bullet, "My final …".
BEGINNING = re.compile(
    r"(?:.*[.!?;][)*_]*\s+)?[\s*_#•\-]*(?:\d{1,9}[.)][\s*_]*)?"
    r"(?:(?:my|the|your|overall|final|total|so|thus)[\s,*_]+){0,3}",
    re.IGNORECASE,
)
QUOTED = re.compile(r"[\"“”`>]|(?<!\w)'")
# The parts of an object in JSON, or in Python's notation.
PART = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*")|'(?P<quoted>(?:[^'\\]|\\.)*)'"""
    rf"""|(?P<number>{NUMBER})|(?P<word>[Tt]rue|[Ff]alse|None|null)|(?P<mark>[{{}}\[\],:]))""",
    re.DOTALL,
)
WORDS = {"None": "null"}
# How many objects that aren't valid JSON are read in an answer, and the characters of each.
MAX_REPAIRED, MAX_REPAIRED_CHARS = 10, 20_000
DECIMAL = re.compile(r"(?<!\d)\d+\.\d+")

# The lowest and the highest score.
Bounds: TypeAlias = tuple[float, float]


@dataclass(frozen=True, slots=True)
class JudgeVerdict:
    """The verdict in one answer of a judge.

    Example:
        >>> from guerdon.rubrics import JudgeVerdict
        >>> JudgeVerdict(0.5, "Half of it is right.").to_dict()
        {'score': 0.5, 'reasoning': 'Half of it is right.'}

    Attributes:
        score: A finite float in the requested range; None if only criteria were requested.
        reasoning: The judge's reasons; may be empty.
        criteria: The score of each requested criterion.
    """

    score: float | None
    reasoning: str = ""
    criteria: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return ``{"score", "reasoning"}``, with ``criteria`` if there are any."""
        verdict: dict[str, Any] = {} if self.score is None else {"score": self.score}
        verdict["reasoning"] = self.reasoning
        return verdict | ({"criteria": dict(self.criteria)} if self.criteria else {})


@dataclass(frozen=True, slots=True)
class Judgement:
    """The aggregate of the verdicts of all samples of all models.

    Example:
        >>> from guerdon.rubrics import Judgement, JudgeVerdict
        >>> verdicts = JudgeVerdict(0.0, "No."), JudgeVerdict(1.0, "Yes.")
        >>> print(Judgement(0.5, "No.", verdicts=verdicts, disagreement=0.5))
        2 verdicts, standard deviation 0.5: No.

    Attributes:
        score: A finite float in the judge's range.
        reasoning: The reasoning of the verdict nearest to the score.
        criteria: The score of each criterion.
        verdicts: The verdicts, model by model.
        disagreement: The standard deviation of the verdicts' scores, √(Σ(sᵢ − s̄)²/n).
    """

    score: float
    reasoning: str = ""
    criteria: Mapping[str, float] = field(default_factory=dict)
    verdicts: tuple[JudgeVerdict, ...] = ()
    disagreement: float = 0.0

    def __str__(self) -> str:
        """Return the reasoning, with the disagreement if there are several verdicts."""
        if len(self.verdicts) < 2:
            return self.reasoning
        return (
            f"{len(self.verdicts)} verdicts, standard deviation {self.disagreement:.3g}: "
            f"{self.reasoning}"
        )


# Aggregation ---------------------------------------------------------------------------------


def weighted_mean(scores: Sequence[float], weights: Sequence[float]) -> float:
    """Return Σ wᵢ·sᵢ / Σ wᵢ, kept within the scores where rounding would leave them."""
    return min(max(statistics.fmean(scores, weights), min(scores)), max(scores))


def judgement_of(
    verdicts: Sequence[JudgeVerdict], aggregate: str, *, weights: Mapping[str, float] | None = None
) -> Judgement:
    """Aggregate verdicts.

    Example:
        >>> verdicts = [JudgeVerdict(0.0), JudgeVerdict(1.0), JudgeVerdict(1.0)]
        >>> judgement_of(verdicts, "majority").score
        1.0

    Args:
        verdicts: At least one.
        aggregate: A key of `REDUCTIONS`.
        weights: The weights of the criteria, if there are any: each is aggregated on its own, and
            the score is their weighted mean.
    """

    def score_of(verdict: JudgeVerdict) -> float:
        if verdict.score is not None:
            return verdict.score
        assert weights is not None
        return weighted_mean([verdict.criteria[name] for name in weights], [*weights.values()])

    combine = REDUCTIONS[aggregate]
    scores = [score_of(verdict) for verdict in verdicts]
    criteria = {
        name: combine([verdict.criteria[name] for verdict in verdicts]) for name in weights or ()
    }
    score = combine(scores)
    if weights:
        score = weighted_mean([*criteria.values()], [*weights.values()])
    nearest = min(range(len(scores)), key=lambda index: abs(scores[index] - score))
    spread = statistics.pstdev(scores)
    return Judgement(score, verdicts[nearest].reasoning, criteria, tuple(verdicts), spread)


# Parsing -------------------------------------------------------------------------------------


def verdict_schema(
    criteria: Sequence[str] = (), *, score_range: Bounds = (0.0, 1.0), marked: bool = False
) -> dict[str, Any]:
    """Return the JSON Schema of a verdict, for endpoints with structured output.

    Example:
        >>> verdict_schema()["required"]
        ['reasoning', 'score']

    Args:
        criteria: The criteria that are scored instead of the whole.
        score_range: The lowest and highest score.
        marked: Whether the answer repeats the mark of the prompt, as ``mark``.
    """
    low, high = score_range
    score = {"type": "number", "minimum": low, "maximum": high}
    # The reasons come first: a model that starts with its score can only defend it.
    fields: dict[str, Any] = {"mark": {"type": "string"}} if marked else {}
    fields["reasoning"] = {"type": "string"}
    if criteria:
        fields["criteria"] = _object_schema(dict.fromkeys(criteria, score))
    else:
        fields["score"] = score
    return _object_schema(fields)


def _object_schema(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(fields),
        "required": list(fields),
        "additionalProperties": False,
    }


def parse_verdict(
    text: str,
    *,
    score_range: Bounds = (0.0, 1.0),
    criteria: Sequence[str] = (),
    service: str = "",
    mark: str | None = None,
    quotes: Sequence[str] = (),
) -> JudgeVerdict:
    r"""Parse a judge's answer, strictly: an ambiguous answer is a failure.

    A verdict is a JSON object with a ``score``, a labelled value such as ``Score: 0.2``, or an
    answer that is only a number. ``8/10`` and ``80%`` are parts of a range that begins at 0. An
    object may have raw line breaks in its strings, a comma after its last value, Python's notation,
    keys in another case, or ``rating``, ``grade`` or ``verdict`` in place of ``score``. The model's
    reasoning (see `split_reasoning`) is not part of its answer.
    Verdicts that differ or are out of range are rejected, as are those that only occur within a
    sentence, a quotation or a block of code.

    Example:
        >>> from guerdon.rubrics import parse_verdict
        >>> parse_verdict("1. Bad code. Score: 0.2").score
        0.2
        >>> parse_verdict("Rating: **8/10**").score
        0.8
        >>> parse_verdict("")
        Traceback (most recent call last):
            ...
        guerdon.errors.JudgeError: the answer is empty

    Args:
        text: The answer.
        score_range: The lowest and highest score.
        criteria: The criteria that were requested instead of a score; only an object has them.
        service: The name of the judge, for errors.
        mark: The mark of the prompt, if it has one: an object with this ``mark`` takes precedence
            over everything else.
        quotes: The judged texts. What they contain, ignoring case, white space and trailing zeros
            of numbers, is the judge's quotation and not its verdict; nor, if there is a mark, is
            a number alone that is all of one of these texts.

    Raises:
        JudgeError: There is no verdict, several differ, or it is out of range.
    """
    return _Parser(score_range, tuple(criteria), service, text, mark, tuple(quotes)).parse()


def stored_verdict(
    text: str, *, score_range: Bounds = (0.0, 1.0), criteria: Sequence[str] = ()
) -> JudgeVerdict | None:
    """Return the verdict in an entry of a cache; None if it is not valid, or out of range.

    Example:
        >>> stored_verdict('{"score": 0.5, "reasoning": "So it is."}').score
        0.5
        >>> stored_verdict('{"score": 2.0, "reasoning": "So it is."}') is None
        True
    """
    parser = _Parser(score_range, tuple(criteria), "", text, None, ())
    try:
        pairs = json.loads(text, object_pairs_hook=tuple, parse_constant=_reject_constant)
        return parser.read(pairs)
    except (JudgeError, ValueError, RecursionError):
        return None


@dataclass(frozen=True, slots=True)
class _Claim:
    """Something in an answer that looks like a verdict."""

    text: str
    read: Callable[[], JudgeVerdict]
    is_statement: bool  # neither within a sentence nor quoted
    is_marked: bool = False


@dataclass(frozen=True, slots=True)
class _Parser:
    """Parses one answer; see `parse_verdict`."""

    bounds: Bounds
    criteria: tuple[str, ...]
    service: str
    answer: str
    mark: str | None
    quotes: tuple[str, ...]

    def fail(self, message: str) -> NoReturn:
        answer = self.answer.strip()
        if answer:
            message += f"; the answer was {shortened(answer, MAX_SHOWN)!r}"
        raise JudgeError(message, service=self.service, answer=shortened(answer, MAX_DETAIL))

    def parse(self) -> JudgeVerdict:
        text = self._without_thought()
        objects, rest = self._objects(text)
        claims = [claim for claim in objects if claim.is_marked] or self._unmarked(objects, rest)
        if not claims and not self.criteria:
            claims = self._lone_value(text)
        if not claims:
            self.fail("the answer has no verdict, such as Score: 0.5")
        verdicts = [claim.read() for claim in claims]
        found = [each.criteria if each.score is None else each.score for each in verdicts]
        if any(each != found[0] for each in found):
            self.fail(f"the answer has verdicts that differ: {', '.join(map(str, found))}")
        if not any(claim.is_statement for claim in claims):
            self.fail(f"{claims[0].text[:80]!r} is part of a sentence and may be a quotation")
        return verdicts[0]

    def _without_thought(self) -> str:
        if len(self.answer) > MAX_CHARS:
            self.fail(f"the answer has {len(self.answer)} characters; the limit is {MAX_CHARS}")
        text = self.answer.removeprefix("\ufeff").strip()
        if not _is_object(text):  # in which a tag is part of a string
            reasoning, text = split_reasoning(text)
            if reasoning and not text:
                self.fail("the answer ends within the model's reasoning; increase `max_tokens`")
        if not text:
            self.fail("the answer is empty")
        first, _, body = text.partition("\n")
        if first.startswith("```") and body.endswith("```") and text.count("```") == 2:
            return body[:-3].strip()  # one block of code is the whole answer
        return text

    def _unmarked(self, objects: list[_Claim], rest: str) -> list[_Claim]:
        """The claims that are not in a judged text."""
        claims = objects if self.criteria else [*objects, *self._labelled(rest)]
        if not claims or not self.quotes:
            return claims
        quoted = [_normalized(text) for text in self.quotes]
        own = [claim for claim in claims if not _occurs(claim.text, quoted)]
        if not own:
            self.fail("the answer only repeats a verdict in the judged text")
        return own

    # JSON objects

    def _objects(self, text: str) -> tuple[list[_Claim], str]:
        """The outermost objects with a score, and the text around all objects."""
        claims, around, place, repaired = [], [], 0, 0
        if text.count("{") > MAX_BRACES:
            self.fail(f"the answer has more than {MAX_BRACES} braces")
        while (start := text.find("{", place)) >= 0:
            decoded = _decoded(text, start)
            if decoded is None and repaired < MAX_REPAIRED:
                decoded, repaired = _repaired(text, start), repaired + 1
            if decoded is None:
                around.append(text[place : start + 1])
                place = start + 1
                continue
            pairs, end = decoded
            around += [text[place:start], "\n"]
            place = end
            pairs = _unwrapped(pairs)
            keys = {name.lower(): value for name, value in pairs}
            is_marked = self.mark is not None and keys.get("mark") == self.mark
            if is_marked or (("criteria" if self.criteria else _score_key(keys)) in keys):
                is_statement = is_marked or _is_alone(text, start, end)
                read = partial(self.read, pairs)
                claims.append(_Claim(text[start:end], read, is_statement, is_marked))
        return claims, "".join([*around, text[place:]])

    def read(self, pairs: Any) -> JudgeVerdict:
        fields = self._fields(pairs)
        reasoning = fields.get("reasoning")
        reasoning = as_text(reasoning) if isinstance(reasoning, str) else ""
        if not self.criteria:
            return JudgeVerdict(self._value(fields.get(_score_key(fields)), "score"), reasoning)
        given = self._fields(fields.get("criteria"))
        missing = [name for name in self.criteria if name.lower() not in given]
        if missing:
            self.fail(f"the verdict lacks the criteria {missing}")
        scores = {name: self._value(given[name.lower()], name) for name in self.criteria}
        return JudgeVerdict(None, reasoning, scores)

    def _fields(self, pairs: Any) -> dict[str, Any]:
        if not isinstance(pairs, tuple):
            self.fail(f"the verdict's criteria must be an object, got {shown(pairs)}")
        fields = {key.lower(): value for key, value in pairs}
        if len(fields) < len(pairs):
            self.fail("an object in the answer has a key twice")
        return fields

    # Values in words

    def _labelled(self, text: str) -> Iterator[_Claim]:
        """The values with a label, such as ``Score: 0.2``."""
        for number, match in enumerate(LABELLED_VALUE.finditer(text)):
            if number == MAX_SCORES:
                self.fail(f"the answer has more than {MAX_SCORES} scores")
            is_statement = _is_statement(text, match.start())
            yield _Claim(match[0], partial(self._read_labelled, match, text), is_statement)

    def _read_labelled(self, match: re.Match[str], text: str) -> JudgeVerdict:
        if END.match(text, match.end()) is None:
            self.fail(f"{text[match.start() : match.end() + 20]!r} is ambiguous")
        return JudgeVerdict(self._value(match[0], "score", self._part(match)), text)

    def _lone_value(self, text: str) -> list[_Claim]:
        match = _lone(text)
        if match is None:
            return []
        value = self._value(text, "score")
        judged = [] if self.mark is None else filter(None, map(_lone, self.quotes))
        if any(self._part(quoted) == value for quoted in judged):
            self.fail(f"the answer is only {text!r}, the judged number, without the mark")
        return [_Claim(text, partial(JudgeVerdict, value), is_statement=True)]

    def _value(self, given: Any, name: str, number: float | None = None) -> float:
        """A number of an answer, or of a string such as ``"8/10"``, within the bounds."""
        low, high = self.bounds
        if isinstance(given, str) and number is None:
            match = _lone(given)
            number = None if match is None else self._part(match)
        elif isinstance(given, (int, float)) and not isinstance(given, bool):
            number = given
        if number is None or not low <= number <= high:
            got = "an object" if isinstance(given, tuple) else shown(given)
            self.fail(f"the verdict's {name} must be in [{low:g}, {high:g}], got {got}")
        return float(number) + 0.0  # no -0.0

    def _part(self, match: re.Match[str]) -> float | None:
        """A number on the scale of the scores; None if it is on another one."""
        low, high = self.bounds
        number = float(match["number"].replace("−", "-"))
        if match["percent"] is None and match["whole"] is None:
            return number
        whole = 100.0 if match["percent"] else float(match["whole"])
        if low == 0.0 and whole > 0.0:
            return number * high / whole
        return number if whole == high else None


def _reject_constant(literal: str) -> NoReturn:
    raise ValueError(f"{literal} is not a JSON number")


# An object is decoded as a tuple of pairs, an array as a list; strings may have raw line breaks.
_decoder = json.JSONDecoder(object_pairs_hook=tuple, parse_constant=_reject_constant, strict=False)


def _decoded(text: str, start: int = 0) -> tuple[Any, int] | None:
    """The JSON value at a place in a text, and where it ends."""
    try:
        return _decoder.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None


def _is_object(text: str) -> bool:
    decoded = _decoded(text) if text.startswith("{") else None
    return decoded is not None and decoded[1] == len(text)


def _repaired(text: str, start: int) -> tuple[Any, int] | None:
    """An object with a comma after its last value, or in Python's notation, and where it ends."""
    parts: list[str] = []
    depth, place = 0, start
    while (part := PART.match(text, place, start + MAX_REPAIRED_CHARS)) is not None:
        place = part.end()
        parts.append(_as_json(part))
        if part["mark"] in ("{", "["):
            depth += 1
        elif part["mark"] in ("}", "]"):
            if parts[-2] == ",":
                del parts[-2]
            depth -= 1
            if not depth:
                decoded = _decoded("".join(parts))
                return None if decoded is None else (decoded[0], place)
    return None


def _as_json(part: re.Match[str]) -> str:
    if part["quoted"] is not None:
        text = part["quoted"].replace("\\'", "'")
        return '"' + re.sub(r'(\\.)|"', lambda found: found[1] or '\\"', text) + '"'
    if part["number"]:
        return str(float(part["number"].replace("−", "-")))
    if part["word"]:
        return WORDS.get(part["word"], part["word"].lower())
    return part["text"] or part["mark"]


def _unwrapped(pairs: Any) -> Any:
    """The object in an object with nothing else, such as ``{"verdict": {"score": 0.5}}``."""
    while len(pairs) == 1 and isinstance(pairs[0][1], tuple) and pairs[0][1]:
        [(name, inner)] = pairs
        if name.lower() in ("score", "criteria"):
            break
        pairs = inner
    return pairs


def _score_key(fields: Mapping[str, Any]) -> str:
    """The key of the score in an object; another label, if it is the only one with a number."""
    numbers = [name for name in LABELS if isinstance(fields.get(name), (int, float))]
    return numbers[0] if len(numbers) == 1 and "score" not in fields else "score"


def _lone(text: str) -> re.Match[str] | None:
    text = text.strip()
    return LONE_VALUE.fullmatch(text) if len(text) <= LONE_CHARS else None


def _is_alone(text: str, start: int, end: int) -> bool:
    """Whether an object has its lines to itself, but for the fence of a block of code."""
    before = text[:start].rpartition("\n")[2].strip()
    after = text[end:].partition("\n")[0].strip()
    return before in ("", "```json", "```", "[") and after in ("", "```", ".", "]")


def _is_statement(text: str, start: int) -> bool:
    """Whether a line or sentence begins there, in no quotation and no block of code."""
    if text.count("```", 0, start) % 2:
        return False
    line = text[max(0, start - 1000) : start].rpartition("\n")[2]
    return QUOTED.search(line) is None and BEGINNING.fullmatch(line) is not None


def _normalized(text: str) -> str:
    text = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(DECIMAL.sub(lambda number: number[0].rstrip("0").rstrip("."), text).split())


def _occurs(text: str, quoted: Sequence[str]) -> bool:
    normalized = _normalized(text)
    whole = re.compile(re.escape(normalized) + r"(?!\d|(?<=\d)\.\d)")  # 1 is not part of 12
    if any(whole.search(each) for each in quoted):
        return True
    compact = "".join(normalized.split())  # JSON is the same without white space
    return compact.startswith("{") and any(compact in "".join(each.split()) for each in quoted)
