"""Reading the arguments of an estimator: whatever can't be meant is refused, with its rows."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from itertools import islice
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from guerdon.errors import CreditError

__all__ = ["Column", "Floats", "Integers", "PerTrajectory"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Column = Sequence[Any] | NDArray[Any]
PerTrajectory = Column | Mapping[Any, Any]

_BOOLS = frozenset((bool, np.bool_))

# How many rows, ids or values a message names.
NAMED = 5


def listed(items: Iterable[object], count: int) -> str:
    """The first few of ``count`` items, in words."""
    first = ", ".join(str(item) for item in islice(items, NAMED))
    return first if count <= NAMED else f"{first} and {count - NAMED} more"


def refused(problem: str, rows: Iterable[int], *, accepted: str = "") -> CreditError:
    """The error for rows that are wrong.

    Args:
        problem: What is wrong with them.
        rows: Their numbers.
        accepted: What would be accepted.
    """
    numbers = sorted(int(row) for row in rows)
    where = f"row{'s' * (len(numbers) != 1)} {listed(numbers, len(numbers))}"
    return CreditError(
        f"{problem} in {where}" + (f"; {accepted}" if accepted else ""), rows=numbers
    )


def column(value: Any, name: str) -> Column:
    """What was given for an argument with one entry for each row, as a list or a 1-d array."""
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, str | bytes | Mapping | Set):
        raise CreditError(
            f"{name} is a {type(value).__name__}; a sequence with one entry for each row is needed"
        )
    if hasattr(value, "__array__"):
        array = as_array(value, name)
        if array.ndim == 0:
            raise CreditError(f"{name} is a single value; one entry for each row is needed")
        return array
    if not isinstance(value, Collection):
        raise CreditError(
            f"{name} is a {type(value).__name__}; a sequence or an array with one entry for each "
            "row is needed"
        )
    return list(value)


def as_array(value: Any, name: str) -> NDArray[Any]:
    """Anything that numpy can read, as an array."""
    if isinstance(value, np.ma.MaskedArray):  # which numpy would read with what is under the mask
        value = _unmasked(value, name)
    try:
        return np.asarray(value)
    except Exception as error:  # tensors on a GPU, ragged lists: each library has its own
        raise CreditError(
            f"{name} can't be read as an array: {error}; it must be 1-d, in the machine's memory"
        ) from error


def _unmasked(value: Any, name: str) -> NDArray[Any]:
    masked = np.ma.getmaskarray(value)
    if not masked.any():
        return np.asarray(value.data)
    if value.ndim != 1 or value.dtype.kind not in "iuf":
        raise CreditError(f"{name} is masked in places; only numbers can be left out so")
    return np.where(masked, np.nan, value.data)


def same_lengths(columns: Mapping[str, Column]) -> int:
    """The number of rows that all columns agree on."""
    lengths = {name: len(value) for name, value in columns.items()}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise CreditError(f"lengths differ: {said}; each must have one entry for each row")
    return next(iter(lengths.values()))


def floats(value: ArrayLike, name: str) -> Floats:
    """Numbers, one for each row, as floats; None reads as NaN."""
    if isinstance(value, list | tuple) and _BOOLS & set(map(type, value)):  # numpy would take it
        wrong = [row for row, item in enumerate(value) if type(item) in _BOOLS]
        raise refused(f"{name} holds no number", wrong, accepted="numbers or None are accepted")
    array = as_array(value, name)
    if array.ndim != 1:
        raise CreditError(
            f"{name} has shape {array.shape}; a 1-d array with one number for each row is needed"
        )
    if array.dtype == object:
        wrong = [
            row
            for row, item in enumerate(array.tolist())
            if item is not None and (isinstance(item, bool) or not isinstance(item, Real))
        ]
        if wrong:
            raise refused(f"{name} holds no number", wrong, accepted="numbers or None are accepted")
    elif array.dtype.kind not in "iuf" and array.size:
        raise CreditError(f"{name} holds {array.dtype} values; numbers are needed")
    try:
        return array.astype(np.float64)
    except OverflowError as error:
        raise CreditError(f"{name} holds a number that is too large for a float") from error


def numbers(value: Column, name: str) -> NDArray[Any]:
    """Numbers that rows can be sorted by, as they are."""
    array = as_array(value, name)
    if array.dtype == object or array.dtype == np.float16:
        array = floats(array, name)
    if array.ndim != 1 or (array.dtype.kind not in "iuf" and array.size):
        raise CreditError(
            f"{name} has shape {array.shape} and holds {array.dtype} values; one number for each "
            "row is needed"
        )
    wrong = np.flatnonzero(~np.isfinite(array)) if array.dtype.kind == "f" else ()
    if len(wrong):
        raise refused(f"{name} is not finite", wrong, accepted="a number that sorts is needed")
    return array


def finite(value: Any, name: str, *, low: float = -math.inf, high: float = math.inf) -> float:
    """One finite number within bounds."""
    right = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if not right or not low <= value <= high:
        within = "" if math.isinf(low) else f" of at least {low:g}"
        within = within if math.isinf(high) else f" from {low:g} to {high:g}"
        raise CreditError(f"{name} is {value!r}; a finite number{within} is needed")
    return float(value)


def whole(value: Any, name: str, *, high: int) -> int:
    """One whole number, from 0 to `high`."""
    right = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not right or not 0 <= value <= high:
        raise CreditError(f"{name} is {value!r}; a whole number from 0 to {high:,} is needed")
    return int(value)


def choice(value: Any, name: str, *options: str) -> str:
    """One of several names."""
    if not isinstance(value, str) or value not in options:
        raise CreditError(f"{name} is {value!r}; it must be one of {', '.join(map(repr, options))}")
    return str(value)
