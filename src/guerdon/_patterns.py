"""A user's regular expressions on the texts of models, within a time limit."""

from __future__ import annotations

import re
from typing import Any

from guerdon._validation import shown
from guerdon.errors import InvalidArgumentError, PatternTimeoutError

#: Seconds of the process's CPU time that one match may take.
MATCH_SECONDS = 5.0

# `{` where `re` reads a brace and `regex` may read approximate matching, such as `{e<=1}`.
_LITERAL_BRACE = re.compile(r"(\\N\{[^}]*\}|\\.)|\{(?!\d+(?:,\d*)?\}|,\d*\})", re.DOTALL)

#: The largest number of parts of a pattern; `regex` compiles each repetition as a part.
MOST_WRITTEN_OUT = 100_000

# The flags with the same number in both packages; that of ASCII differs.
_FLAGS = re.IGNORECASE | re.MULTILINE | re.DOTALL | re.VERBOSE

# What `re` raises for an invalid pattern.
_INVALID = (re.error, TypeError, ValueError, OverflowError, RecursionError)


class Pattern:
    """A regular expression in the syntax of Python's `re`.

    `re` has no time limit, and no other thread runs while it matches. The package `regex` has a
    limit, and releases the interpreter lock.

    Example:
        >>> Pattern("stop", r"FINAL|DONE").found_in("It is 7. DONE")
        True

    Args:
        name: The argument's name, for messages.
        pattern: The regular expression: text, or compiled by `re`.
        ignore_case: Whether upper and lower case are the same.

    Raises:
        InvalidArgumentError: It is not a string, or not a valid regular expression.
    """

    def __init__(self, name: str, pattern: Any, *, ignore_case: bool = False) -> None:
        import regex  # here, so that `import guerdon` doesn't take its time

        self.name = name
        try:
            checked = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
            source = _LITERAL_BRACE.sub(lambda found: found[1] or r"\{", checked.pattern)
            if _written_out(re._parser.parse(source, checked.flags)) > MOST_WRITTEN_OUT:  # type: ignore[attr-defined]
                raise ValueError("its repetitions multiply to more than 100,000")
            ascii_only = regex.ASCII if checked.flags & re.ASCII else 0
            self._regex = regex.compile(source, checked.flags & _FLAGS | ascii_only)
        except (*_INVALID, regex.error) as error:
            raise InvalidArgumentError(
                f"`{name}` must be a regular expression, got {shown(pattern)}: {error}"
            ) from error
        self.text = checked.pattern

    def found_in(self, text: str, *, full: bool = False) -> bool:
        """Return whether the expression matches.

        Args:
            text: Any text.
            full: Whether the whole text must match, rather than some part of it.

        Raises:
            PatternTimeoutError: It took more than `MATCH_SECONDS`.
        """
        match = self._regex.fullmatch if full else self._regex.search
        try:
            return match(text, timeout=MATCH_SECONDS) is not None
        except TimeoutError:
            raise PatternTimeoutError(
                f"`{self.name}` {shown(self.text)} took more than {MATCH_SECONDS:g} s on a text of "
                f"{len(text)} characters",
                seconds=MATCH_SECONDS,
            ) from None


def _written_out(parsed: Any) -> int:
    """Return how many parts a pattern has if each repetition counts as a part."""
    size = 0
    for operation, given in parsed:
        parts = given if isinstance(given, (list, tuple)) else [given]
        inner = [each for part in parts for each in (part if isinstance(part, list) else [part])]
        inside = sum(_written_out(each) for each in inner if hasattr(each, "getwidth")) or 1
        if str(operation).endswith("REPEAT"):
            low, high = given[0], given[1]
            inside *= low if high is re._constants.MAXREPEAT else high  # type: ignore[attr-defined]
        size += max(1, inside)
    return size
