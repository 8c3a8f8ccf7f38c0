"""Where two nested values differ, by path."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

from guerdon._validation import shown
from guerdon.errors import MissingInputError

# Values may be nested as deep.
MAX_DEPTH = 100


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How much two equal numbers may differ, as the order of a sum changes its last digits.

    Attributes:
        absolute: The largest difference, at least 0.
        relative: The largest difference as a share of the larger number, in [0, 1]; two integers
            have none.
    """

    absolute: float = 1e-9
    relative: float = 1e-14


class _Nothing:
    def __repr__(self) -> str:
        return "nothing"


NOTHING = _Nothing()


def differences(
    expected: Any,
    found: Any,
    *,
    tolerance: Tolerance = Tolerance(),
    path: str = "",
    depth: int = 0,
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the differences between two nested values, in the order of the expected one.

    Models, dataclasses and mappings are compared by field or key, a key as its text; lists and
    tuples by index, sets without an order. Numbers of any type are equal within the tolerance; a
    bool and a text are no numbers. Other values are equal if they are so in Python, or as JSON.

    Args:
        expected: The expected value.
        found: The other value.
        tolerance: How much numbers may differ.
        path: The path of both.
        depth: The number of values around both.

    Yields:
        The path, such as ``reservations.HAT001.passengers[0]``, what is expected there and what is
        found.

    Raises:
        MissingInputError: The values are nested deeper than 100 levels, two keys have the same
            text, or two different values can't be written as JSON.

    Example:
        >>> list(differences({"cabin": "business", "bags": [1, 2]}, {"bags": [1]}))
        [('cabin', 'business', nothing), ('bags[1]', 2, nothing)]
    """
    if depth > MAX_DEPTH:
        raise MissingInputError(f"{path:.60}… is nested deeper than {MAX_DEPTH} levels")
    kind, parts = _parts(expected)
    other_kind, others = _parts(found)
    if kind is not other_kind or (
        kind is None and not _are_equal(parts[""], others[""], tolerance)
    ):
        yield path, expected, found
        return
    for name in {**parts, **others} if kind is not None else ():
        below = path + name if path else name.removeprefix(".")
        one, other = parts.get(name, NOTHING), others.get(name, NOTHING)
        yield from differences(one, other, tolerance=tolerance, path=below, depth=depth + 1)


def difference_text(path: str, expected: Any, found: Any) -> str:
    """Return a difference as text of at most 250 characters.

    Example:
        >>> difference_text("cabin", "business", "economy")
        "cabin: 'economy', expected 'business'"
    """
    short = path if len(path) <= 100 else f"…{path[-99:]}"
    return f"{short or 'the whole'}: {shown(found)}, expected {shown(expected)}"


def _parts(value: Any) -> tuple[type | None, dict[str, Any]]:
    """Return the kind of a container, and its parts by name; None, and the value, of another."""
    if hasattr(value, "tolist"):  # an array, or one of its numbers
        value = value.tolist()
    elif hasattr(value, "model_dump"):
        value = dict(value)
    elif is_dataclass(value):
        value = {each.name: getattr(value, each.name) for each in fields(value)}
    if isinstance(value, Mapping):
        parts = {f".{key}": each for key, each in value.items()}
        if len(parts) < len(value):
            raise MissingInputError(f"two keys have the same text in {shown(value)}")
        return dict, parts
    if isinstance(value, (set, frozenset)):
        value = sorted(value, key=lambda each: (0, each) if _is_number(each) else (1, repr(each)))
    if isinstance(value, (list, tuple, deque)):
        return list, {f"[{place}]": each for place, each in enumerate(value)}
    return None, {"": value}


def _is_number(value: Any) -> bool:
    return isinstance(value, (Real, Decimal)) and not isinstance(value, bool)


def _are_equal(one: Any, other: Any, tolerance: Tolerance) -> bool:
    from pydantic_core import to_jsonable_python

    if one is NOTHING or other is NOTHING or isinstance(one, bool) is not isinstance(other, bool):
        return False
    if one == other or (one != one and other != other):
        return True
    if _is_number(one) and _is_number(other):
        return _are_close(one, other, tolerance)
    if isinstance(one, str) is not isinstance(other, str) and (
        _is_number(one) or _is_number(other)
    ):
        return False  # the JSON of a Decimal is a text
    try:
        return bool(to_jsonable_python(one) == to_jsonable_python(other))
    except ValueError as error:
        text = f"{shown(one)} and {shown(other)} can't be compared: {error}"
        raise MissingInputError(text) from error


def _are_close(one: Any, other: Any, tolerance: Tolerance) -> bool:
    if isinstance(one, int) and isinstance(other, int):
        return abs(one - other) <= tolerance.absolute
    try:
        a, b = float(one), float(other)
    except OverflowError:  # an integer that no float can represent
        return False
    if not math.isfinite(a) or not math.isfinite(b):
        return a == b
    return math.isclose(a, b, rel_tol=tolerance.relative, abs_tol=tolerance.absolute)
