r"""Comparing mathematics, in the worker processes of `MathAnswer`: it imports SymPy.

Texts are read by the parser of math-verify. Its `parse` and `verify` aren't used: they search a
text for an answer, take the last side of any equation, and round, so that 1/2^{98} is 1/2^{99}.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import sympy
from latex2sympy2_extended import latex2sympy2 as latex
from sympy.core.relational import Relational

_NOTATION = latex.NormalizationConfig(malformed_operators=True, boxed="none")
_CONVERSION = latex.ConversionConfig(lowercase_symbols=False)

_SYMBOLS = {
    "−": "-", "–": "-", "×": r"\times ", "·": r"\cdot ", "÷": r"\div ", "π": r"\pi ",
    "∞": r"\infty ", "√": r"\sqrt ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "±": r"\pm ",
    "∪": r"\cup ", "∈": r"\in ", "∅": r"\emptyset ", "°": r"^\circ ", "ℝ": r"\mathbb{R}",
    "²": "^{2}", "³": "^{3}", "≈": r"\approx ", "θ": r"\theta ", "\N{NO-BREAK SPACE}": " ",
}  # fmt: skip
_TEXT = r"\\(?:text(?:bf|it|rm|normal)?|math(?:rm|bf)|mbox)\s*\{([^{}]*)\}"
_REWRITES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(?<!\\)(?:\\[()\[\]!]|\$)|\*\*|\\displaystyle\b|\\(?:left|right)\b\.?", ""),
        (r"(?<=\d)(?:\\[,;: ]|\{,\})(?=\d{3}(?!\d))", ""),  # 1\,000
        (r"(?<!\\)\\[,;: ]|~|\\q?quad\b|\s+", " "),
        (r"^ +|[ .,;]+$", ""),
        (r"^(\w+) ?\\approx", r"\1 ="),
        (r"(?<=\S) *\\approx.*$|^\\approx", ""),
        (r"_(\w) (?=\d)", r"_{\1} "),
        (rf"^(?:{_TEXT}|([A-Za-z ]+))$", r"\1\2"),
        (r"^(?i:(?:there (?:is|are) )?no (?:real )?solutions?|empty set|\\varnothing)$", r"\\emptyset"),
        (r"\\langle\b", "("),
        (r"\\rangle\b", ")"),
        (r"\\mathbb ?\{?R\}?", r"(-\\infty,\\infty)"),
        (r"\\([lg]e)q(?:slant)?\b", r"\\\1"),
        (r"\\?sqrt *\(([^()]*)\)", r"\\sqrt{\1}"),
        (r"(?<![\d.])(\d+) (\d+)/(\d+)(?![\d.])", r"\1\\frac{\2}{\3}"),
        (r"(?<![\d.}^_])(\d+) ?(\\[dt]?frac ?(?:\{\d+\}|\d) ?(?:\{\d+\}|\d))", r"(\1+\2)"),
        # The parser adds a number to the one before it, as in 1\frac{1}{2}: 2(3) would be 5.
        (r"((?<![_^\d.])\d+|\)) ?(?=\(|\\(?:[dt]?(?:binom|frac)|max|min))", r"\1\\cdot "),
        (r"\) ?(?=\d)", r")\\cdot "),
        (r"(?<=\d)[eE]([+-]?\d+)(?![\w.])", r"\\times 10^{\1}"),
        (r"(?<=[A-Za-z}])'", r" \\text{prime} "),
        (r"^\\\{ ?[a-z] ?(?:\\in ?\(-\\infty,\\infty\) ?)?(?:\\mid|\||:)(.*)\\\}$", r"\1"),
    )
]  # fmt: skip
_LETTER = re.compile(r"(?:(?i:option|choice) )?\(?([A-H])(?:[).:]*|[).:]+ ?[^()]+)|([a-h])")
_WORDS = re.compile(r"(?=.*[A-Za-z]{2})[A-Za-z][A-Za-z .'-]*|\d+:\d\d\b.*|.*:.*:.*")
_UNIT = re.compile(
    rf"(.*[\w)}}\]]) *(?:{_TEXT}|(?<=[\d)}}] )((?:[cmk]m|ft|in|kg|lb|[a-z]{{4}})[a-z. ]*)|\^ ?\{{? ?\\circ ?\}}?|\\?%)"
    r"( ?\^.*|[CF]?)"
)
_UNCLEAR = re.compile(r"\b(?:or|less|more|than|if|when|not|mod|least|most|\w*illion|thousand)\b")
_GROUPED = re.compile(r"(?<![\d,.])\d{1,3}(?:,\d{3})+(?![\d,])")
_BASED = re.compile(r"\(?(\d[0-9A-Z]*)\)?_\{?(\d+)\}?")
_REPEATING = re.compile(r"(\d*)\.(\d*)\\overline ?\{(\d+)\}")
_AMBIGUOUS = re.compile(r"\d +[\d.]|\d ?_|\d\\text|\\text\{prime\} \d")
_CONDITIONS = (Relational, sympy.And, sympy.Or)


def compare(truth: str, answer: str) -> bool:
    """Whether two texts state the same mathematics, in the same form.

    Raises:
        ValueError: One isn't understood; SymPy raises other exceptions, too.
    """
    wanted, unit = _read(truth)
    # A list without the brackets of the tuple that is wanted.
    is_bare = "," in answer and not re.search(r"[(\[{]", answer) and not _GROUPED.search(answer)
    if is_bare and isinstance(wanted, sympy.Tuple | sympy.Interval):
        answer = f"({answer})"
    stated, other_unit = _read(answer)
    return (not unit or not other_unit or unit == other_unit) and _same(wanted, stated)


def _read(text: str) -> tuple[Any, str]:
    """The value of a text, which is a string for words, and its unit."""
    text, unit = text.translate(str.maketrans(_SYMBOLS)), ""
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    text = text.strip()
    letter = _LETTER.fullmatch(text)
    if letter is not None:
        return (letter[1] or letter[2]).upper(), ""
    with_unit = None if _WORDS.fullmatch(text) else _UNIT.fullmatch(text)
    if with_unit is not None:
        if _UNCLEAR.search(with_unit[0]):
            raise ValueError(text)
        text, *words = with_unit.groups("")
        unit = re.sub(r"[ .{}s]", "", "".join(words).lower()) or with_unit[0][-1]
    if _WORDS.fullmatch(text):
        return " ".join(text.lower().split()), unit
    return _value(text), unit


def _value(text: str) -> Any:
    based = _BASED.fullmatch(text)
    if based is not None:
        return sympy.Integer(int(based[1], int(based[2])))
    if not text.startswith(("(", "[")):
        text = _GROUPED.sub(lambda number: number[0].replace(",", ""), text)
    text = _REPEATING.sub(_fraction, text)
    if _AMBIGUOUS.search(text):
        raise ValueError(text)
    value = latex.latex2sympy(
        latex.normalize_latex(text, _NOTATION),
        is_real=True,
        convert_degrees=False,
        normalization_config=None,
        conversion_config=_CONVERSION,
    )
    if isinstance(value, latex.And) and all(isinstance(each, sympy.Eq) for each in value.args):
        sides = value._unsorted_args  # a chain a = b = c
        return sympy.Eq(sides[0].lhs, sides[-1].rhs, evaluate=False)
    if isinstance(value, sympy.FiniteSet) and " or " in text:
        if all(isinstance(each, _CONDITIONS) and not isinstance(each, sympy.Eq) for each in value):
            return sympy.Or(*value)
    if isinstance(value, sympy.FiniteSet) and text.startswith(r"\{"):
        # Each member once, and the only one without its braces.
        return value.args[0] if len(value.args) == 1 else sympy.FiniteSet(*value.args)
    return value


def _fraction(match: re.Match[str]) -> str:
    """A repeating decimal as a fraction."""
    whole, fixed, period = match.groups()
    number = int(whole + fixed + period) - int("0" + whole + fixed)
    return rf"\frac{{{number}}}{{{(10 ** len(period) - 1) * 10 ** len(fixed)}}}"


def _same(truth: Any, answer: Any) -> bool:
    """Whether two values are equal and of one form: (1, 2) is neither {1, 2} nor [1, 2]."""
    if isinstance(truth, str) or isinstance(answer, str):
        return bool(truth == answer)
    if isinstance(truth, sympy.Eq) != isinstance(answer, sympy.Eq):  # x = 5 states 5
        sides = _stated(truth), _stated(answer)
        return None not in sides and _same(*sides)
    if isinstance(truth, sympy.Eq):
        return _same_equation(truth, answer)
    if isinstance(truth, _CONDITIONS) or isinstance(answer, _CONDITIONS):
        return _same_condition(truth, answer)
    if isinstance(truth, sympy.FiniteSet) and isinstance(answer, sympy.FiniteSet):
        return _match(*(getattr(each, "_unsorted_args", each.args) for each in (truth, answer)))
    if isinstance(truth, sympy.Union) and isinstance(answer, sympy.Union):
        return bool(truth == answer) or _match(truth.args, answer.args)
    if isinstance(truth, sympy.MatrixBase) and isinstance(answer, sympy.MatrixBase):
        return truth.shape == answer.shape and all(map(_equal, truth.flat(), answer.flat()))
    for kind in (sympy.Tuple, sympy.Interval):
        if isinstance(truth, kind) and isinstance(answer, kind):
            return len(truth.args) == len(answer.args) and all(map(_same, truth.args, answer.args))
    return bool(truth == answer) or _equal(truth, answer)


def _match(truth: Iterable[Any], answer: Iterable[Any]) -> bool:
    """Whether the members are the same in any order."""
    left = list(answer)
    for member in truth:
        index = next((n for n, other in enumerate(left) if _same(member, other)), None)
        if index is None:
            return False
        del left[index]
    return not left


def _stated(value: Any) -> Any:
    """What an equation states of a name or a calculation; None if it isn't solved."""
    if not isinstance(value, sympy.Eq):
        return value
    is_name = not value.lhs.atoms(sympy.Number) or getattr(value.lhs, "is_number", False)
    return value.rhs if is_name else None


