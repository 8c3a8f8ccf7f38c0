"""Reading one argument of a batch: numbers or ids, one for each row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence, Set
from itertools import count, islice
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from guerdon.errors import CreditError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Column = Sequence[Any] | NDArray[Any]
PerTrajectory = Column | Mapping[Any, Any]

# The number of rows or ids that a message lists.
LISTED = 5


def listed(items: Iterable[object], total: int) -> str:
    """Join the first few of ``total`` items for a message."""
    first = ", ".join(str(item) for item in islice(items, LISTED))
    return first if total <= LISTED else f"{first} and {total - LISTED} more"


def row_error(problem: str, rows: Iterable[int], *, expected: str = "") -> CreditError:
    """Make the error for invalid rows."""
    numbers = sorted(int(row) for row in rows)
    where = f"row{'s' * (len(numbers) != 1)} {listed(numbers, len(numbers))}"
    return CreditError(
        f"{problem} in {where}" + (f"; {expected}" if expected else ""), rows=numbers
    )


def read_column(value: Any, name: str) -> Column:
    """Return an argument with one entry for each row as a list, a tuple or a 1-d array."""
    if isinstance(value, list | tuple):
        return value
    if hasattr(value, "__array__"):
        array = read_array(value, name)
        if array.ndim:
            return array
    elif isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping | Set):
        return list(value)
    raise CreditError(
        f"`{name}` must be a sequence or an array with one entry for each row, "
        f"got a {type(value).__name__}"
    )


def read_array(value: Any, name: str) -> NDArray[Any]:
    """Return anything that numpy can read as an array; masked numbers become NaN."""
    try:
        if np.ma.is_masked(value):
            return np.asarray(value.astype(np.float64).filled(np.nan))
        return np.asarray(value.data if isinstance(value, np.ma.MaskedArray) else value)
    except Exception as error:  # tensors on a GPU, ragged lists: each library raises its own
        raise CreditError(
            f"`{name}` can't be read as an array: {error}; make it rectangular, in main memory"
        ) from error


def read_floats(value: ArrayLike, name: str) -> Floats:
    """Return numbers as floats; None becomes NaN."""
    is_list = isinstance(value, list | tuple)
    array = read_array(value, name)
    if array.ndim != 1:
        raise CreditError(f"`{name}` must be 1-d, got shape {array.shape}")
    if array.dtype == object or (is_list and {bool, np.bool_} & set(map(type, value))):  # type: ignore[arg-type]
        items: Any = value if is_list else array.tolist()
        wrong = [row for row, item in enumerate(items) if not _is_number_or_none(item)]
        if wrong:
            raise row_error(f"`{name}` is not a number", wrong, expected="use None or NaN for none")
    elif array.dtype.kind not in "iuf" and array.size:
        raise CreditError(f"`{name}` must contain numbers, got {array.dtype} values")
    try:
        return array.astype(np.float64)
    except OverflowError as error:
        raise CreditError(f"`{name}` contains a number too large for a float") from error


def _is_number_or_none(item: Any) -> bool:
    return item is None or (isinstance(item, Real) and not isinstance(item, bool))


def read_steps(value: Column, name: str) -> NDArray[Any]:
    """Return finite numbers; integers stay integers, so that large ones keep every digit."""
    array = read_array(value, name)
    if array.dtype.kind not in "iu" or array.ndim != 1:
        array = read_floats(array, name)
    wrong = np.flatnonzero(~np.isfinite(array))
    if len(wrong):
        raise row_error(f"`{name}` is not finite", wrong)
    return array


class Numbered(NamedTuple):
    """Values and their numbers.

    Attributes:
        codes: The number of each value, (N,).
        ids: The distinct values in the order of their numbers.
    """

    codes: Integers
    ids: list[Any]

    def first_rows(self) -> Integers:
        """Return the row where each number appears first."""
        first = np.empty(len(self.ids), np.int64)
        first[self.codes[::-1]] = np.arange(len(self.codes))[::-1]  # the last assignment stays
        return first


def number(keys: Iterable[Hashable], size: int) -> Numbered:
    """Number ``size`` keys in the order in which they first appear."""
    known: dict[Hashable, int] = defaultdict(count().__next__)
    codes = np.fromiter(map(known.__getitem__, keys), np.int64, size)
    return Numbered(codes, list(known))


def read_ids(values: Any, size: int, name: str) -> Numbered:
    """Number ids in an order that depends on the ids alone.

    Strings, integers and floats are in their own order, other types in that of their ``repr``.

    Raises:
        CreditError: An id is NaN, has no hash, or sorts differently in every process.
    """
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise CreditError(f"`{name}` must be 1-d, got shape {values.shape}")
        values = values.tolist()
    try:
        found = number(values, size)
    except Exception:  # raised by __hash__ or __eq__ of the id's class
        wrong = [row for row, value in enumerate(values) if not is_hashable(value)]
        raise row_error(f"`{name}` is not hashable", wrong or range(size)) from None
    codes = [code for code, one in enumerate(found.ids) if not _has_stable_order(one)]
    if codes:
        raise row_error(
            f"`{name}` has no order that is the same in every process",
            np.flatnonzero(np.isin(found.codes, codes)),
            expected="use strings, numbers other than NaN, None, or tuples of these",
        )
    order = _ordered(found.ids)
    positions = np.empty(len(order), np.int64)
    positions[order] = np.arange(len(order))
    return Numbered(positions[found.codes], [found.ids[code] for code in order])


def _ordered(ids: list[Any]) -> list[int]:
    """Where the ids are in the order of their values, or of their ``repr`` if types are mixed."""
    keys = [one.item() if isinstance(one, np.generic) else one for one in ids]
    kinds = set(map(type, keys))
    if not (len(kinds) == 1 and kinds <= {str, int, float, bytes}):
        keys = [(type(one).__qualname__, repr(one)) for one in keys]
    return sorted(range(len(keys)), key=keys.__getitem__)


def is_hashable(value: Any) -> bool:
    """Whether a value is hashable."""
    try:
        hash(value)
    except Exception:
        return False
    return True


def _has_stable_order(one: Any) -> bool:
    """Whether sorting by the ``repr`` depends neither on a hash nor on an address."""
    if type(one) in (int, str):  # the usual case
        return True
    if isinstance(one, tuple):
        return all(map(_has_stable_order, one))
    if isinstance(one, str | bytes):
        return True
    try:
        return one == one and not isinstance(one, Set) and " at 0x" not in repr(one)
    except Exception:  # raised by the id's class
        return False
