r"""Finding the answer that a worked solution states.

The rule:

1. the last box (`\boxed{…}`, `\boxed 18`, `<answer>…</answer>`) or the last answer line, whichever
   is later. An answer line begins, after spaces and Markdown, with `A:`, `Answer:`,
   `Final answer:`, `The answer is` or `####`; a sentence within a line may also begin with
   "The answer is". A label alone on its line refers to the next line that isn't empty;
2. if there is neither, the whole text, if it is only a number.

`####`, `Answer =` and a label alone without a colon may mean something else (a heading, a line of
code), so they count only before a number. If the answer has a label of its own (`Final answer: The
answer is 18.`), that one is read.

The last number of a text is never its answer: a solution that was cut off before its answer line
has none, and a box that was never closed was cut off too.
"""

from __future__ import annotations

import re
from collections import deque

from guerdon.rubrics.checks.quantity import read_quantity

__all__ = ["extract_answer"]

_DECORATION = " \t\r>*_`#-•"
_OPENING = r"(?:(?:so|thus|hence|therefore|finally)\b,?\s{0,3})?(?:(?:the|my|our)\s{1,3})?"
_ANSWER = _OPENING + r"(?:(?:final|correct)\s{1,3})?ans(?:wer)?\.?"
_IS = r"is\b(?:,?\s{1,3}(?:therefore|thus|hence|then|so|simply|just)\b,?)?\s?[:：]?"
_LABEL = re.compile(
    rf"A\s?[*_]{{0,3}}[:：]"
    rf"|(?i:{_ANSWER}\s{{0,3}}[*_]{{0,3}}\s?(?:[:：]|(?P<weak>=)|(?P<says>{_IS})))"
)
_LABEL_ALONE = re.compile(rf"(?i){_ANSWER}[\s*_]{{0,8}}")
_SENTENCE = re.compile(
    rf"(?i)(?:[.!?:;]\s|\b(?:so|thus|hence|therefore),?\s)\s{{0,3}}[*_]{{0,3}}{_ANSWER}\s{{1,3}}{_IS}"
)
_SENTENCE_END = re.compile(r"[.!?](?=\s|[*_]*$)")
_EMPTY = " \t\r*_`"
_BOX = re.compile(
    r"\\f?boxed\s{0,3}(?:\{|(?P<bare>(?=[-+.]?[0-9])))|\\fbox\s{0,3}\{|(?P<tag><[Aa]nswer>)"
)
_BARE_END = re.compile(r"[$\\\n]|[.!?](?=\s|$)")
_TAG_END = re.compile(r"</[Aa]nswer>")
_MAX_INNER_LABELS = 3
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)


def extract_answer(text: str) -> str | None:
    r"""Return the answer that a worked solution states, as it is written there.

    Args:
        text: A solution of any length; the time is linear in it.

    Returns:
        The stated answer, stripped, which need not be a number; None if there is none.

    Example:
        >>> extract_answer("16 - 3 - 4 = 9 eggs\n9 * 2 = $18\nA: 18")
        '18'
        >>> extract_answer("so there are 16 - 3 - 4 = 9") is None
        True
    """
    box_start, boxed = _last_box(text)
    line_start, stated = _last_answer_line(text, box_start)
    if line_start <= box_start:
        stated = boxed
    if line_start >= 0 or box_start >= 0:
        return stated if stated is None or stated.isdigit() else _innermost(stated)
    whole = text.strip()
    return whole if read_quantity(whole) is not None else None


def _last_box(text: str) -> tuple[int, str | None]:
    """The start of the last box (-1: none), and its content (None: never closed)."""
    if "\\boxed" not in text and "\\fbox" not in text and "nswer>" not in text:
        return -1, None
    boxes = deque(_BOX.finditer(text), maxlen=1)
    if not boxes:
        return -1, None
    opened = boxes[0]
    depth, place = 1, opened.end()
    if opened["bare"] is not None:
        end = _BARE_END.search(text, place)
        return opened.start(), text[place : end.start() if end else None].strip()
    if opened["tag"]:
        end = _TAG_END.search(text, place)
        return opened.start(), text[place : end.start()].strip() if end else None
    for brace in _BRACE.finditer(text, place):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return opened.start(), text[place : brace.start()].strip()
    return opened.start(), None


def _last_answer_line(text: str, after: int) -> tuple[int, str | None]:
    """The start of the last answer label after a position (-1: none), and what follows it."""
    if "A" not in text and "####" not in text and "ans" not in text.lower():
        return -1, None
    end, below = len(text), ""
    while end > after:
        start = text.rfind("\n", 0, end) + 1
        line = text[start:end]
        offset, stated = _label_in(line, below) if line else (0, None)
        if stated is not None:
            stated = stated.strip()
            return start + offset, (_exclaimed(stated) if "!" in stated else stated) or None
        below = line.strip() or below
        end = start - 1
    return -1, None


def _label_in(line: str, below: str = "") -> tuple[int, str | None]:
    """The position of an answer label in a line, and what follows it (None: no label)."""
    body = line.lstrip(_DECORATION)
    offset = len(line) - len(body)
    label = _LABEL.match(body)
    if label is not None:
        stated = body[label.end() :]
        kind = label.lastgroup
        if kind == "says":
            stated = _first_sentence(stated)
        stated = _or_below(stated, below)
        return offset, _if_number(stated) if kind == "weak" else stated
    has_word = "nswer" in line or "NSWER" in line
    if has_word and _LABEL_ALONE.fullmatch(body):
        return offset, _if_number(below)
    if line.lstrip(" \t>*_").startswith("####"):
        return offset, _if_number(line.lstrip(" \t>*_#"))
    if has_word:
        for sentence in reversed(list(_SENTENCE.finditer(line))):
            stated = _first_sentence(line[sentence.end() :])
            return sentence.start(), _or_below(stated, below)
    return 0, None


def _or_below(stated: str, below: str) -> str:
    return stated if stated.strip(_EMPTY) else below


def _if_number(stated: str) -> str | None:
    return stated if read_quantity(stated) is not None else None


def _innermost(stated: str | None) -> str | None:
    """What follows the last label within a stated answer: "The answer is 18" states 18."""
    for _ in range(_MAX_INNER_LABELS):
        if not stated or not (":" in stated or "nswer" in stated or "NSWER" in stated):
            break
        inner = _label_in(stated)[1]
        if inner is None:
            break
        stated = _exclaimed(inner.strip()) or None
    return stated


def _exclaimed(stated: str) -> str:
    """Remove closing exclamation marks of a line; in a box they would be a factorial."""
    bare = stated.rstrip("!*_` ")
    return bare if "!" in stated[len(bare) :] else stated


def _first_sentence(text: str) -> str:
    end = _SENTENCE_END.search(text)
    return text[: end.start()] if end else text