def _same_equation(truth: sympy.Eq, answer: sympy.Eq) -> bool:
    for sides in (answer.args, answer.args[::-1]):
        if all(map(_same, truth.args, sides)):
            return True
    is_solved = truth.lhs.is_Symbol and not truth.rhs.free_symbols  # x = 5, which 2x = 10 isn't
    return not is_solved and _ratio(truth.lhs - truth.rhs, answer.lhs - answer.rhs) != 0


def _ratio(truth: Any, answer: Any) -> Any:
    """The constant factor between two expressions; 0 if there is none."""
    ratio = sympy.simplify(_exact(truth) / _exact(answer))
    return ratio if ratio.is_number and ratio.is_finite else 0


def _same_condition(truth: Any, answer: Any) -> bool:
    """Whether two inequalities, or one and a set, have the same solutions."""
    symbols = [each.free_symbols for each in (truth, answer) if isinstance(each, _CONDITIONS)]
    if symbols[0] != symbols[-1]:
        return False
    if len(symbols[0]) > 1:
        if not isinstance(truth, Relational) or truth.func not in (
            answer.func,
            answer.reversed.func,
        ):
            return False
        sides = [
            getattr(each, "gts", each.lhs) - getattr(each, "lts", each.rhs)
            for each in (truth, answer)
        ]
        return bool(_ratio(*sides) > 0)
    if isinstance(answer, _CONDITIONS) and not any(each.is_Symbol for each in answer.args):
        if any(each.is_Symbol for each in truth.args):
            return False  # 2x > 6 isn't solved
    sets = [each.as_set() if isinstance(each, _CONDITIONS) else each for each in (truth, answer)]
    return _same(*sets)


