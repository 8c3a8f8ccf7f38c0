"""What a file of a reward says, what is wrong with it, and on which line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from guerdon.errors import RewardConfigError

__all__ = ["Document", "Place", "Problem", "near", "place_text"]

MAX_NAMES = 20

#: Keys and positions that lead to a value, such as ``("per_turn", 2, "weight")``.
Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with a document.

    Attributes:
        place: Where in it; the empty one is the whole.
        said: What was wrong, and what would be accepted.
        line: On which line, from 1, where the place alone doesn't tell.
    """

    place: Place
    said: str
    line: int | None = None

    def within(self, *outer: str | int) -> Problem:
        """The same, seen from further out.

        Example:
            >>> Problem(("weight",), "it is text").within("per_turn", 2).place
            ('per_turn', 2, 'weight')
        """
        return Problem((*outer, *self.place), self.said, self.line)


@dataclass(frozen=True, slots=True)
class Document:
    r"""What a file says, and where it says it.

    Example:
        >>> from guerdon.config.reading import parse_document
        >>> document = parse_document("schema_version: 1.10\nper_turn: []\n", file="reward.yaml")
        >>> document.data, document.texts[("schema_version",)]
        ({'schema_version': 1.1, 'per_turn': []}, '1.10')
        >>> document.told(Problem(("per_turn",), "it is empty"))
        'reward.yaml:2: per_turn: it is empty'

    Attributes:
        data: The value, made of what JSON can hold.
        file: What the file is called; None where there is none.
        lines: The line of each value, from 1: that of its key where it has one.
        texts: Numbers as they were written.
        problems: What was read, and can't be meant.
    """

    data: Any
    file: str | None = None
    lines: Mapping[Place, int] = field(default_factory=dict)
    texts: Mapping[Place, str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    @property
    def folder(self) -> Path | None:
        """Where the file lies."""
        return Path(self.file).parent if self.file else None

    def line_of(self, place: Place) -> int | None:
        """The line of a value, or of what would hold it; None where there are no lines."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place)

    def told(self, problem: Problem) -> str:
        """A problem with its file, line and place in front."""
        line = problem.line or self.line_of(problem.place)
        parts = [place_text(problem.place)] if problem.place else []
        if line is not None:
            parts.insert(0, f"{self.file}:{line}" if self.file else f"line {line}")
        elif self.file:
            parts.insert(0, self.file)
        return ": ".join((*parts, problem.said))

    def error(
        self, problems: Iterable[Problem], kind: type[RewardConfigError] = RewardConfigError
    ) -> Any:
        """The error that tells problems, in the order of the file."""
        ordered = sorted(problems, key=lambda each: each.line or self.line_of(each.place) or 0)
        lines = list(dict.fromkeys(map(self.told, ordered)))
        return kind("\n".join(lines), problems=lines)


def place_text(place: Place) -> str:
    """A place in words.

    Example:
        >>> place_text(("per_turn", 2, "weight"))
        'per_turn[2].weight'
    """
    said = ""
    for part in place:
        if isinstance(part, int):
            said += f"[{part}]"
        elif isinstance(part, str) and re.fullmatch(r"[\w-]{1,100}", part):
            said += f".{part}"
        else:
            said += f"[{part!r:.100}]"
    return said.removeprefix(".")


def near(name: str, known: Iterable[str]) -> str:
    """What may have been meant by a name that isn't known: the nearest, or all.

    Example:
        >>> near("wieght", ["name", "weight"])
        "did you mean 'weight'?"
    """
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    if not close:  # as for a difference of case alone
        close = [each for each in names if each.casefold() == name.casefold()]
    if not close and len(name) > 2:  # the beginning of a longer one
        close = [each for each in names if each.casefold().startswith(name.casefold())]
    if close:
        return f"did you mean {close[0]!r}?"
    if not names:
        return "there are none"
    told = ", ".join(map(repr, names[:MAX_NAMES]))
    return f"there are {told}" if len(names) <= MAX_NAMES else f"there are {told}, and others"
