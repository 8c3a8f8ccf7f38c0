r"""Finding where a worked solution states its answer.

The rule:

1. the last `\boxed{…}` or the last answer line, whichever stands later. An answer line begins,
   after spaces and Markdown, with `A:`, `Answer:`, `Final answer:`, `The answer is` or `####`;
   a sentence within a line may also begin with "The answer is";
2. where there is neither, the whole text, if it is nothing but a number.

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
_LABEL = re.compile(
    rf"A\s?[*_]{{0,3}}[:：]|(?i:{_ANSWER}\s{{0,3}}[*_]{{0,3}}\s?(?:[:：]|is\b\s?[:：]?))"
)
_SENTENCE = re.compile(
    rf"(?i)(?:[.!?:;]\s|\b(?:so|thus|hence|therefore),?\s)\s{{0,3}}[*_]{{0,3}}{_ANSWER}\s{{1,3}}is\b:?"
)
_SENTENCE_END = re.compile(r"[.!?](?=\s|[*_]*$)")
_EMPTY = " \t\r*_`"
_BOX = re.compile(r"\\f?boxed\s{0,3}\{|\\fbox\s{0,3}\{")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)


def extract_answer(text: str) -> str | None:
    r"""Return what a worked solution states as its answer, as it is written there.

    Args:
        text: A solution of any length; the work is linear in it.

    Returns:
        The stated answer, stripped, which need not be a number; None where nothing is stated.

    Example:
        >>> extract_answer("16 - 3 - 4 = 9 eggs\n9 * 2 = $18\nA: 18")
        '18'
        >>> extract_answer("so there are 16 - 3 - 4 = 9") is None
        True
    """
    box_start, boxed = _last_box(text)
    line_start, stated = _last_answer_line(text, box_start)
    if line_start > box_start:
        return stated
    if box_start >= 0:
        return boxed
    whole = text.strip()
    return whole if read_quantity(whole) is not None else None


def _last_box(text: str) -> tuple[int, str | None]:
    r"""Where the last `\boxed{` begins (-1: nowhere), and what it holds (None: never closed)."""
    if "\\boxed" not in text and "\\fbox" not in text:
        return -1, None
    boxes = deque(_BOX.finditer(text), maxlen=1)
    if not boxes:
        return -1, None
    opened = boxes[0]
    depth, place = 1, opened.end()
    for brace in _BRACE.finditer(text, place):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return opened.start(), text[place : brace.start()].strip()
    return opened.start(), None


def _last_answer_line(text: str, after: int) -> tuple[int, str | None]:
    """Where the last answer label behind a place begins (-1: nowhere), and what follows it."""
    if "A" not in text and "####" not in text and "ans" not in text.lower():
        return -1, None
    end, below = len(text), ""
    while end > after:
        start = text.rfind("\n", 0, end) + 1
        line = text[start:end]
        offset, stated = _label_in(line) if line else (0, None)
        if stated is not None:
            # A label alone on its line speaks of the next line that holds anything.
            alone = not stated.strip(_EMPTY)
            return start + offset, (below if alone else stated.strip()) or None
        below = line.strip() or below
        end = start - 1
    return -1, None


def _label_in(line: str) -> tuple[int, str | None]:
    """Where the label of an answer stands in a line, and what follows it (None: no label)."""
    body = line.lstrip(_DECORATION)
    offset = len(line) - len(body)
    label = _LABEL.match(body)
    if label is not None:
        stated = body[label.end() :]
        is_sentence = label[0].rstrip(":： ").lower().endswith("is")
        return offset, _first_sentence(stated) if is_sentence else stated
    if "####" in line and line.lstrip(" \t>*_").startswith("####"):
        # A level-4 heading looks the same; only a number behind the signs makes it an answer.
        stated = line.lstrip(" \t>*_#")
        return offset, stated if read_quantity(stated) is not None else None
    if "nswer" in line:
        for sentence in reversed(list(_SENTENCE.finditer(line))):
            return sentence.start(), _first_sentence(line[sentence.end() :])
    return 0, None


def _first_sentence(text: str) -> str:
    end = _SENTENCE_END.search(text)
    return text[: end.start()] if end else text