def _equal(truth: Any, answer: Any) -> bool:
    """Whether two expressions are equal, whatever the values of their symbols."""
    if not isinstance(truth, sympy.Expr) or not isinstance(answer, sympy.Expr):
        return False
    difference = _exact(truth) - _exact(answer)
    if difference.has(sympy.nan, sympy.zoo):
        raise ValueError("it is undefined")
    verdict = difference.equals(0)
    return bool(sympy.simplify(difference) == 0 if verdict is None else verdict)


def _exact(value: Any) -> Any:
    """The value of an expression, in which decimals are fractions and i is imaginary."""
    replaced = {number: sympy.Rational(str(number)) for number in value.atoms(sympy.Float)}
    constants = {"i": sympy.I, "e": sympy.E}
    for symbol in value.free_symbols:
        replaced[symbol] = constants.get(symbol.name, symbol)
    return value.xreplace(replaced).doit()


class Comparison:
    """What a worker answers jobs with: two texts as JSON, to whether they are the same."""

    description = b""

    def answer(self, job: bytes) -> bytes:
        """Return "true" or "false", or "null" if a text isn't understood."""
        try:
            return json.dumps(compare(*json.loads(job))).encode()
        except MemoryError:
            raise
        except Exception:  # of any kind: the parser and SymPy are large
            return b"null"

    def warm_up(self) -> None:
        """Compare once, which creates the tables of the parser."""
        self.answer(json.dumps([r"(\frac{x}{2}, \sqrt{3})", r"(\frac{x+0}{2}, \sqrt{3})"]).encode())


def load(_: bytes) -> Comparison:
    """Return what answers the jobs of a worker."""
    return Comparison()
