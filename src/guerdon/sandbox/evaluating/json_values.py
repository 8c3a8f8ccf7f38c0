"""Whether JSON can hold a value, and where it can't."""

from __future__ import annotations

import reprlib
from typing import Any

from guerdon.errors import InvalidArgumentError

__all__ = ["check_json", "find_foreign", "writable"]

# How deep values may be nested. Parsers of JSON give up at about 200.
MAX_DEPTH = 150

_PLAIN = frozenset((str, int, float, bool, type(None)))
_ATOMS = (str, int, float, type(None))


def check_json(value: Any, where: str) -> None:
    """Refuse what JSON can't hold.

    Tuples pass: they become lists. So do NaN and infinity.

    Example:
        >>> check_json({"answers": [4, 2, {6, 7}]}, "ground_truth")
        Traceback (most recent call last):
        guerdon.errors.InvalidArgumentError: ground_truth['answers'][2] is {6, 7} (set); a sandbox \
takes what JSON can hold: text, numbers, true, false, null, lists, and dicts with text for keys

    Args:
        value: Anything.
        where: What it is called, for the error.

    Raises:
        InvalidArgumentError: It holds something else, holds itself, or is nested more than
            `MAX_DEPTH` deep.
    """
    if type(value) in _PLAIN:
        return
    found = find_foreign(value)
    if found is not None:
        raise InvalidArgumentError(
            f"{where}{found}; a sandbox takes what JSON can hold: text, numbers, true, false, "
            "null, lists, and dicts with text for keys"
        )


def find_foreign(value: Any, depth: int = 0) -> str | None:
    """Where a value has what JSON can't hold, and what it is; None where it has nothing such.

    Example:
        >>> find_foreign({"when": b"now"})
        "['when'] is b'now' (bytes)"
    """
    if isinstance(value, dict):
        items: Any = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    else:
        return None if isinstance(value, _ATOMS) else _is(value)
    if depth > MAX_DEPTH:
        return f" is nested more than {MAX_DEPTH} deep"
    named = isinstance(value, dict)
    for key, inner in items:
        if named and not isinstance(key, str):
            return f" has the key {reprlib.repr(key)} ({type(key).__name__})"
        if named and not key.isascii() and not writable(key):
            return f" has the key {reprlib.repr(key)}, which UTF-8 can't hold"
        if type(inner) in _PLAIN:
            continue
        found = find_foreign(inner, depth + 1)
        if found is not None:
            # Of what is nested without end, no more than the beginning of the way is told.
            return found if found.startswith(" is nested") else f"[{reprlib.repr(key)}]{found}"
    return None


def writable(key: str) -> bool:
    """Whether UTF-8 can hold a key; of another the writer of JSON would silently make a third."""
    return key.encode("utf-8", "ignore").decode() == key


def _is(value: Any) -> str:
    return f" is {reprlib.repr(value)} ({type(value).__name__})"
