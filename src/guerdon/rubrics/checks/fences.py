"""The fenced code blocks of a Markdown text."""

from __future__ import annotations

import re
from collections.abc import Iterator
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
