r"""Comparing mathematics, in the worker processes of `MathAnswer`: it imports SymPy.

Texts are read by the parser of math-verify. Its `parse` and `verify` aren't used: they search a
text for an answer, take the last side of any equation, and round, so that 1/2^{98} is 1/2^{99}.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import sympy
from latex2sympy2_extended import latex2sympy2 as latex
from sympy.core.relational import Relational

_NOTATION = latex.NormalizationConfig(malformed_operators=True, boxed="none")
_CONVERSION = latex.ConversionConfig(lowercase_symbols=False)

_SYMBOLS = str.maketrans({
    "−": "-", "–": "-", "×": r"\times ", "·": r"\cdot ", "÷": r"\div ", "π": r"\pi ",
    "∞": r"\infty ", "√": r"\sqrt ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "±": r"\pm ",
    "∪": r"\cup ", "∈": r"\in ", "∅": r"\emptyset ", "°": r"^\circ ", "ℝ": r"\mathbb{R}",
    "²": "^{2}", "³": "^{3}", "₀": "_{0}", "₁": "_{1}", "₂": "_{2}", "₃": "_{3}",
    "≈": r"\approx ", "θ": r"\theta ", "\N{NO-BREAK SPACE}": " ",
})  # fmt: skip
_TEXT = r"\\(?:text(?:bf|it|rm|normal)?|math(?:rm|bf)|mbox)\s*\{([^{}]*)\}"
_NOTHING = r"(?i:(?:there (?:is|are) )?no (?:real )?solutions?|empty set|\\varnothing)"
_DEGREES = r"\\(sin|cos|tan|cot|sec|csc) ?[({]?([\d.]+)[)}]? ?\^ ?\{? ?\\circ ?\}?[)}]?"
_REWRITES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"^\\text\w* ?\{ ?\(?([A-H])\)?[.:]? ?\}[ ~\\]*", r"(\1) "),  # of AMC
        (r",? *\(?(?:or )?(?:\\text ?\{ ?\(?)?(?:about|approximately|roughly)\b.*$", ""),
        (r"(?<=[\w)])\*\*(?=[\w(])", "^"),
        (r"(?<!\\)(?:\\[()\[\]]|\\! ?|\$)|\*\*|\\displaystyle\b|\\(?:left|right)\b\.?", ""),
        (r"(?<=\d)(?:\\[,;: ]|\{,\})(?=\d{3}(?!\d))", ""),  # 1\,000
        (r"(?<!\\)\\[,;: ]|~|\\q?quad\b|\s+", " "),
        (r"^ +|[ .,;]+$", ""),
        (r"\\(?:text)?color ?\{\w+\}(?:\{([^{}]*)\})?", r"\1"),
        (r" ?\\(?:text|mbox) ?\{ ?(and|or) ?\} ?", r" \\text{ \1 } "),
        (_DEGREES, r"\\\1(\\frac{\2\\pi}{180})"),
        (r"^(.*\{[^{},]*)\\pm([^,]*)$", r"\1+\2, \1-\2"),
        (r"^(\w+) ?\\approx", r"\1 ="),
        (r"(?<=\S) *\\approx.*$|^\\approx", ""),
        (rf"^(?:{_TEXT}|([A-Za-z ]+))$", r"\1\2"),
        (rf"^{_NOTHING}$", r"\\emptyset"),
        (r"^all real numbers$", r"(-\\infty,\\infty)"),
        (r"\binfinity\b", r"\\infty"),
        (r"\\langle\b", "("),
        (r"\\rangle\b", ")"),
        (r"\\mathbb ?\{?R\}?", r"(-\\infty,\\infty)"),
        (r"\\([lg]e)q(?:slant)?\b", r"\\\1"),
        (r"\\?sqrt *\(([^()]*)\)", r"\\sqrt{\1}"),
        (r"_(\w) (?=\d)", r"_{\1} "),
        (r"(?<![\d.])(\d+) (\d+)/(\d+)(?![\d.])", r"\1\\frac{\2}{\3}"),
        (r"(?<![\d.}^_])(\d+) ?(\\[dt]?frac ?(?:\{\d+\}|\d) ?(?:\{\d+\}|\d))", r"(\1+\2)"),
        # The parser adds a number to the one before it, as in 1\frac{1}{2}: 2(3) would be 5.
        (r"((?<![_^\d.])\d+|\)) ?(?=\(|\\(?:[dt]?(?:binom|frac)|max|min))", r"\1\\cdot "),
        (r"\) ?(?=\d)", r")\\cdot "),
        (r"(?<=\d)[eE]([+-]?\d+)(?![\w.])", r"\\times 10^{\1}"),
        (r"(?<=[A-Za-z}])'", r" \\text{prime} "),
        (r"^\\\{ ?[a-z] ?(?:\\in ?\(-\\infty,\\infty\) ?)?(?:\\mid|\||:)(.*)\\\}$", r"\1"),
    )
]
_LETTER = re.compile(
    r"(?:(?i:option|choice) )?\(?([A-H])(?:[).:]*|[).:]++ ?+(?!or\b|and\b)[^()]+)|([a-h])"
)
_WORDS = re.compile(
    r"(?!abc$|pqr$|xyz$)(?=.*[A-Za-z]{3}|(?i:no)$)[A-Za-z][A-Za-z .'-]*|\d+:\d\d\b.*|.*:.*:.*"
)
_UNIT = re.compile(
    rf"(.*[\w)}}\]]) *(?:{_TEXT}|(?<=[\di)}}] )((?:[cmk]m|ft|in|kg|lb|[a-z]{{4}})[a-z. ]*)"
    r"|\^ ?\{? ?\\circ ?\}?|\\?%)( ?\^.*|[CF]?)"
)
_UNCLEAR = re.compile(
    r"\b(?:or|less|more|than|if|when|not|mod|least|most|\w*illion|thousand|prime)\b"
)
_GROUPED = re.compile(r"(?<![\d,.])\d{1,3}(?:,\d{3})+(?![\d,])")
_BASED = re.compile(r"\(?(\d[0-9A-Z]*)\)?_\{?(\d+)\}?")
_REPEATING = re.compile(r"(\d*)\.(\d*)\\overline ?\{(\d+)\}")
_CONDITIONS = (Relational, sympy.And)
_UNORDERED = (sympy.FiniteSet, sympy.Union, sympy.And)
_AMBIGUOUS = re.compile(
    r"^\{\d+\}|(?<![a-z_^}\d])\d+ ?\\?\{|\d +[\d.]|\d ?_|\d\\text|\\text\{prime\} \d"
)


def load(_: bytes) -> SimpleNamespace:
    """Return what answers the jobs of a worker: two texts as JSON."""

    def warm_up() -> None:  # creates the tables of the parser
        compare(r"(\frac{x}{2}, \sqrt{3})", r"(\frac{x+0}{2}, \sqrt{3})")

    def answer(job: bytes) -> bytes:
        try:
            return json.dumps(compare(*json.loads(job))).encode()
        except MemoryError:
            raise
        except Exception:  # of any kind: the parser and SymPy are large
            return b"null"

    return SimpleNamespace(description=b"", answer=answer, warm_up=warm_up)


def compare(truth: str, answer: str) -> bool:
    """Whether two texts state the same mathematics, in the same form.

    Raises:
        ValueError: One isn't understood; SymPy raises other exceptions, too.
    """
    (wanted, unit), (stated, other_unit) = _read(truth), _read(answer)
    return (not unit or not other_unit or unit == other_unit) and _same(wanted, stated)


def _read(text: str) -> tuple[Any, str]:
    """The value of a text, which is a string for words, and its unit."""
    text, unit = text.translate(_SYMBOLS), ""
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
        unit = re.sub(r"[ .{}s]", "", "".join(words).lower())
        unit = unit or ("%" if with_unit[0].endswith("%") else "degree")
    if _WORDS.fullmatch(text):
        return re.sub(r"[\s{}]*:[\s{}]*", ":", " ".join(text.lower().split())), unit
    return _value(text), unit


def _value(text: str) -> Any:
    based = _BASED.fullmatch(text)
    if based is not None:
        return sympy.Integer(int(based[1], int(based[2])))
    if not text.startswith(("(", "[", r"\{")):
        text = _GROUPED.sub(lambda number: number[0].replace(",", ""), text)
    text = _REPEATING.sub(_fraction, text)
    if _AMBIGUOUS.search(text):
        raise ValueError(text)
    value = latex.latex2sympy(
        latex.normalize_latex(text, _NOTATION),
        is_real=True,
        normalization_config=None,
        conversion_config=_CONVERSION,
    )
    parts = getattr(value, "_unsorted_args", [value])
    if isinstance(value, sympy.And) and all(isinstance(part, sympy.Eq) for part in parts):
        return sympy.Eq(parts[0].lhs, parts[-1].rhs, evaluate=False)  # a = b = c
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
    if isinstance(truth, sympy.Eq) != isinstance(answer, sympy.Eq):
        sides = _stated(truth), _stated(answer)
        return None not in sides and _same(*sides)
    conditions = [value for value in (truth, answer) if isinstance(value, _CONDITIONS)]
    if len({frozenset(condition.free_symbols) for condition in conditions}) > 1:
        return False
    truth, answer = _solution(truth), _solution(answer)
    if isinstance(truth, Relational) and isinstance(answer, Relational):
        return _same_relation(truth, answer)
    if isinstance(truth, _UNORDERED) and isinstance(answer, _UNORDERED):
        return _match(_parts(truth), _parts(answer))
    items = _items(truth), _items(answer)
    if None not in items:
        return len(items[0]) == len(items[1]) and all(map(_same, *items))
    return _equal(truth, answer)


def _stated(value: Any) -> Any:
    """What `x = 5` and `2 + 3 = 5` state; None if an equation isn't solved."""
    if not isinstance(value, sympy.Eq):
        return value
    # Also m/n and f^{-1}(x), which contain the exponent -1.
    exponents = {sympy.S.NegativeOne} if len(value.lhs.free_symbols) > 1 else set()
    is_name = value.lhs.atoms(sympy.Number) <= exponents or getattr(value.lhs, "is_number", False)
    return value.rhs if is_name else None


