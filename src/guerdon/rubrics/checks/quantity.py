r"""Reading one number from a short text, exactly or not at all.

A text is a number if it contains only one and what people write around numbers: a currency sign,
thousands separators, a percent sign, words for a unit, quotes, "about", a closing remark in
parentheses, Markdown, HTML and LaTeX. Anything that is not clearly one number (`10:30`, `3 or 4`,
`5 hours 30 minutes`) is not a number, and neither is one whose unit scales it (`3 quarters`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

__all__ = ["parse_number"]

MAX_NUMBER_LENGTH = 400
"""A longer text is not a number, which bounds the work on hostile input."""

_EXPONENTS = range(-324, 309)  # those of a float

_PLAIN = re.compile(r"-?[0-9]{1,18}")
_NUMBER = re.compile(
    r"""(?:[A-Za-z]?\s*=\s*)?               # "= 5", "x = 5"
        (?P<sign>[-+]?)\s*
        (?:US[Dd]?|EUR|GBP|INR|JPY|CNY|CAD|AUD|R[sS]\.?)?\s*[$€£¥₹₩]{0,2}\s*
        (?P<inner>[-+]?)                    # "$-5"
        (?:(?P<whole>[0-9]+)\s+(?=[0-9]+\s*/))?
        (?P<digits>[1-9][0-9]{0,2}(?:,[0-9]{3})+ | [1-9][0-9]{0,2}(?:[\u2009\u202f][0-9]{3})+
          | [0-9]+)?
        (?P<decimals>\.[0-9]+)?
        (?:[eE](?P<exponent>[-+]?[0-9]+))?
        (?:\s*/\s*(?P<denominator>[0-9]+))?
    """,
    re.VERBOSE,
)

_CHARACTERS = str.maketrans(
    {
        "\u2212": "-", "\u2013": "-", "\ufe63": "-", "\uff0d": "-", "\u2044": "/",
        "\u00a0": " ", "\uff04": "$", "\uff05": "%",
        "½": " 1/2", "⅓": " 1/3", "⅔": " 2/3", "¼": " 1/4", "¾": " 3/4", "⅕": " 1/5",
        "⅖": " 2/5", "⅗": " 3/5", "⅘": " 4/5", "⅙": " 1/6", "⅚": " 5/6", "⅛": " 1/8",
        "⅜": " 3/8", "⅝": " 5/8", "⅞": " 7/8",
    }
)  # fmt: skip

_LATEX = (
    (re.compile(r"\\[dtc]?frac\s*\{\s*(-?[0-9]+)\s*\}\s*\{\s*([0-9]+)\s*\}"), r" \1/\2"),
    (re.compile(r"\\[dtc]?frac\s*([0-9])\s*([0-9])"), r" \1/\2"),
    (
        re.compile(r"\\(?:boxed|fbox|text(?:bf|it|rm)?|math(?:rm|bf|it)|mbox)\s*\{([^{}]*)\}"),
        r" \1 ",
    ),
    (re.compile(r"\^\s*\{?\s*\\circ\s*\}?|\\degree\b"), "°"),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"\\!"), ""),
    (re.compile(r"\\,(?=[0-9]{3}(?![0-9]))"), "\u2009"),
    (re.compile(r"\\(?:[,;: ]|quad\b)|(?<=\w)~"), " "),
    (re.compile(r"\\[()\[\]]"), ""),
    (re.compile(r"\\([$%])"), r"\1"),
)
_TAG = re.compile(r"</?(?:answer|strong|span|code|mark|em|b|i|u)>", re.IGNORECASE)
_TIMES_POWER = re.compile(
    r"(?<=[0-9])\s*(?:\\times|\\cdot|[×·x*])\s*10\s*\^\s*(?:\{\s*([-+]?[0-9]+)\s*\}|([-+]?[0-9]+))"
)
_UNIT_POWER = re.compile(r"(?<=[A-Za-z.])\s*\^\s*(?:([23])(?![0-9])|\{\s*([23])\s*\})")
_SUPERSCRIPT = {"2": "²", "3": "³"}
_HEDGE = re.compile(
    r"\A(?:about|approximately|approx\.?|roughly|around|exactly|precisely)\s+", re.IGNORECASE
)
_QUOTES = "\"'“”‘’"
_WITHOUT_SEPARATORS = str.maketrans("", "", ",\u2009\u202f")
_ANNOTATION = re.compile(r"<<[^<>]*>>")

_WORD = re.compile(r"[^\W\d_]+(?:[-/'’.][^\W\d_]+)*[²³]?\.?")
_MAX_UNIT_WORDS = 6
_SCALES = {
    "dozen": 12, "hundred": 100, "thousand": 1000, "lakh": 10**5, "million": 10**6, "crore": 10**7,
    "billion": 10**9, "trillion": 10**12,
}  # fmt: skip
_SCALING = re.compile(
    r"""(?<!per\ )(?<!each\ )(?<!\ba\ )\b(?:      # "$3 a dozen" is a price, not a scaled 3
        (?:dozen|hundred|thousand|lakh|lac|million|crore|billion|trillion|score|quarter)s?
        | half | halves
        | (?:third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|twentieth|hundredth|thousandth
          |millionth) (?:s | (?=\s+of\b|\.?$))      # "18 third graders" are 18
    )\b""",
    re.VERBOSE | re.IGNORECASE,
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ABBREVIATIONS = _words(
    "mm cm m km in ft yd mi mg g kg lb lbs oz ml mL cl dl l L s sec ms min mins h hr hrs "
    "km/h m/s mph kph V W kW J N Hz C F"
)
_NUMBER_WORDS = _words(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    " sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety"
)
_NOT_UNITS = _NUMBER_WORDS | _words(
    "or and to than plus minus not but is are was if squared cubed factorial pi sqrt am pm a.m."
    " p.m. a.m p.m st nd rd th january february march april may june july august september october"
    " november december jan feb mar apr jun jul aug sep sept oct nov dec"
)


class Quantity(NamedTuple):
    """A number as it was written.

    Attributes:
        value: The number without its percent sign: 50 for `50%`.
        percent: Whether a percent sign or the word followed it.
    """

    value: Fraction
    percent: bool

    def __str__(self) -> str:
        bits = self.value.numerator.bit_length()
        if bits > 1000:
            shown = f"a number of about {bits * 3 // 10} digits"
        else:
            shown = str(self.value if self.value.denominator == 1 else float(self.value))
        return f"{shown:.80}{'%' if self.percent else ''}"


def parse_number(text: str) -> Fraction | None:
    r"""Return the number in a text, or None if the text is not one number.

    Args:
        text: Any text. One of more than `MAX_NUMBER_LENGTH` characters is not a number, and neither
            is one with an exponent below -324 or above 308.

    Returns:
        The exact value (`0.1` is 1/10, `50%` is 1/2), or None.

    Example:
        >>> [str(parse_number(t)) for t in ("$1,234.50", r"\frac{1}{2}", "18 eggs", "3 or 4")]
        ['2469/2', '1/2', '18', 'None']
    """
    quantity = read_quantity(text)
    if quantity is None:
        return None
    return quantity.value / 100 if quantity.percent else quantity.value


def read_quantity(text: str) -> Quantity | None:
    """Return the number in a text with its percent sign separate, or None.

    Args:
        text: Any text, as for `parse_number`.

    Returns:
        The number as it was written, or None.

    Example:
        >>> read_quantity("50%")
        Quantity(value=Fraction(50, 1), percent=True)
    """
    text = text.strip()
    if _PLAIN.fullmatch(text):
        return Quantity(Fraction(int(text)), False)
    if not text or len(text) > MAX_NUMBER_LENGTH:
        return None
    text = _undecorated(text)
    found = _NUMBER.match(text)
    if found is None or not _is_number(found):
        return None
    return _with_unit(_value(found), text[found.end() :])


def _undecorated(text: str) -> str:
    if not text.isascii():
        text = text.translate(_CHARACTERS)
    for signs, clean in _CLEANERS:
        if not signs.isdisjoint(text):
            text = clean(text)
    text = text.strip("*_` \t\r\n")
    if text.startswith(tuple(_QUOTES)):
        text = text.strip(_QUOTES + "*_` ")
    if text.endswith(".") and not text.endswith(".."):
        text = text[:-1].rstrip("*_` " + _QUOTES)
    if text.endswith(")"):
        text = _without_remark(text)
    text = _HEDGE.sub("", text)
    if len(text) > 2 and text[0] == text[-1] == "$":
        text = text.strip("$").strip()
    return text


def _without_latex(text: str) -> str:
    for _ in range(2):  # a box around a fraction, a text inside a box
        for pattern, replacement in _LATEX:
            text = pattern.sub(replacement, text)
    return text


# Each runs only on texts with one of its signs.
_CLEANERS: tuple[tuple[frozenset[str], Callable[[str], str]], ...] = (
    (frozenset("<"), lambda text: _ANNOTATION.sub("", text)),
    (frozenset("\\~{"), _without_latex),
    (frozenset("<"), lambda text: _TAG.sub("", text)),
    (frozenset("^"), lambda text: _TIMES_POWER.sub(lambda found: f"e{found[1] or found[2]}", text)),
)


def _without_remark(text: str) -> str:
    """Remove a remark in parentheses that adds a unit or spells the number out, and no other."""
    start = text.rfind("(")
    remark = text[start + 1 : -1]
    words = remark.lower().replace("-", " ").split()
    spelled = words[:1] and words[0] in _NUMBER_WORDS
    if spelled:
        known = all(word in _NUMBER_WORDS or word in _SCALES for word in words)
    else:
        known = all(map(_is_unit, remark.split())) and not _SCALING.search(remark)
    if start > 0 and words and known and "percent" not in words:
        return text[:start].rstrip("*_` ")
    return text


def _is_number(found: re.Match[str]) -> bool:
    sign, inner, _, digits, decimals, exponent, denominator = found.groups()
    if not (digits or decimals) or (sign and inner):
        return False
    if denominator and (decimals or exponent or not int(denominator)):
        return False
    return not exponent or (len(exponent) <= 4 and int(exponent) in _EXPONENTS)


def _value(found: re.Match[str]) -> Fraction:
    sign, inner, whole, digits, decimals, exponent, denominator = found.groups()
    digits = (digits or "0").translate(_WITHOUT_SEPARATORS)
    value = Fraction(digits + (decimals or "")) / int(denominator or 1)
    value = value * Fraction(10) ** int(exponent or 0) + int(whole or 0)
    return -value if "-" in (sign, inner) else value


def _with_unit(value: Fraction, rest: str) -> Quantity | None:
    if rest[:1] in ("k", "K") and not rest[1:2].isalnum():
        value, rest = value * 1000, rest[1:]
    rest = _UNIT_POWER.sub(lambda power: _SUPERSCRIPT[power[1] or power[2]], rest)
    is_glued = rest[:1] not in ("", " ", "\t", "\u2009", "\u202f")
    rest = rest.strip()
    percent = rest.startswith("%")
    if percent or rest[:1] in tuple("$€£¥₹₩¢°"):
        rest, is_glued = rest[1:].strip(), False
    words = rest.split()
    if is_glued and words and words[0].rstrip(".²³") not in _ABBREVIATIONS:
        return None
    if not percent:
        value, words = _scaled(value, words)
    percent = percent or (words[:1] and words[0].lower().rstrip(".")) == "percent"
    return Quantity(value, percent) if _are_units(words) else None


def _scaled(value: Fraction, words: list[str]) -> tuple[Fraction, list[str]]:
    while words and (scale := _SCALES.get(words[0].lower().rstrip(".").removesuffix("s"))):
        value, words = value * scale, words[1:]
    return value, words


def _are_units(words: list[str]) -> bool:
    if len(words) > _MAX_UNIT_WORDS or not all(map(_is_unit, words)):
        return False
    return not _SCALING.search(" ".join(words))


def _is_unit(word: str) -> bool:
    """Whether a word is a unit; a single letter is a variable (`5 x`) or an abbreviation."""
    bare = word.rstrip(".²³")
    if not _WORD.fullmatch(word) or word.lower() in _NOT_UNITS or bare.lower() in _NOT_UNITS:
        return False
    return len(bare) > 1 or bare in _ABBREVIATIONS or bare == "a"
