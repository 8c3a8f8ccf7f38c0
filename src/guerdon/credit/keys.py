"""Keys: which states are the same, and numbers for things that are the same."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Set
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from guerdon.credit.arguments import Integers, refused
from guerdon.errors import CreditError

__all__: list[str] = []

# No value of one of these types equals a value of another, so they are their own keys.
_OWN_KEYS = frozenset({str, bytes, int, type(None)})


class _NoKeyError(Exception):
    """A part of a state is of a type that has no key."""


class Numbered(NamedTuple):
    """Things, numbered in the order in which they first appear.

    Attributes:
        codes: The number of each, (N,).
        ids: The distinct things in the order of their numbers.
    """

    codes: Integers
    ids: list[Any]

    def first_rows(self) -> Integers:
        """Where each number appears first."""
        first = np.empty(len(self.ids), np.int64)
        first[self.codes[::-1]] = np.arange(len(self.codes))[::-1]  # the last assignment stays
        return first


def numbered(keys: Iterable[Hashable], size: int) -> Numbered:
    """Number ``size`` keys; equal ones are the same."""
    known: dict[Hashable, int] = defaultdict(count().__next__)
    codes = np.fromiter(map(known.__getitem__, keys), np.int64, size)
    return Numbered(codes, list(known))


def states_as_keys(states: list[Any], rows: Integers) -> list[Hashable]:
    """Give each state a key: two are equal exactly where the states are the same.

    Args:
        states: What the states are, or parts of them: text, numbers, None, bytes, arrays, tuples,
            lists, sets, mappings, and values of other types that compare and hash by their content.
        rows: Their row numbers, for the message.

    Raises:
        CreditError: Some have no key.
    """
    if set(map(type, states)) <= _OWN_KEYS:
        return states
    keys: list[Hashable] = []
    wrong: dict[int, str] = {}
    for row, state in zip(rows.tolist(), states, strict=True):
        try:
            keys.append(key_of(state))
        except _NoKeyError as error:
            wrong[row] = str(error)
        except RecursionError:
            wrong[row] = f"{type(state).__name__} that is nested too deeply"
        except Exception as error:  # whatever a class of somebody's own raises
            wrong[row] = f"{type(state).__name__} ({type(error).__name__})"
    if wrong:
        kinds = ", ".join(sorted(set(wrong.values())))
        raise refused(
            f"state can't be compared: {kinds}",
            wrong,
            accepted="pass a key of your own, such as a text or a tuple of numbers",
        )
    return keys


def key_of(value: Any) -> Hashable:  # noqa: C901
    """The key of one state: its type and content, so that 1, 1.0 and True differ.

    NaN is the same as NaN, and -0.0 as 0.0. The order of a mapping or a set doesn't matter; a list
    and a tuple differ.
    """
    kind = type(value)
    if kind in _OWN_KEYS:
        return value  # type: ignore[no-any-return]
    if kind is float:
        return (float, value if value == value else "nan")
    if isinstance(value, Mapping):
        return ("mapping", frozenset((key_of(k), key_of(v)) for k, v in value.items()))
    if isinstance(value, list | tuple):
        return (kind, *map(key_of, value))
    if isinstance(value, Set):
        return ("set", frozenset(map(key_of, value)))
    if isinstance(value, bytearray):
        return (bytearray, bytes(value))
    if hasattr(value, "__array__"):
        return _array_key(value)
    if dataclasses.is_dataclass(kind):
        return (kind, *(key_of(getattr(value, each.name)) for each in dataclasses.fields(kind)))
    if getattr(kind, "__hash__", None) in (None, object.__hash__):
        raise _NoKeyError(kind.__qualname__)  # equal to itself alone
    try:
        hash(value)
    except Exception:  # whatever a class of somebody's own raises
        raise _NoKeyError(kind.__qualname__) from None
    return (kind, value)


def _array_key(value: Any) -> Hashable:
    try:
        array = np.asarray(value)
    except Exception as error:  # such as a tensor on a GPU
        raise _NoKeyError(f"{type(value).__qualname__} ({error})") from None
    if array.dtype.hasobject or array.dtype.kind == "V":
        content: Hashable = key_of(array.tolist())
    else:
        if array.dtype.kind in "fc":
            array = np.array(array + array.dtype.type(0))  # -0.0 becomes 0.0
            array[np.isnan(array)] = np.nan
        content = array.tobytes()
    return (np.ndarray, array.dtype.str, array.shape, content)


def ids_of(values: Any, size: int, name: str) -> Numbered:
    """Number ids; equal ids are the same.

    Raises:
        CreditError: An id is NaN or can't be hashed.
    """
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise CreditError(
                f"{name} has shape {values.shape}; a 1-d array with one id for each row is needed"
            )
        values = values.tolist()
    try:
        found = numbered(values, size)
    except Exception:  # whatever an id of somebody's own class raises
        wrong = [row for row, value in enumerate(values) if not _hashable(value)]
        wrong = wrong or list(range(size))
        raise refused(
            f"{name} can't be told apart", wrong, accepted="ids must be hashable"
        ) from None
    unordered = [code for code, one in enumerate(found.ids) if not _has_order(one)]
    if unordered:
        raise refused(
            f"{name} is a {type(found.ids[unordered[0]]).__name__}, which has no order that stays",
            np.flatnonzero(np.isin(found.codes, unordered)),
            accepted="ids are text, numbers, None, or tuples of these",
        )
    unequal = [code for code, one in enumerate(found.ids) if one != one]
    if unequal:
        raise refused(f"{name} is NaN", np.flatnonzero(np.isin(found.codes, unequal)))
    return found


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except Exception:
        return False
    return True


def _has_order(one: Any) -> bool:
    """Whether an id is sorted the same in every process: not by a hash or an address."""
    if isinstance(one, tuple):
        return all(map(_has_order, one))
    if type(one) in _OWN_KEYS:
        return True
    try:
        return not isinstance(one, Set) and " at 0x" not in repr(one)
    except Exception:  # whatever a class of somebody's own raises
        return False


def ranks(ids: list[Any]) -> Integers:
    """Where each of several distinct ids comes in an order that depends on the ids alone.

    Text, whole numbers and floats are in their own order; others in that of their ``repr``.
    """
    ids = [one.item() if isinstance(one, np.generic) else one for one in ids]
    kinds = set(map(type, ids))
    if len(kinds) == 1 and kinds <= {str, int, float, bytes}:
        order = sorted(range(len(ids)), key=ids.__getitem__)
    else:
        named = [(type(one).__qualname__, repr(one)) for one in ids]
        order = sorted(range(len(ids)), key=named.__getitem__)
    places = np.empty(len(ids), np.int64)
    places[order] = np.arange(len(ids))
    return places
