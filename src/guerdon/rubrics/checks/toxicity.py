r"""`ToxicityRubric`, and the lists of words and patterns with severities that it reads.

One entry per line: `severity<TAB>word or phrase`, or `severity<TAB>/regular expression/`; empty
lines and lines that begin with `#` are ignored. A severity is in (0, 1].

Words and phrases match whole words in any case. Their letters also match as look-alike signs
(`1d10t`), or repeated three times and more (`stuuupid`); any white space or punctuation may be
between the words of a phrase. Patterns match unchanged, in any case.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from os import fspath
from pathlib import Path
from typing import Any, ClassVar

from guerdon._patterns import Pattern
from guerdon._thresholds import reaches
from guerdon._validation import check_number
from guerdon.errors import InvalidArgumentError
from guerdon.rubrics.checks.inputs import text_of
from guerdon.rubrics.rubric import Rubric
from guerdon.rubrics.state import Checked

__all__ = ["ToxicityRubric"]

_MOST_REPEATS = 30
_LOOK_ALIKES = {
    "a": "a4@", "b": "b8", "e": "e3", "g": "g9", "i": "i1!|", "l": "l1|", "o": "o0",
    "s": "s5$", "t": "t7+",
}  # fmt: skip
_BEFORE, _AFTER = r"(?<![^\W_])", r"(?![^\W_])"
_TOKEN = re.compile(r"(?P<letter>[^\W\d_])(?P=letter)*|\s+|['’]|-|.", re.DOTALL)


class ToxicityRubric(Rubric):
    r"""The text is toxic: it insults, threatens or harasses, by a list of words and patterns.

    A higher score is worse, so give it a negative weight. The level over the distinct entries of
    the list in the text is

    .. math:: level = 1 - \prod_i (1 - severity_i)

    A list ignores context: it counts a quotation as an insult and misses one in plain words.

    Args:
        threshold: The lowest level that counts, in [0, 1].
        words: The path of a list to use instead of the packaged one. One entry per line: a severity
            in (0, 1], a tab, then a word, a phrase or a /regular expression/; lines that begin
            with `#` are comments. It is read when the rubric is made.
        field: The attribute or key of the action that contains the text.

    Returns:
        The level if it reaches the threshold, otherwise 0.0.

    Raises:
        InvalidArgumentError: `threshold` is out of range, or the list can't be read or is invalid
            (the message contains the line number).
        MissingInputError: At evaluation, the action has no text.

    Example:
        >>> ToxicityRubric()("Thank you for your patience.", None)
        0.0
    """

    score_range = (0.0, 1.0)
    state_names: ClassVar[tuple[str, ...]] = ("threshold", "words")
    tunable: ClassVar[tuple[str, ...]] = ("threshold",)
    threshold = Checked(check_number, low=0, high=1)

    def __init__(
        self,
        threshold: float = 0.5,
        *,
        words: str | Path | None = None,
        field: str = "content",
    ) -> None:
        super().__init__()
        self.threshold = threshold
        self.words = words
        self.field = field

    @property
    def words(self) -> str | None:
        """The path of the list; None for the packaged one. Setting it reads the file."""
        return self._words

    @words.setter
    def words(self, value: str | Path | None) -> None:
        self._lexicon = _packaged() if value is None else read_lexicon(value)
        # Public, so that the rubric's fingerprint depends on the entries.
        self.entries = self._lexicon.entries
        self._words = None if value is None else fspath(value)

    def forward(self, action: Any, observation: Any) -> float:
        """Find the entries of the list in the text of the action."""
        found = self._lexicon.found_in(text_of(action, self.field))
        if not found:
            return 0.0
        clean = 1.0
        for entry in found:
            clean *= 1.0 - entry.severity
        level = 1.0 - clean
        shown = ", ".join(repr(entry.text) for entry in found[:5])
        if not reaches(level, self.threshold):
            self.explain("level %.3f is under %s: %.200s", level, self.threshold, shown)
            return 0.0
        self.explain("level %.3f: %.200s", level, shown)
        return level


@lru_cache(maxsize=1)
def _packaged() -> Lexicon:
    return read_lexicon(Path(__file__).with_name("toxicity.txt"))


@dataclass(frozen=True, slots=True)
class LexiconEntry:
    """One entry of a lexicon.

    Attributes:
        severity: How bad it is, in (0, 1].
        text: The word or phrase, or the regular expression without its slashes.
        is_pattern: Whether it is a regular expression.
    """

    severity: float
    text: str
    is_pattern: bool = False


class Lexicon:
    """Finds the entries of a list in a text.

    Args:
        entries: The entries; of several with the same word, the last one counts.

    Raises:
        InvalidArgumentError: A pattern is not a valid regular expression.

    Example:
        >>> [e.text for e in Lexicon([LexiconEntry(0.5, "idiot")]).found_in("You 1DIOOOT!")]
        ['idiot']
    """

    def __init__(self, entries: list[LexiconEntry]) -> None:
        self.entries = tuple(entries)
        words = {e.text.lower(): e for e in entries if not e.is_pattern}
        trie = _Trie()
        for word, entry in words.items():
            _plant(trie, word, entry)
        self._groups: list[LexiconEntry] = []  # those of the expression
        source = _written_out(trie, self._groups)
        self._regex = re.compile(f"{_BEFORE}(?:{source})") if words else None
        self._patterns = tuple((_pattern(e.text), e) for e in entries if e.is_pattern)

    def found_in(self, text: str) -> list[LexiconEntry]:
        """Return the distinct entries in a text, words before patterns, in order of appearance.

        If words and phrases overlap, the one that begins first counts, and of those the longest.
        """
        found: dict[LexiconEntry, None] = {}
        if self._regex is not None:
            for match in self._regex.finditer(text.lower()):
                group = match.lastindex
                # Digits alone are a number, not a look-alike of a word.
                if group is not None and any(map(str.isalpha, match[0])):
                    found[self._groups[group - 1]] = None
        for pattern, entry in self._patterns:
            if pattern.found_in(text):
                found[entry] = None
        return list(found)


class _Trie(dict[str, "_Trie"]):
    """Units of a regular expression by what may follow them; `entry` if its word ends here."""

    entry: LexiconEntry | None = None


def _plant(trie: _Trie, word: str, entry: LexiconEntry) -> None:
    for token in _TOKEN.finditer(word):
        trie = trie.setdefault(_unit(token[0]), _Trie())
    trie.entry = entry


def _unit(token: str) -> str:
    """The expression for a run of one letter, a gap, or a sign, with bounded backtracking."""
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


def _written_out(trie: _Trie, groups: list[LexiconEntry]) -> str:
    """The trie as one expression; an empty group marks the end of a word, the longest first."""
    branches = [unit + _written_out(below, groups) for unit, below in trie.items()]
    if trie.entry is not None:
        groups.append(trie.entry)
        branches.append(f"{_AFTER}()")
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


def _pattern(text: str) -> Pattern:
    return Pattern("pattern", text, ignore_case=True)


def read_lexicon(path: str | Path) -> Lexicon:
    """Read a lexicon from a UTF-8 text file.

    Raises:
        InvalidArgumentError: The file can't be read, or a line is invalid.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise InvalidArgumentError(
            f"can't read the word list {str(path)!r} as UTF-8 text: {error}"
        ) from error
    return parse_lexicon(text, str(path))


def parse_lexicon(text: str, name: str) -> Lexicon:
    r"""Read a lexicon from the text of a file.

    Args:
        text: The lines of the list.
        name: The name of the list in error messages.

    Raises:
        InvalidArgumentError: A line is invalid, or there is no entry.

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
        raise InvalidArgumentError(f"{name} has no entry")
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
            f"{line.strip()[:80]!r} must be a severity in (0, 1], a tab, and a word, a phrase or a "
            "/regular expression/"
        )
    if len(what) > 2 and what[0] == what[-1] == "/":
        _pattern(what[1:-1])
        return LexiconEntry(severity, what[1:-1], True)
    if not any(map(str.isalnum, what)):
        raise InvalidArgumentError(f"{what[:80]!r} contains no letter or digit")
    return LexiconEntry(severity, " ".join(what.split()))