def _solution(value: Any) -> Any:
    """The set of an inequality that is solved for its only variable."""
    if not isinstance(value, _CONDITIONS) or isinstance(value, sympy.Eq):
        return value
    is_solved = all(any(side.is_Symbol for side in part.args) for part in _parts(value))
    return value.as_set() if is_solved and len(value.free_symbols) == 1 else value


def _parts(value: Any) -> Any:
    """The members of a set or list, as they were written; the relations of a chain."""
    whole = [value] if isinstance(value, Relational) else value.args
    return getattr(value, "_unsorted_args", whole)


def _items(value: Any) -> Any:
    """What is in order in a tuple, an interval, or a list without brackets; else None."""
    if isinstance(value, sympy.Interval) and value.left_open and value.right_open:
        return value.args[:2]
    in_order = sympy.Tuple | sympy.Interval | latex.FiniteSet
    return _parts(value) if isinstance(value, in_order) else None


def _match(truth: Iterable[Any], answer: Iterable[Any]) -> bool:
    """Whether the members are the same in any order."""
    left = list(answer)
    for member in truth:
        index = next((n for n, other in enumerate(left) if _same(member, other)), None)
        if index is None:
            return False
        del left[index]
    return not left


def _same_relation(truth: Any, answer: Any) -> bool:
    """Whether two equations or inequalities differ by a factor alone."""
    if truth.func is not answer.func:
        answer = answer.reversed
    is_symmetric = isinstance(truth, sympy.Eq | sympy.Ne)
    for sides in (answer.args, answer.args[::-1]) if is_symmetric else (answer.args,):
        if truth.func is answer.func and all(map(_same, truth.args, sides)):
            return True
    if truth.func is not answer.func or (truth.lhs.is_Symbol and not truth.rhs.free_symbols):
        return False  # 2x = 10 isn't solved as x = 5 is
    ratio = sympy.simplify(_exact(truth.lhs - truth.rhs) / _exact(answer.lhs - answer.rhs))
    return bool(ratio.is_number and ratio.is_finite and (ratio > 0 or (is_symmetric and ratio)))


def _equal(truth: Any, answer: Any) -> bool:
    """Whether two expressions or matrices are equal, whatever the values of their symbols."""
    if getattr(truth, "shape", ()) != getattr(answer, "shape", ()):
        return False
    if isinstance(truth, sympy.MatrixBase):
        return all(map(_equal, truth.flat(), answer.flat()))
    if not isinstance(truth, sympy.Expr) or not isinstance(answer, sympy.Expr):
        return bool(truth == answer)  # such as \emptyset
    truth, answer = _exact(truth), _exact(answer)
    difference = truth - answer if truth != answer else sympy.S.Zero  # also of infinities
    if truth.has(sympy.nan, sympy.zoo) or difference.has(sympy.nan, sympy.zoo):
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
