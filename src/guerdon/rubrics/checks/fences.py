"""The fenced code blocks of a Markdown text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

# Possessive, so that a long line is read once.
_FENCE = re.compile(r"([ \t]*+)(`{3,}+|~{3,}+)[ \t]*+([^\s`{]*+)[^`]*+$")


class FencedBlock(NamedTuple):
    """One fenced block.

    Attributes:
        text: The lines between the fences.
        line: The number of the block's first line in the text, from 1.
    """

    text: str
    line: int


def fenced_blocks(text: str, *languages: str) -> list[FencedBlock]:
    r"""Return the fenced blocks of a language, or if there are none, those without a language.

    A block that is never closed runs to the end of the text. The indentation of the opening fence
    is removed from its lines.

    Args:
        text: A Markdown text.
        languages: The accepted names of the language after the opening fence, in lower case.

    Returns:
        The blocks in the order of the text.

    Example:
        >>> fenced_blocks("Here:\n```python\nx = 1\n```", "python")
        [FencedBlock(text='x = 1', line=3)]
    """
    if "```" not in text and "~~~" not in text:
        return []
    named: list[FencedBlock] = []
    unnamed: list[FencedBlock] = []
    for language, block in _all_blocks(text):
        if not language:
            unnamed.append(block)
        elif language in languages:
            named.append(block)
    return named or unnamed


def without_fences(text: str, *, kept: Callable[[str, str], bool]) -> str:
    r"""Return a text in which the lines of fenced blocks are empty.

    If nothing stands outside the blocks, their texts are returned, but for those in a language.

    Args:
        text: A Markdown text.
        kept: Whether the only line of a block stays, from the line above the block and the line.

    Example:
        >>> without_fences("Answer:\n```\n18\n```", kept=lambda above, line: above == "Answer:")
        'Answer:\n\n18\n'
    """
    lines = text.replace("\r\n", "\n").split("\n")
    texts: list[str] = []
    for language, block in _all_blocks(text):
        inside = block.text.split("\n")
        start = block.line - 1
        above = next(filter(str.strip, reversed(lines[max(start - 4, 0) : start - 1])), "")
        only = block.text.strip()
        keeps = "\n" not in only and kept(above, only)
        lines[start : start + len(inside)] = inside if keeps else [""] * len(inside)
        lines[start - 1] = ""
        lines[start + len(inside) : start + len(inside) + 1] = [""]
        if language in ("", "text", "json", "markdown", "md", "latex", "tex", "math"):
            texts.append(block.text)
    return "\n".join(lines if any(map(str.strip, lines)) else texts)


def _all_blocks(text: str) -> Iterator[tuple[str, FencedBlock]]:
    opened: re.Match[str] | None = None
    inside: list[str] = []
    start = 0
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        if opened is None:
            opened, inside, start = _FENCE.match(line), [], number + 1
        elif _closes(line, opened[2]):
            yield opened[3].lower(), FencedBlock("\n".join(inside), start)
            opened = None
        else:
            indent = len(line) - len(line.lstrip(" \t"))
            inside.append(line[min(indent, len(opened[1])) :])
    if opened is not None:
        yield opened[3].lower(), FencedBlock("\n".join(inside), start)


def _closes(line: str, fence: str) -> bool:
    bare = line.strip()
    return len(bare) >= len(fence) and not bare.strip(fence[0])
