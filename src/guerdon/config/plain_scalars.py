"""What an unquoted word of YAML is: the core schema of YAML 1.2, and what it refuses here."""

from __future__ import annotations

import math
import re
from typing import Any

__all__ = ["plain_value", "reads_as_text"]

_WORDS: dict[str, Any] = dict.fromkeys(("", "~", "null", "Null", "NULL"))
_WORDS |= dict.fromkeys(("true", "True", "TRUE"), True)
_WORDS |= dict.fromkeys(("false", "False", "FALSE"), False)

_INT = re.compile(r"[-+]?[0-9]+")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")

MAX_DIGITS = 1000


def plain_value(text: str) -> tuple[Any, str | None]:
    """What an unquoted word stands for, and what is wrong with it, if anything.

    Example:
        >>> plain_value("1e-3"), plain_value("no")
        ((0.001, None), ('no', None))
        >>> plain_value("012")[1]
        "'012' is octal to some readers; write 12, or put it in quotes"
    """
    if text in _WORDS:
        return _WORDS[text], None
    if _LEADING_ZERO.fullmatch(text):
        without = re.sub(r"^([-+]?)0+(?=[0-9])", r"\1", text)
        said = f"{text!r:.60} is octal to some readers; write {without:.60}, or put it in quotes"
        return text, said
    if _NOT_FINITE.fullmatch(text):
        return text, f"{text} is no finite number; for text, put it in quotes"
    return _number(text)


def reads_as_text(text: str) -> bool:
    """Whether a word can go without quotes and be text.

    Example:
        >>> reads_as_text("no"), reads_as_text("1e-3")
        (True, False)
    """
    value, wrong = plain_value(text)
    return wrong is None and isinstance(value, str)


def _number(text: str) -> tuple[Any, str | None]:
    is_int, is_based = _INT.fullmatch(text), _BASED.fullmatch(text)
    if not is_int and not is_based and not _FLOAT.fullmatch(text):
        return text, None
    if len(text) > MAX_DIGITS:
        return text, f"a number takes at most {MAX_DIGITS} digits; for text, put it in quotes"
    if is_based:
        return int(text, 0), None
    if is_int:
        return int(text), None
    value = float(text)
    if not math.isfinite(value):
        return text, f"{text:.60} is too large for a number; for text, put it in quotes"
    return value, None
