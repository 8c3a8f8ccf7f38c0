"""Which states are the same: by equal content, or by a similar text."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping, Sequence, Set
from difflib import SequenceMatcher
from typing import Any

import numpy as np

from guerdon.credit.columns import Integers, is_hashable, row_error

# Values of these types equal no value of another of them, so they are their own keys.
_OWN_KEYS = frozenset({str, bytes, int, type(None)})


def state_keys(states: list[Any], rows: Integers, name: str = "states") -> list[Hashable]:
    """Return a key for each state; keys are equal exactly where the states are the same.

    Args:
        states: The states: text, numbers, None, bytes, arrays, tuples, lists, sets and mappings of
            these, dataclasses, and values of other types that compare and hash by content.
        rows: Their row numbers, for error messages.
        name: What they are, for error messages.

    Raises:
        CreditError: A state has no key.
    """
    if set(map(type, states)) <= _OWN_KEYS:
        return states
    keys: list[Hashable] = []
    wrong: dict[int, str] = {}
    for row, state in zip(rows.tolist(), states, strict=True):
        try:
            keys.append(_key(state))
        except Exception as error:  # also what the state's class raises
            is_ours = isinstance(error, _NoKeyError)
            wrong[row] = str(error) if is_ours else f"{type(state).__name__} ({error!r})"
    if wrong:
        raise row_error(
            f"{name} can't be compared: {', '.join(sorted(set(wrong.values())))}",
            wrong,
            expected="pass a key of your own, such as a string or a tuple of numbers",
        )
    return keys


class _NoKeyError(Exception):
    """A part of a state is of a type that doesn't compare by content."""


def _key(value: Any) -> Hashable:
    """Return a state's type and content, so that 1, 1.0 and True differ.

    NaN is the same as NaN, and -0.0 as 0.0. The order of a mapping or a set doesn't matter; a list
    and a tuple differ.
    """
    kind = type(value)
    if kind in _OWN_KEYS:
        return value  # type: ignore[no-any-return]
    if kind is float:
        return (float, value if value == value else "nan")
    if isinstance(value, Mapping):
        return ("mapping", frozenset(map(_key, value.items())))
    if isinstance(value, list | tuple | bytearray):
        return (kind, *map(_key, value))
    if isinstance(value, Set):
        return ("set", frozenset(map(_key, value)))
    if hasattr(value, "__array__"):
        return _array_key(value)
    if dataclasses.is_dataclass(kind):
        return (kind, *(_key(getattr(value, each.name)) for each in dataclasses.fields(kind)))
    if getattr(kind, "__hash__", None) is object.__hash__ or not is_hashable(
        value
    ):  # it equals itself alone
        raise _NoKeyError(kind.__qualname__)
    return (kind, value)


def _array_key(value: Any) -> Hashable:
    array = np.asarray(value)
    if array.dtype.hasobject or array.dtype.kind == "V":
        content = _key(array.tolist())
    else:
        if array.dtype.kind in "fc":
            array = np.array(array + array.dtype.type(0))  # -0.0 becomes 0.0
            array[np.isnan(array)] = np.nan
        content = array.tobytes()
    return (np.ndarray, array.dtype.str, array.shape, content)


def group_similar(texts: Sequence[str], threshold: float) -> Integers:
    """Group texts that are similar to the first text of a group.

    Each text joins the first group (in the order of opening) whose first text, its template, is
    similar, and opens a group if there is none. A text is similar if

        ``difflib.SequenceMatcher(None, template, text, autojunk=False).ratio() >= threshold``

    The ratio is not symmetric; the template comes first. Without ``autojunk=False``, difflib would
    ignore each character that makes up 1 % of a text of 200 characters or more.

    Example:
        >>> group_similar(["go to shelf 1", "go to shelf 2", "look", "go to shelf 1"], 0.9)
        array([0, 0, 1, 0])

    Args:
        texts: The texts, (N,).
        threshold: The lowest ratio of similar texts, in (0, 1].

    Returns:
        The number of the group of each text, (N,).
    """
    group_of: dict[str, int] = {}
    templates: list[str] = []
    for text in dict.fromkeys(texts):
        matcher = SequenceMatcher(None, "", text, autojunk=False)  # caches what it knows of `text`
        for group, template in enumerate(templates):
            matcher.set_seq1(template)
            if (
                matcher.real_quick_ratio() >= threshold
                and matcher.quick_ratio() >= threshold
                and _ratio_reaches(threshold, template, text)
            ):
                group_of[text] = group
                break
        else:
            group_of[text] = len(templates)
            templates.append(text)
    return np.fromiter((group_of[text] for text in texts), np.int64, len(texts))


def _ratio_reaches(threshold: float, template: str, text: str) -> bool:
    """Whether difflib's ratio is at least the threshold, up to 50 times as fast as difflib.

    The ratio is 2 M / (length of both), where M is the length of the longest common block (the
    first in the template, then in the text) plus M of the parts to its left and to its right.
    This stops as soon as the parts that remain can't change the answer, and leaves the search to
    ``str.find``, which is linear where difflib is quadratic: in grids with one frequent character.
    """
    both = len(template) + len(text)
    matched, possible = 0, min(len(template), len(text))
    parts = [(template, text)]
    while parts and 2.0 * matched / both < threshold <= 2.0 * possible / both:
        a, b = parts.pop()
        i, j, size = _longest_common_block(a, b)
        matched += size
        rest = [(a[:i], b[:j]), (a[i + size :], b[j + size :])] if size else []
        parts += rest
        possible += size + sum(min(map(len, part)) for part in rest) - min(len(a), len(b))
    return both == 0 or 2.0 * matched / both >= threshold


def _longest_common_block(a: str, b: str) -> tuple[int, int, int]:
    """Return the start in ``a``, the start in ``b`` and the size."""
    start = size = 0
    for i in range(len(a)):
        while i + size < len(a) and a[i : i + size + 1] in b:
            start = i
            size += 1
    return start, b.find(a[start : start + size]), size
