r"""Reading one number from a short text, exactly or not at all.

A text is a number if it contains only one and what people write around numbers: a currency sign,
thousands separators, a percent sign, words for a unit, quotes, brackets, "about", a closing remark,
Markdown, HTML and LaTeX. Of equalities the last member counts (`3 * 6 = 18`). Anything that is not
clearly one number (`10:30`, `3 or 4`, `5 hours 30 minutes`) is not a number, and neither is one
whose unit scales it (`3 quarters`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from guerdon.rubrics.checks.units import sizes_of

__all__ = ["parse_number"]

MAX_NUMBER_LENGTH = 400
"""A longer text is not a number, which bounds the work on hostile input."""

_EXPONENTS = range(-324, 309)  # those of a float

_PLAIN = re.compile(r"-?[0-9]{1,18}")
_NUMBER = re.compile(
    r"""(?P<sign>[-+]?)\s*
        (?P<currency>
          (?:US[Dd]?|EUR|GBP|INR|JPY|CNY|CHF|CAD?(?=[\s$])|AUD|(?:[ACRS]|HK|NZ)(?=\$)|R[sS]\.?)?
          \s*[$€£¥₹₩]{0,2})\s*
        (?P<inner>[-+]?)                    # "$-5"
        (?:(?P<whole>[0-9]+)\s+(?=[0-9]+\s*/))?
        (?P<digits>[1-9][0-9]{0,2}(?:,[0-9]{3})+
          | [1-9][0-9]{0,2}(?:[ \u2009\u202f][0-9]{3})+(?![0-9])
          | [1-9][0-9]?(?:,[0-9]{2})+,[0-9]{3}  # the grouping of India
          | [0-9]+)?
        (?P<decimals>\.[0-9]+)?
        (?:[eE](?P<exponent>[-+]?[0-9]+))?
        (?:\s*/\s*(?P<denominator>[0-9]+))?
    """,
    re.VERBOSE,
)

_SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"
_CHARACTERS = str.maketrans(
    {
        "\u2212": "-", "\u2013": "-", "\u2014": "-", "\ufe63": "-", "\u2044": "/",
        "\u00a0": " ", "\u200b": "", "\ufeff": "", "。": ".", "٫": ".", "٬": ",", "٪": "%",
        "￥": "¥", "℃": "°C", "℉": "°F", "µ": "μ", "\u2126": "Ω",
        "½": " 1/2", "⅓": " 1/3", "⅔": " 2/3", "¼": " 1/4", "¾": " 3/4", "⅕": " 1/5",
        "⅖": " 2/5", "⅗": " 3/5", "⅘": " 4/5", "⅙": " 1/6", "⅚": " 5/6", "⅛": " 1/8",
        "⅜": " 3/8", "⅝": " 5/8", "⅞": " 7/8",
        **{chr(0xFF01 + index): chr(0x21 + index) for index in range(94)},
    }
)  # fmt: skip

_DIGIT = re.compile(r"(?![0-9])\d")
_SIGNS = {"pounds": "£", "euro": "€", "Omega": "Ω", "mu": "μ"}
_GROUP = r"\s*(?:\{\s*(-?[0-9,.]+)\s*\}|([0-9]))"
_LATEX: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"\\(?:text)?color\s*\{\w+\}"), ""),
    (re.compile(rf"\\(?:[dtcs]|nice)?frac{_GROUP}{_GROUP}"), r" \1\2/\3\4"),
    (
        re.compile(
            r"\\(?:boxed|fbox|text(?:bf|it|rm|normal)?|math(?:rm|bf|it)|mbox|bm|boldsymbol"
            r"|underline|emph)\s*\{([^{}]*)\}"
        ),
        r" \1 ",
    ),
    (re.compile(r"\^\s*\{?\s*\\circ\s*\}?|\\degree\b"), "°"),
    (re.compile(r"\\!|\\(?:left|right)(?=[()\[\]])|\\displaystyle\b"), ""),
    (re.compile(r"\\,(?=[0-9]{3}(?![0-9]))"), "\u2009"),
    (re.compile(r"\\(?:[,;: ]|q?quad\b)|(?<=\w)~"), " "),
    (re.compile(r"\\[()\[\]{}]"), ""),
    (re.compile(r"\\([$%])"), r"\1"),
    (re.compile(r"\\(?:approx|sim)(?![a-z])"), "≈"),
    (re.compile(r"\\(pounds|euro|Omega|mu)(?![a-z])"), lambda sign: _SIGNS[sign[1]]),
)
_TAG = re.compile(r"</?(?:answer|strong|span|code|mark|em|b|i|p|u)>|<br ?/?>\Z", re.IGNORECASE)
_POWER_OF_TEN = re.compile(
    r"(?:(?<=[0-9])\s*(?:\\times|\\cdot|[×·x*])|(?<![0-9.,^*/)×])(?<![×x·]\s)(?<![*/s]\s))\s*10\s*"
    r"(?:\^|\*\*)\s*(?:[{(]\s*([-+]?[0-9]+)\s*[})]|([-+]?[0-9]+))"
)
_POWER = re.compile(
    r"(?<![\w.,^*/)×])([0-9]{1,4})\s*(?:\^|\*\*)\s*(?:\{\s*([0-9]{1,3})\s*\}|([0-9]{1,3})(?![0-9]))"
    r"(?!\s*[\^*])"
)
_RAISE = str.maketrans("0123456789-", _SUPERSCRIPTS)
_RAISED = re.compile(rf"(?<=[0-9])([{_SUPERSCRIPTS}]+)")
_UNIT_POWER = re.compile(r"(?<=[A-Za-z.])\s*\^\s*(?:(-?[1-3])(?![0-9])|\{\s*(-?[1-3])\s*\})")
_HEDGE = re.compile(
    r"\A(?:(?:about|approximately|approx\.?|roughly|around|nearly|almost|exactly|precisely|only|just"
    r"|equal to|a total of)\s+|\(?[A-J]\)\s+|[≈~→]\s*)",
    re.IGNORECASE,
)
_EMOJI = re.compile(  # not of ✗, ✘ and ❌
    "[\u2190-\u2191\u2193-\u21ff\u2300-\u23ff\u25a0-\u2716\u2719-\u274b\u274d-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff\ufe0f\u20e3]+"
)
_PAIRS = {"(": ")", "[": "]", "{": "}", "<": ">", "«": "»", "【": "】", "「": "」", "$": "$",
          '"': '"', "'": "'", "“": "”", "‘": "’"}  # fmt: skip
_WITHOUT_SEPARATORS = str.maketrans("", "", ", \u2009\u202f")
_REASON = re.compile(
    r"(?:[.,;]?\s+[\[(]?(?:because|since|which|[Ee]xplanation|[Rr]eason(?:ing)?|and\swe|i\.e)\b"
    r"|,?\s+\(?rounded\b|\s+\((?:mod|[Cc]onfidence|see|from|nearest)\b|\s+\((?=[^a-z]*[0-9]\s?[×*/+-]))"
    r"(?!.*\b(?:wrong|incorrect|false)\b).*",
    re.DOTALL,
)
_NEGATIVE = re.compile(r"\A(?:negative|minus)\s+(?=[$€£]?[0-9])", re.IGNORECASE)
_ARITHMETIC = re.compile(r"[\s0-9.,*/+×·x()-]+")
_ANNOTATION = re.compile(r"<<[^<>]*>>")
_EQUAL = re.compile(r"==?")
_NOT_ONE_CHAIN = re.compile(
    r"[;\n<>≠≤≥≈?]|[.!]\s+\S|\\[lgn]eq?\b|\b(?:and|or|so|then|but)\b|[0-9)]\s+[A-Za-z]\s*$"
)
_REMARK = re.compile(
    r"(?:[.!?;,]\s+|\s-\s+)((?:I|[A-Za-z]{2,})\b[^0-9]*)\Z|\s+(because\s[^0-9]*)\Z"
)

_WORD = re.compile(r"[^\W\d_]+(?:⁻?[¹²³⁴])?(?:[-/'’.·⋅][^\W\d_]+(?:⁻?[¹²³⁴])?)*\.?")
_MAX_UNIT_WORDS = 6
_SCALES = {
    "dozen": 12, "hundred": 100, "thousand": 1000, "lakh": 10**5, "lac": 10**5, "million": 10**6,
    "mn": 10**6, "mln": 10**6, "mio": 10**6, "mil": 10**6, "crore": 10**7, "cr": 10**7,
    "billion": 10**9, "bn": 10**9, "bln": 10**9, "trillion": 10**12, "tn": 10**12, "trn": 10**12,
}  # fmt: skip
_LETTERS = {"k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9, "b": 10**9, "T": 10**12}
_MONEY = {**_LETTERS, "m": 10**6, "mm": 10**6, "MM": 10**6, "t": 10**12}
_SCALING = re.compile(
    r"""(?<!per\ )(?<!each\ )(?<!\ba\ )\b(?:      # "$3 a dozen" is a price, not a scaled 3
        (?:dozen|hundred|thousand|lakh|lac|million|crore|billion|trillion|score|quarter)s?
        | half | halves | mn | bn
        | (?:third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|twentieth|hundredth|thousandth
          |millionth) (?:s | (?=\s+of\b|\.?$))      # "18 third graders" are 18
    )\b""",
    re.VERBOSE | re.IGNORECASE,
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NUMBER_WORDS = _words(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    " sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety"
)
_WRONG = _words("wrong incorrect false mistaken")
_NOT_UNITS = _NUMBER_WORDS | _words(
    "wrong incorrect false mistaken or and to than plus minus not but is are was if squared cubed"
    " factorial pi sqrt am pm a.m. p.m. a.m p.m st nd rd th january february march april"
    " may june july august september october november december"
    " jan feb mar apr jun jul aug sep sept oct nov dec"
)
_SECOND_ANSWERS = _words("or and to plus minus not but times maybe perhaps possibly otherwise half")
_PERCENT = _words("% percent percentage pct")


class Quantity(NamedTuple):
    """A number as it was written.

    Attributes:
        value: The number without its percent sign: 50 for `50%`.
        percent: Whether a percent sign or the word followed it.
        unit: The currency before the number and the words after it: `$ per day`.
    """

    value: Fraction
    percent: bool = False
    unit: str = ""

    def __str__(self) -> str:
        bits = self.value.numerator.bit_length()
        if bits > 1000:
            shown = f"a number of about {bits * 3 // 10} digits"
        else:
            decimal = repr(float(self.value)).removesuffix(".0")
            shown = decimal if Fraction(decimal) == self.value else str(self.value)
        unit = self.unit if self.percent or not self.unit else f" {self.unit}"
        return f"{shown:.80}{unit:.40}"


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
    """Return the number in a text with its percent sign and its unit separate, or None.

    Args:
        text: Any text, as for `parse_number`.

    Returns:
        The number as it was written, or None.

    Example:
        >>> read_quantity("about 5 km")
        Quantity(value=Fraction(5, 1), percent=False, unit='km')
    """
    text = text.strip()
    if _PLAIN.fullmatch(text):
        return Quantity(Fraction(int(text)))
    if not text or len(text) > MAX_NUMBER_LENGTH:
        return None
    text = _without_remark(_undecorated(_last_member(plain_signs(text))))
    number = _NUMBER.match(text)
    if number is None or not _is_number(number):
        return None
    return _with_unit(_value(number), text[number.end() :], number["currency"].strip())


def plain_signs(text: str) -> str:
    """Replace LaTeX, HTML, powers and signs of Unicode by what `_NUMBER` reads."""
    if not text.isascii():
        text = _DIGIT.sub(lambda digit: str(int(digit[0])), text.translate(_CHARACTERS))
        text = _RAISED.sub(_raised, text)
        text = _EMOJI.sub(" ", text)
    for signs, clean in _CLEANERS:
        if not signs.isdisjoint(text):
            text = clean(text)
    return text


def _raised(digits: re.Match[str]) -> str:
    return "^" + "".join("0123456789-"[_SUPERSCRIPTS.index(digit)] for digit in digits[1])


def _without_latex(text: str) -> str:
    for _ in range(2):  # a box around a fraction, a text inside a box
        for pattern, replacement in _LATEX:
            text = pattern.sub(replacement, text)
    return text


def _without_powers(text: str) -> str:
    text = _POWER_OF_TEN.sub(_power_of_ten, text)
    return _POWER.sub(lambda power: str(int(power[1]) ** int(power[2] or power[3])), text)


def _power_of_ten(power: re.Match[str]) -> str:
    return "1" * power[0].lstrip().startswith("10") + f"e{power[1] or power[2]}"


# Each runs only on texts with one of its signs.
_CLEANERS: tuple[tuple[frozenset[str], Callable[[str], str]], ...] = (
    (frozenset("<"), lambda text: _ANNOTATION.sub("", text)),
    (frozenset("\\~{"), _without_latex),
    (frozenset("<"), lambda text: _TAG.sub("", text)),
    (frozenset("^*"), _without_powers),
)


def _undecorated(text: str) -> str:
    """Remove emphasis, brackets, quotes and punctuation around a number, and "about" before it."""
    for _ in range(6):
        before = text
        text = text.strip("*_`# \t\r\n").rstrip(";:?,")
        if text.endswith(".") and not text.endswith(".."):
            text = text[:-1]
        closing = _PAIRS.get(text[:1])
        inner = text[1:-1]
        # (1,234) may be a pair.
        if closing and text.endswith(closing) and closing not in inner.strip(closing):
            text = text if "," in inner and closing in ")]" else inner
        text = _HEDGE.sub("", text)
        if text == before:
            break
    return text


def _last_member(text: str) -> str:
    """Return a text without a reason, and of a chain of equalities its last member."""
    text = _NEGATIVE.sub("-", _REASON.sub("", text))
    *members, last = _EQUAL.split(text)
    if len(members) == 1 and _NUMBER.fullmatch(members[0].strip()) and _ARITHMETIC.fullmatch(last):
        return last if _NUMBER.fullmatch(last.strip()) else members[0]  # 18 = 2 * 9
    if any(map(_NOT_ONE_CHAIN.search, members)) or any("," in member for member in members[1:]):
        return text
    return last


def _without_remark(text: str) -> str:
    """Remove what only explains a number: a remark behind it that has no number of its own."""
    remark = _REMARK.search(text)
    if remark is not None:
        words = re.findall(r"[a-z]+", (remark[1] or remark[2]).lower())
        if words[0] not in _SECOND_ANSWERS and not any(
            word in _NUMBER_WORDS or word in _SCALES or word in _WRONG for word in words
        ):
            return _undecorated(text[: remark.start()])
    return _without_parentheses(text) if text.endswith(")") else text


def _without_parentheses(text: str) -> str:
    """Remove a remark in parentheses that adds a unit or spells the number out, and no other."""
    start = text.rfind("(")
    remark = text[start + 1 : -1]
    words = remark.lower().replace("-", " ").split()
    spelled = words[:1] and words[0] in _NUMBER_WORDS
    if spelled:
        known = all(word in _NUMBER_WORDS or word in _SCALES for word in words)
    else:
        known = all(map(_is_unit, remark.split())) and not _SCALING.search(remark)
    if start > 0 and words and known and _PERCENT.isdisjoint(words):
        return text[:start].rstrip("*_` ") + ("" if spelled else f" {remark}")
    return text


def _is_number(found: re.Match[str]) -> bool:
    sign, _, inner, _, digits, decimals, exponent, denominator = found.groups()
    if not (digits or decimals) or (sign and inner):
        return False
    if denominator and (decimals or exponent or not int(denominator)):
        return False
    return not exponent or (len(exponent) <= 4 and int(exponent) in _EXPONENTS)


def _value(found: re.Match[str]) -> Fraction:
    sign, _, inner, whole, digits, decimals, exponent, denominator = found.groups()
    digits = (digits or "0").translate(_WITHOUT_SEPARATORS)
    value = Fraction(digits + (decimals or "")) / int(denominator or 1)
    value = value * Fraction(10) ** int(exponent or 0) + int(whole or 0)
    return -value if "-" in (sign, inner) else value


def _with_unit(value: Fraction, rest: str, currency: str) -> Quantity | None:
    value, rest = _scaled_by_letter(value, rest, currency)
    rest = _UNIT_POWER.sub(lambda power: (power[1] or power[2]).translate(_RAISE), rest)
    rest = re.sub(r"\A/(?=[A-Za-z]{3})", " per ", rest)  # $42/day
    is_glued = rest[:1] not in ("", " ", "\t", "\u2009", "\u202f")
    rest = rest.strip()
    sign = rest[:1] if rest[:1] in tuple("%$€£¥₹₩¢°") else ""
    if sign:
        glued_letter = sign == "°" and rest[1:2] in ("C", "F") and not rest[2:3].isalpha()
        sign += rest[1] if glued_letter else ""
        rest, is_glued = rest[len(sign) :].strip(), False
    words = rest.split()
    if is_glued and words and not sizes_of(re.split("[/²³]", words[0])[0]):
        return None
    while sign != "%" and words and (scale := _SCALES.get(_bare(words[0]))):
        value, words = value * scale, words[1:]
    if words[:2] == ["per", "cent"]:
        words[:2] = ["percent"]
    percent = sign == "%" or (bool(words) and _bare(words[0]) in _PERCENT)
    if not _are_units(words):
        return None
    unit = " ".join(filter(None, ("%" if percent else currency, sign.strip("%"), *words[:6])))
    return Quantity(value, percent, "%" if percent else unit)


def _scaled_by_letter(value: Fraction, rest: str, currency: str) -> tuple[Fraction, str]:
    """Apply what is glued to a number: `5k`, `24.3B`, `5bn`; of money also `$5 M` and `$5m`."""
    letters = re.match(r"( ?)([A-Za-z]{1,3})(?![\w/²³])\.?", rest)
    if letters is None:
        return value, rest
    scales = _MONEY if currency else _LETTERS
    scale = scales.get(letters[2]) or (0 if letters[1] else _SCALES.get(letters[2].lower(), 0))
    if not scale or (letters[1] and not currency and letters[2] not in "MB"):
        return value, rest
    return value * scale, rest[letters.end() :]


def _bare(word: str) -> str:
    return word.lower().rstrip(".").removesuffix("s")


def _are_units(words: list[str]) -> bool:
    if len(words) > _MAX_UNIT_WORDS or not all(map(_is_unit, words)):
        return False
    return not _SCALING.search(" ".join(words))


def _is_unit(word: str) -> bool:
    """Whether a word is a unit; a single letter is a variable (`5 x`) or an abbreviation."""
    bare = word.rstrip(".⁻¹²³⁴")
    if not _WORD.fullmatch(word) or word.lower() in _NOT_UNITS or bare.lower() in _NOT_UNITS:
        return False
    return len(bare) > 1 or bare == "a" or bool(sizes_of(bare))
