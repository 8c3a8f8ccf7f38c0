"""Scores in words: ``Score: 0.2``, ``Rating: **8/10**``, ``80%``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["SaidScore", "Scale", "as_score", "lone_score", "marked_scores"]

# The lowest and the highest score.
Scale: TypeAlias = tuple[float, float]

NUMBER = r"[-+−]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?"
# What may stand around a number: Markdown, quotes, brackets.
DRESS, UNDRESS = r"[*_`\"'\[({$]{0,9}", r"[*_`\"'\])}$]{0,9}"
CLOSED = r"[*_`\"']{0,9}"
VALUE = (
    rf"(?P<number>{NUMBER})(?:(?:\s?(?P<percent>%))"
    rf"|{UNDRESS}[ \t]?\(?(?:/|[ \t]/|out of|of)[ \t]?{DRESS}(?P<whole>\d+(?:\.\d+)?))?"
)
# The scale that a number is said on: "0-10", "on a scale of 1 to 5", "out of 10".
SPAN = re.compile(
    rf"[,( ]{{0,3}}(?:on )?(?:an? |the )?(?:scale )?(?:of |from )?(?P<low>{NUMBER})"
    rf" ?(?:-|–|to|\.\.+) ?(?P<high>{NUMBER})(?: ?scale)?\)?",
    re.IGNORECASE,
)
OUT_OF = re.compile(r"\s*(?:out\s+of|of|/|max\.?|maximum)\s*(\d+(?:\.\d+)?)\s*", re.IGNORECASE)

MARKS = ("score", "rating", "grade", "verdict")
# What may stand before a mark at the beginning of a sentence: a bullet, Markdown, "My final …".
LEAD = re.compile(
    r"[\s*_#•\-]*(?:\d{1,9}[.)][\s*_]*)?(?:(?:my|the|your|overall|final|total|so|thus)[\s,*_]+){0,3}",
    re.IGNORECASE,
)
# How far back the beginning of a sentence may lie, in characters.
LEAD_CHARS = 1000
LEAD_END = re.compile(r"[.!?;][)\"'”*_]*\s+|\n")
# What shows that the number isn't the score, or not all of it: more digits, a range, a sum, a
# unit, or a sentence about a score that might be.
UNCLEAR = re.compile(
    r"[A-Za-z×^]|[,.:]\d|[ \t]{0,9}(?:[-+−–~=→/]|±|\+/-|to\b|or\b|and\b)?[ \t]{0,9}[*_]{0,9}\.?\d"
    r"|[ \t]{0,9}[/%‰?]"
    r"|[ \t]{0,9}(?:stars?|points?|on|out of|would|could|should|might|may|is|was)\b",
    re.IGNORECASE,
)
LONE = re.compile(rf"{DRESS}\s*{VALUE}\s*{UNDRESS}\.?", re.IGNORECASE)
LONE_CHARS = 60


@dataclass(frozen=True, slots=True)
class SaidScore:
    """A number that a judge wrote as a score.

    Attributes:
        text: What stands there.
        number: The number.
        whole: What it is out of, if that is said; 100 for percents.
        span: The scale that it is said on, if that is said.
        is_clear: Whether the number ends there, and is no part of something else.
        is_statement: Whether it stands at the beginning of a line or sentence, in no quotation.
    """

    text: str
    number: float
    whole: float | None = None
    span: Scale | None = None
    is_clear: bool = True
    is_statement: bool = True


def as_score(said: SaidScore, scale: Scale) -> float | None:
    """What was said, on a scale; None where it can't be told. It may lie out of range.

    Example:
        >>> as_score(SaidScore("8/10", 8, whole=10), (0.0, 1.0))
        0.8
    """
    low, high = scale
    if not said.is_clear or (said.span is not None and said.span != scale):
        return None
    if said.whole is None:
        return said.number
    if low == 0.0 and said.whole > 0.0:
        return said.number * high / said.whole
    return said.number if said.whole == high else None


def lone_score(text: str) -> SaidScore | None:
    """The score that a text is, with nothing else.

    Example:
        >>> lone_score(" **80%**").number
        80.0
    """
    text = text.strip()
    match = LONE.fullmatch(text) if len(text) <= LONE_CHARS else None
    return None if match is None else _said(match, text)


def marked_scores(text: str, names: Sequence[str] | None = None) -> Iterator[SaidScore]:
    """The scores in a text that say that they are one.

    Example:
        >>> [said.number for said in marked_scores("Bad. Score: 0.2, not 0.4.")]
        [0.2]

    Args:
        text: Any text.
        names: What marks them; by default ``score``, ``rating``, ``grade`` and ``verdict``.
    """
    marks = "|".join(re.escape(name).replace("_", "[ _-]") for name in names or MARKS)
    pattern = re.compile(
        rf"(?<!\w)(?:<(?P<tag>{marks})>\s{{0,9}}"  # <score>0.2</score>
        rf"|(?:{marks}){CLOSED}[ \t]?(?:\((?P<span>[^()\n]{{0,40}})\))?{CLOSED}"
        rf"(?:[ \t]?(?:[:=]|[ \t]is(?![\w'’]))[:=]?|(?=[ \t]?\n))[*_`]{{0,9}}\s{{0,9}})"
        rf"{DRESS}[ \t]?{VALUE}",
        re.IGNORECASE,
    )
    for match in pattern.finditer(text):
        if match["tag"] is None and not re.search(r"[:=]|\bis\b", match[0], re.IGNORECASE):
            line = text[: match.start()].rpartition("\n")[2]
            if not re.fullmatch(r"[\s#*_]+", line):  # a heading, with the number below
                continue
        yield _said(match, match[0], text, match["span"] if match["tag"] is None else None)


def _said(
    match: re.Match[str], shown: str, text: str | None = None, noted: str | None = None
) -> SaidScore:
    whole = 100.0 if match["percent"] else float(match["whole"]) if match["whole"] else None
    span, clear = None, True
    if noted is not None and re.search(r"\d", noted):
        out_of, on = OUT_OF.fullmatch(noted), SPAN.fullmatch(noted)
        if out_of and whole is None:
            whole = float(out_of[1])
        span = _span(on)
        clear = bool(out_of or on)
    statement = True
    if text is not None:
        dress = re.compile(UNDRESS).match(text, match.end())
        end = match.end() if dress is None else dress.end()
        on = SPAN.match(text, end)
        if on and re.match(r"[,( ]*(?:on|from|\()", on[0]):
            span = _span(on)
        elif UNCLEAR.match(text, end):
            clear = False
        statement = _begins(text, match.start())
    number = _number(match["number"])
    return SaidScore(shown.strip(), number, whole, span, clear, statement)


def _span(match: re.Match[str] | None) -> Scale | None:
    return None if match is None else (_number(match["low"]), _number(match["high"]))


def _number(digits: str) -> float:
    return float(digits.replace("−", "-"))


def _begins(text: str, start: int) -> bool:
    """Whether a statement begins there: a line or a sentence, in no quotation and no code."""
    before = text[:start]
    line = before.rpartition("\n")[2]
    if before.count("```") % 2 or line.lstrip().startswith(">"):
        return False
    if line.count('"') % 2 or line.count("“") > line.count("”") or line.count("`") % 2:
        return False
    if len(re.findall(r"(?<![\w.!?])'", line)) > len(re.findall(r"(?<=[\w.!?])'(?!\w)", line)):
        return False
    nearest = max(0, start - LEAD_CHARS)
    ends = list(LEAD_END.finditer(before, nearest))
    if not ends and nearest:
        return False
    return LEAD.fullmatch(before, ends[-1].end() if ends else 0) is not None
