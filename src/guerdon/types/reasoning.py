"""Reasoning in a model's text, which is never its answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

__all__ = ["REASONING_TAGS", "split_reasoning"]

REASONING_TAGS: tuple[str, ...] = (
    "think",
    "thinking",
    "thought",
    "reasoning",
    "seed:think",
    "[THINK]…[/THINK]",
    "◁think▷…◁/think▷",
    "<|START_THINKING|>…<|END_THINKING|>",
    "<|channel|>analysis<|message|>…<|channel|>final<|message|>",
)
"""The tags around reasoning that language models write, by default."""


def split_reasoning(text: str, tags: Sequence[str] = REASONING_TAGS) -> tuple[str, str]:
    r"""Return the reasoning of a text, and the rest: the answer.

    Reasoning is what stands between tags; after an opening tag that is never closed, as in an
    answer that was cut off; and before a closing tag without an opening one, since many chat
    templates put the opening tag into the prompt. A tag in backquotes is a mention of it.

    Args:
        text: What a model wrote, of any length; the time is linear in it.
        tags: Names (``think`` for ``<think>…</think>``), or an opening and a closing mark with
            ``…`` between them. Case doesn't matter. Without tags, there is no reasoning.

    Returns:
        The reasoning, and the text without it. A text without reasoning is returned unchanged;
        otherwise both are stripped, and several pieces are joined by a line break.

    Example:
        >>> from guerdon.types import split_reasoning
        >>> split_reasoning("<think>3 times 6</think>\n\nA: 18")
        ('3 times 6', 'A: 18')
        >>> split_reasoning("3 times 6</think>A: 18")[1], split_reasoning("<think>3 times")[1]
        ('A: 18', '')
    """
    pattern, closings = _marks(tuple(tags))
    if pattern is None or pattern.search(text) is None:
        return "", text
    reasoning: list[str] = []
    answer: list[str] = []
    closing, start = "", 0
    for mark in pattern.finditer(text):
        if text.endswith("`", start, mark.start()):
            continue
        opened = closings.get(mark[0].lower())
        if closing:
            if mark[0].lower() != closing:
                continue  # a tag within reasoning
            reasoning.append(text[start : mark.start()])
            closing = ""
        elif opened is not None:
            answer.append(text[start : mark.start()])
            closing = opened
        else:  # a lone closing tag: all before it is reasoning
            reasoning = [*reasoning, *answer, text[start : mark.start()]]
            answer = []
        start = mark.end()
    (reasoning if closing else answer).append(text[start:])
    return _joined(reasoning), _joined(answer)


def _joined(pieces: list[str]) -> str:
    return "\n".join(filter(None, map(str.strip, pieces)))


@lru_cache(maxsize=64)
def _marks(tags: tuple[str, ...]) -> tuple[re.Pattern[str] | None, dict[str, str]]:
    """The pattern of all marks, and the closing mark of each opening one, in lower case."""
    closings: dict[str, str] = {}
    for tag in tags:
        opening, separator, closing = tag.lower().partition("…")
        if not separator:
            opening, closing = f"<{opening}>", f"</{opening}>"
        closings[opening] = closing
    if not closings:
        return None, closings
    marks = {*closings, *closings.values()}
    # A literal first character lets the search skip to it.
    alternatives = "|".join(
        f"{re.escape(mark[0])}(?i:{re.escape(mark[1:])})"
        for mark in sorted(marks, key=len, reverse=True)
    )
    return re.compile(alternatives), closings
