"""`ColumnStore`: columns of numbers, categories and texts in files, which grow by whole chunks."""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from guerdon._validation import as_score

Array: TypeAlias = npt.NDArray[Any]

# Further columns are left out.
MAX_COLUMNS = 500
# Values of a category, and of all categories of a file together. A category with more values
# becomes a text.
MAX_VALUES = 50_000
MAX_ALL_VALUES = 200_000
# Characters of a column's name.
MAX_NAME = 200
# Bytes of a text by which rows are sorted and joined. A longer one ends with its digest.
KEY = 64
# Bytes after the beginning that all texts share by which they are sorted.
SORTED = 24
# Rows that are read or written at once.
BLOCK = 65_536

TYPES = {"number": np.dtype("<f8"), "category": np.dtype("<i4"), "text": np.dtype(f"S{KEY}")}
EMPTY: Mapping[str, Any] = {}


class Record(NamedTuple):
    """What one row adds to the columns; a column that it doesn't name has no value there.

    Attributes:
        numbers: Numbers by column; what isn't a finite number is absent.
        categories: Values by column, as `label_of` returns them.
        texts: Texts by column.
        spread: Numbers whose columns have the key as their prefix.
    """

    numbers: Mapping[str, Any] = EMPTY
    categories: Mapping[str, str | None] = EMPTY
    texts: Mapping[str, str | None] = EMPTY
    spread: Mapping[str, Mapping[str, Any]] = EMPTY


def key_of(text: str | None) -> bytes:
    """The bytes by which a text is sorted and joined."""
    data = (text or "").encode("utf-8", "surrogatepass")
    if len(data) <= KEY:
        return data
    digest = blake2b(data, digest_size=12).hexdigest().encode()
    return data[: KEY - len(digest)] + digest


@dataclass(slots=True)
class Column:
    """One column.

    Attributes:
        name: Its name.
        type: ``number``, ``category`` or ``text``.
        key: The type, the prefix and the name that it has in the records.
        file: The file of its entries.
        values: The codes of a category by value.
    """

    name: str
    type: str
    key: tuple[str, str, str]
    file: Path
    values: dict[str, int] = field(default_factory=dict)


