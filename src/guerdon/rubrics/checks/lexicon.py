r"""A list of words and patterns with severities, read from a file and made into one matcher.

One entry a line: `severity<TAB>word or phrase`, or `severity<TAB>/regular expression/`; empty lines
and lines that begin with `#` are left out. A severity is over 0 and at most 1.

Words and phrases match whole words in any case. Their letters also match when written as look-alike
signs (`1d10t`), or three times and more (`stuuupid`); any white space or punctuation stands between
the words of a phrase. Patterns match as they are written, in any case.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from guerdon.errors import InvalidArgumentError

__all__ = ["Lexicon", "LexiconEntry", "parse_lexicon", "read_lexicon"]

_MOST_REPEATS = 30
_LOOK_ALIKES = {
    "a": "a4@", "b": "b8", "e": "e3", "g": "g9", "i": "i1!|", "l": "l1|", "o": "o0",
    "s": "s5$", "t": "t7+",
}  # fmt: skip
_BEFORE, _AFTER = r"(?<![^\W_])", r"(?![^\W_])"
_TOKEN = re.compile(r"(?P<letter>[^\W\d_])(?P=letter)*|\s+|['’]|-|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class LexiconEntry:
    """One entry of a lexicon.

    Attributes:
        severity: How bad it is, over 0 and at most 1.
        text: The word or phrase, or the regular expression without its slashes.
        is_pattern: Whether it is a regular expression.
    """

    severity: float
    text: str
    is_pattern: bool = False


class Lexicon:
    """Finds the entries of a list in a text.

    Args:
        entries: The entries; of several that are the same word, the last one counts.

    Raises:
        InvalidArgumentError: If a pattern is no regular expression.

    Example:
        >>> [e.text for e in Lexicon([LexiconEntry(0.5, "idiot")]).found_in("You 1DIOOOT!")]
        ['idiot']
    """

    def __init__(self, entries: list[LexiconEntry]) -> None:
        self.entries = tuple(entries)
        words = {e.text.lower(): e for e in entries if not e.is_pattern}
        self._words = tuple(words.values())
        trie = _Trie()
        for number, word in enumerate(words, start=1):
            _plant(trie, word, number)
        self._trie_groups: list[int] = []
        source = _written_out(trie, self._trie_groups)
        self._regex = re.compile(f"{_BEFORE}(?:{source})") if words else None
        self._patterns = tuple((_compiled(e.text), e) for e in entries if e.is_pattern)

    def found_in(self, text: str) -> list[LexiconEntry]:
        """Return the distinct entries that stand in a text.

        Where words and phrases overlap, the one that begins first counts, and of those the longest.

        Args:
            text: Any text.

        Returns:
            The entries, words before patterns, in the order in which they first stand in the text.
        """
        found: dict[LexiconEntry, None] = {}
        if self._regex is not None:
            for match in self._regex.finditer(text.lower()):
                group = match.lastindex
                # Digits alone are a number, whatever word they look like.
                if group is not None and any(map(str.isalpha, match[0])):
                    found[self._words[self._trie_groups[group - 1] - 1]] = None
        for pattern, entry in self._patterns:
            if pattern.search(text):
                found[entry] = None
        return list(found)


class _Trie(dict[str, "_Trie"]):
    """Units of a regular expression by what may follow them; `number` where a word ends."""

    number: int = 0


def _plant(trie: _Trie, word: str, number: int) -> None:
    for token in _TOKEN.finditer(word):
        trie = trie.setdefault(_unit(token[0]), _Trie())
    trie.number = number


def _unit(token: str) -> str:
    """The expression for a run of one letter, a gap, or a sign; nothing in it can backtrack far."""
    letter = token[0]
    if letter.isspace():
        return r"[\W_]{1,5}"
    if letter in "'’":
        return "['’]?"
    if letter == "-":
        return r"[\W_]{0,3}"
    alike = f"[{re.escape(_LOOK_ALIKES[letter])}]" if letter in _LOOK_ALIKES else re.escape(letter)
    if len(token) > 1:
        return f"{alike}{{{len(token)},{_MOST_REPEATS}}}+"
    return f"{alike}(?:{letter}{{2,{_MOST_REPEATS}}}+)?+" if letter.isalpha() else alike


def _written_out(trie: _Trie, groups: list[int]) -> str:
    """The trie as one expression; an empty group marks where a word ends, the longest first."""
    branches = [unit + _written_out(below, groups) for unit, below in trie.items()]
    if trie.number:
        groups.append(trie.number)
        branches.append(f"{_AFTER}()")
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.IGNORECASE)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidArgumentError(
            f"/{pattern[:80]}/ is no regular expression of Python's re: {error}"
        ) from error


def read_lexicon(path: str | Path) -> Lexicon:
    """Read a lexicon from a file.

    Args:
        path: A UTF-8 text file.

    Returns:
        The lexicon.

    Raises:
        InvalidArgumentError: If the file can't be read or a line of it is broken; names the line.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise InvalidArgumentError(
            f"the word list {str(path)!r} can't be read ({error}); accepted is a UTF-8 text file"
        ) from error
    return parse_lexicon(text, str(path))


def parse_lexicon(text: str, name: str) -> Lexicon:
    r"""Read a lexicon from the text of a file.

    Args:
        text: The lines of the list.
        name: What to call the list in messages.

    Returns:
        The lexicon.

    Raises:
        InvalidArgumentError: If a line is broken, or there is no entry; names the line.

    Example:
        >>> parse_lexicon("# mild\n0.2\tsilly\n", "mine.txt").entries
        (LexiconEntry(severity=0.2, text='silly', is_pattern=False),)
    """
    entries = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                entries.append(_entry(line))
            except InvalidArgumentError as error:
                raise InvalidArgumentError(f"{name}, line {number}: {error}") from error
    if not entries:
        raise InvalidArgumentError(f"{name}: there is no entry; accepted is at least one")
    return Lexicon(entries)


def _entry(line: str) -> LexiconEntry:
    number, tab, what = line.partition("\t")
    what = what.strip()
    try:
        severity = float(number)
    except ValueError:
        severity = math.nan
    if not tab or not what or not 0.0 < severity <= 1.0:
        raise InvalidArgumentError(
            f"{line.strip()[:80]!r} is no entry; accepted is a severity over 0 and at most 1, a "
            "tab, and a word, a phrase or a /regular expression/"
        )
    if len(what) > 2 and what[0] == what[-1] == "/":
        _compiled(what[1:-1])
        return LexiconEntry(severity, what[1:-1], True)
    if not any(map(str.isalnum, what)):
        raise InvalidArgumentError(f"{what[:80]!r} holds no letter or digit; accepted is a word")
    return LexiconEntry(severity, " ".join(what.split()))
