"""Reasoning in a model's text, which is never its answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from guerdon._validation import check_list, shown
from guerdon.errors import InvalidArgumentError

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
    "<|begin_of_thought|>…<|end_of_thought|>",
    "<unused94>…<unused95>",
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
    starts, pattern, closings = _marks(tuple(tags))
    for first, search in starts:
        if first in text and search(text) is not None:
            break
    else:
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
            reasoning += [*answer, text[start : mark.start()]]
            answer.clear()
        start = mark.end()
    (reasoning if closing else answer).append(text[start:])
    return _joined(reasoning), _joined(answer)


def _joined(pieces: list[str]) -> str:
    return "\n".join(filter(None, map(str.strip, pieces)))


def check_reasoning_tags(name: str, tags: object) -> tuple[str, ...]:
    """Return tags of reasoning as a tuple.

    Example:
        >>> check_reasoning_tags("reasoning_tags", ["think", "{{…}}"])
        ('think', '{{…}}')

    Args:
        name: The argument's name, for the message.
        tags: The argument.

    Raises:
        InvalidArgumentError: It is not a list of names, or of pairs of marks with ``…``.
    """
    checked = tuple(check_list(name, tags))
    for tag in checked:
        marks = tag.split("…") if isinstance(tag, str) else []
        if not 0 < len(marks) < 3 or not all(marks):
            raise InvalidArgumentError(
                f"`{name}` must have names of tags, or an opening and a closing mark with … "
                f"between them, got {shown(tag)}"
            )
    return checked


@lru_cache(maxsize=64)
def _marks(tags: tuple[str, ...]) -> tuple[_Starts, re.Pattern[str], dict[str, str]]:
    """The search for marks by their first character, the pattern of all, and their closing marks.

    The marks are in lower case. A search for one first character is faster than one for all.
    """
    closings: dict[str, str] = {}
    for tag in tags:
        opening, separator, closing = tag.lower().partition("…")
        if not separator:
            opening, closing = f"<{opening}>", f"</{opening}>"
        closings[opening] = closing
    marks = sorted({*closings, *closings.values()}, key=len, reverse=True)
    patterns = {mark[0]: _pattern_of(mark[0], marks) for mark in marks}
    starts = tuple((start, re.compile(pattern).search) for start, pattern in patterns.items())
    return starts, re.compile("|".join(patterns.values())), closings


_Starts = tuple[tuple[str, Callable[[str], re.Match[str] | None]], ...]


def _pattern_of(start: str, marks: Sequence[str]) -> str:
    """The pattern of the marks that begin with a character, which looks at the second one first."""
    rests = [mark[1:] for mark in marks if mark[0] == start]
    seconds = "".join(sorted({re.escape(rest[:1]) for rest in rests}))
    ahead = f"(?=(?i:[{seconds}]))" if all(rests) else ""
    return f"{re.escape(start)}{ahead}(?i:{'|'.join(map(re.escape, rests))})"