class ColumnStore:
    """The columns of a file of rows, each in a file of its own.

    Args:
        folder: Where the files are.
        state: What `state` returned; None begins without columns.

    Attributes:
        rows: The number of rows.
        columns: The columns by name.
        is_cut: Whether there were more than `MAX_COLUMNS`, of which the last are left out.
    """

    def __init__(self, folder: Path, state: Mapping[str, Any] | None = None) -> None:
        state = state or {"rows": 0, "is_cut": False, "columns": ()}
        self.folder = folder
        self.rows: int = state["rows"]
        self.is_cut: bool = state["is_cut"]
        self.columns: dict[str, Column] = {}
        # By type and prefix, then by the name in the records.
        self._known: dict[tuple[str, str], dict[str, Column]] = {}
        for (type_, prefix, key), name, kind, values in state["columns"]:
            codes = {value: code for code, value in enumerate(values)}
            column = Column(name, kind, (type_, prefix, key), self._next(), codes)
            self.columns[name] = self._known.setdefault((type_, prefix), {})[key] = column
        self._values = sum(len(column.values) for column in self.columns.values())

    def state(self) -> dict[str, Any]:
        """What is needed to continue, as JSON data."""
        columns = [(each.key, each.name, each.type, list(each.values)) for each in self]
        return {"rows": self.rows, "is_cut": self.is_cut, "columns": columns}

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns.values())

    def _next(self) -> Path:
        return self.folder / f"column-{len(self.columns)}"

    # Writing

    def append(self, records: Sequence[Record]) -> None:
        """Add rows at the end."""
        self._add("number", "", [each.numbers for each in records])
        self._add("category", "", [each.categories for each in records])
        self._add("text", "", [each.texts for each in records])
        prefixes = [prefix for _, prefix in self._known if prefix]
        for prefix in dict.fromkeys([*prefixes, *(p for each in records for p in each.spread)]):
            self._add("number", prefix, [each.spread.get(prefix, EMPTY) for each in records])
        self.rows += len(records)

    def _add(self, type_: str, prefix: str, rows: list[Mapping[str, Any]]) -> None:
        known = self._known.setdefault((type_, prefix), {})
        is_full = self.is_cut and len(self.columns) >= MAX_COLUMNS
        if not is_full and set().union(*rows) - known.keys():
            self._find(type_, prefix, rows)
        default = math.nan if type_ == "number" else None
        for key, column in known.items():
            self._write(column, self._encoded(column, [row.get(key, default) for row in rows]))

    def _find(self, type_: str, prefix: str, rows: list[Mapping[str, Any]]) -> None:
        """Begin the columns that are new in these rows."""
        known = self._known[type_, prefix]
        for key in dict.fromkeys(key for row in rows for key in row):
            if key in known:
                continue
            name = prefix + key
            if name in self.columns:  # such as a column of the task with the name of one of ours
                name = f"task.{name}"
            if len(self.columns) >= MAX_COLUMNS:
                self.is_cut = True
                break
            if len(name) > MAX_NAME or name in self.columns:
                self.is_cut = True
            else:
                known[key] = self._new(Column(name, type_, (type_, prefix, key), self._next()))

    def _new(self, column: Column) -> Column:
        column.file.write_bytes(b"")
        empty = {"number": math.nan, "category": -1, "text": b""}[column.type]
        for start in range(0, self.rows, BLOCK):
            count = min(BLOCK, self.rows - start)
            self._write(column, np.full(count, empty, TYPES[column.type]))
        self.columns[column.name] = column
        return column

    def _encoded(self, column: Column, values: list[Any]) -> Array:
        if column.type == "number":
            return _floats(values)
        if column.type == "category":
            codes = self._codes(column, values)
            if codes is not None:
                return codes
            self._make_text(column)
        return np.array(list(map(key_of, values)), TYPES["text"])

    def _codes(self, column: Column, values: list[str | None]) -> Array | None:
        """The codes of values; None if there are too many of them."""
        known = column.values
        before = len(known)
        for value in dict.fromkeys(values):
            if value is not None:
                known.setdefault(value, len(known))
        self._values += len(known) - before
        if len(known) > MAX_VALUES or self._values > MAX_ALL_VALUES:
            return None
        return np.array([known.get(value, -1) for value in values], TYPES["category"])  # type: ignore[arg-type]

    def _make_text(self, column: Column) -> None:
        """Make a text of a category that has too many values."""
        keys = np.array([*map(key_of, column.values), b""], TYPES["text"])  # -1 is the last
        codes, file = column.file, column.file.with_suffix(".text")
        with file.open("wb") as out:
            for part in self._blocks(codes, TYPES["category"]):
                out.write(keys[part].tobytes())
        file.replace(codes)
        self._values -= len(column.values)
        column.type, column.values = "text", {}

    def _write(self, column: Column, data: Array) -> None:
        with column.file.open("ab") as file:
            file.write(data.tobytes())

    # Reading

    def read(self, name: str, start: int = 0, count: int | None = None) -> Array:
        """The entries of a column.

        Args:
            name: The column.
            start: The first row.
            count: How many rows; None for all from there on.

        Returns:
            Of shape (count,): numbers, NaN where there is none; codes, -1 where there is none; or
            the keys of texts.
        """
        column = self.columns[name]
        return _read(column.file, TYPES[column.type], start, self.rows - start, count)

    def blocks(self, name: str) -> Iterator[Array]:
        """The entries of a column, part by part."""
        column = self.columns[name]
        return self._blocks(column.file, TYPES[column.type])

    def _blocks(self, file: Path, type_: np.dtype[Any]) -> Iterator[Array]:
        for start in range(0, self.rows, BLOCK):
            yield _read(file, type_, start, self.rows - start, BLOCK)

    def hashes(self, name: str) -> Array:
        """A 64-bit hash of each entry of a text column, (rows,)."""
        found = np.empty(self.rows, np.uint64)
        for number, keys in enumerate(self.blocks(name)):
            words = keys.view(np.uint64).reshape(len(keys), -1)
            mixed = np.zeros(len(keys), np.uint64)
            for word in words.T:
                mixed = (mixed ^ word) * np.uint64(0x9E3779B97F4A7C15)
                mixed ^= mixed >> np.uint64(29)
            found[number * BLOCK : number * BLOCK + len(keys)] = mixed
        return found

    def sort_keys(self, name: str) -> Array:
        """The bytes of a text column that differ, (rows,), for sorting in little memory."""
        shared = self._shared(name)
        parts = [
            np.ascontiguousarray(keys.view("S1").reshape(len(keys), KEY)[:, shared:][:, :SORTED])
            for keys in self.blocks(name)
        ]
        width = min(SORTED, KEY - shared)
        if not parts:
            return np.empty(0, f"S{width}")
        return np.concatenate(parts).view(f"S{width}").reshape(-1)

    def _shared(self, name: str) -> int:
        """How many bytes at the beginning are the same in all entries that aren't empty."""
        low: bytes | None = None
        high = b""
        for keys in self.blocks(name):
            present = keys[keys != b""]
            if len(present):
                least, greatest = np.sort(present)[[0, -1]]
                low = least if low is None else min(low, least)
                high = max(high, greatest)
        return min(len(os.path.commonprefix([low or b"", high])), KEY - 1)


def _read(file: Path, type_: np.dtype[Any], start: int, most: int, count: int | None) -> Array:
    count = most if count is None else min(count, most)
    return np.fromfile(file, type_, count, offset=start * type_.itemsize)


def _floats(values: list[Any]) -> Array:
    try:
        found = np.frombuffer(array("d", values))
    except (TypeError, OverflowError):  # not only numbers
        numbers = map(as_score, values)
        found = np.array([math.nan if each is None else each for each in numbers])
    return np.where(np.isfinite(found), found, math.nan).astype(TYPES["number"], copy=False)
