"""`ColumnStore`: columns of numbers, categories and texts in files, which grow by whole chunks."""

from __future__ import annotations

import itertools
import math
import sys
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeAlias

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
# Bytes of all columns that wait to be written.
MAX_WAITING = 8 * 2**20
# Rows that are read or written at once.
BLOCK = 65_536

TYPES: dict[str, np.dtype[Any]] = {
    "number": np.dtype("<f8"),
    "category": np.dtype("<i4"),
    "text": np.dtype(f"S{KEY}"),
}
# The entry of a row without a value, and its bytes.
NO_VALUE: dict[str, Any] = {"number": math.nan, "category": -1, "text": b""}
EMPTY_ENTRY = {name: np.array(NO_VALUE[name], type_).tobytes() for name, type_ in TYPES.items()}
EMPTY: Mapping[str, Any] = {}


@dataclass(slots=True)
class Batch:
    """What some rows add to the columns; a column that isn't named has no values there.

    Attributes:
        rows: The number of rows.
        numbers: One value per row by column; what isn't a finite number is absent.
        categories: One value per row by column, as `label_of` returns them.
        texts: One value per row by column.
        spread: One mapping per row by prefix: of the name of a number, after the prefix, to it.
    """

    rows: int
    numbers: dict[str, list[Any]] = field(default_factory=dict)
    categories: dict[str, list[str | None]] = field(default_factory=dict)
    texts: dict[str, list[str | None]] = field(default_factory=dict)
    spread: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)


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
        key: The type and the name that it has in the batches.
        file: The file of its entries.
        values: The codes of a category by value.
        waiting: Entries that aren't in the file yet.
    """

    name: str
    type: str
    key: tuple[str, str]
    file: Path
    values: dict[str, int] = field(default_factory=dict)
    waiting: bytearray = field(default_factory=bytearray)


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
        self._written = self.rows
        self.is_cut: bool = state["is_cut"]
        self.columns: dict[str, Column] = {}
        self._known: dict[tuple[str, str], Column] = {}
        for (type_, key), name, kind, values in state["columns"]:
            codes = {value: code for code, value in enumerate(values)}
            self._add(Column(name, kind, (type_, key), self._next(), codes))
        self._values = sum(len(column.values) for column in self)

    def state(self) -> dict[str, Any]:
        """What is needed to continue, as JSON data."""
        columns = [(each.key, each.name, each.type, list(each.values)) for each in self]
        return {"rows": self.rows, "is_cut": self.is_cut, "columns": columns}

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns.values())

    def _next(self) -> Path:
        return self.folder / f"column-{len(self.columns)}"

    def _add(self, column: Column) -> None:
        self.columns[column.name] = self._known[column.key] = column

    # Writing

    def append(self, batch: Batch) -> None:
        """Add rows at the end; they can be read after `flush`."""
        for column, values in self._columns_of(batch):
            encoded = self._encoded(column, values)  # may change what waits
            column.waiting += encoded
        self.rows += batch.rows
        for column in self:
            size = TYPES[column.type].itemsize
            lacking = self.rows - self._written - len(column.waiting) // size
            if lacking:
                column.waiting += EMPTY_ENTRY[column.type] * lacking
        if sum(len(column.waiting) for column in self) > MAX_WAITING:
            self.flush()

    def flush(self) -> None:
        """Write to the files what was appended."""
        for column in self:
            with column.file.open("ab") as file:
                file.write(column.waiting)
            column.waiting.clear()
        self._written = self.rows

    def _columns_of(self, batch: Batch) -> Iterator[tuple[Column, list[Any]]]:
        given: tuple[tuple[str, dict[str, Any]], ...] = (
            ("number", batch.numbers), ("category", batch.categories), ("text", batch.texts),
        )  # fmt: skip
        for type_, columns in given:
            for name, values in columns.items():
                column = self._column(type_, name)
                if column is not None:
                    yield column, values
        for prefix, rows in batch.spread.items():
            for name in dict.fromkeys(itertools.chain.from_iterable(rows)):
                column = self._column("number", prefix + name)
                if column is not None:
                    yield column, [row.get(name, math.nan) for row in rows]

    def _column(self, type_: str, key: str) -> Column | None:
        """The column of that name, which is added if it is new; None if it is left out."""
        column = self._known.get((type_, key))
        if column is not None:
            return column
        # A column of the task may have the name of one of ours.
        name = f"task.{key}" if key in self.columns else key
        is_full = len(self.columns) >= MAX_COLUMNS
        if is_full or len(name) > MAX_NAME or name in self.columns:
            self.is_cut = True
            return None
        column = Column(name, type_, (type_, key), self._next())
        with column.file.open("wb") as file:
            for start in range(0, self._written, BLOCK):
                file.write(EMPTY_ENTRY[type_] * min(BLOCK, self._written - start))
        column.waiting += EMPTY_ENTRY[type_] * (self.rows - self._written)
        self._add(column)
        return column

    def _encoded(self, column: Column, values: list[Any]) -> bytes:
        if column.type == "number":
            return _floats(values)
        if column.type == "category":
            codes = self._codes(column, values)
            if codes is not None:
                return codes
            self._make_text(column)
        if not any(values):  # as usual for errors
            return EMPTY_ENTRY["text"] * len(values)
        return b"".join([key_of(value).ljust(KEY, b"\0") for value in values])

    def _codes(self, column: Column, values: list[str | None]) -> bytes | None:
        """The codes of values; None if there are too many of them."""
        known = column.values
        before = len(known)
        for value in dict.fromkeys(values):
            if value is not None:
                known.setdefault(value, len(known))
        self._values += len(known) - before
        if len(known) > MAX_VALUES or self._values > MAX_ALL_VALUES:
            return None
        codes = [-1 if value is None else known[value] for value in values]
        return np.array(codes, TYPES["category"]).tobytes()

    def _make_text(self, column: Column) -> None:
        """Make a text of a category that has too many values.

        The other columns may or may not have the rows of the batch yet: nothing of them is written.
        """
        keys = np.array([*map(key_of, column.values), b""], TYPES["text"])  # -1 is the last
        draft = column.file.with_suffix(".text")
        with draft.open("wb") as file:
            for codes in self._blocks(column):
                file.write(keys[codes].tobytes())
        draft.replace(column.file)
        waiting = np.frombuffer(bytes(column.waiting), TYPES["category"])
        column.waiting[:] = keys[waiting].tobytes()
        self._values -= len(column.values)
        column.type, column.values = "text", {}

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
        return _read(column, start, self.rows - start if count is None else count)

    def blocks(self, name: str) -> Iterator[Array]:
        """The entries of a column, part by part."""
        return self._blocks(self.columns[name])

    def _blocks(self, column: Column) -> Iterator[Array]:
        for start in range(0, self._written, BLOCK):
            yield _read(column, start, min(BLOCK, self._written - start))

    def hash_blocks(self, name: str) -> Iterator[Array]:
        """A 64-bit hash of each entry of a text column, part by part; 0 for no text."""
        for keys in self.blocks(name):
            mixed = np.zeros(len(keys), np.uint64)
            for word in keys.view(np.uint64).reshape(len(keys), -1).T:
                mixed = (mixed ^ word) * np.uint64(0x9E3779B97F4A7C15)
                mixed ^= mixed >> np.uint64(29)
            yield mixed

    def hashes(self, name: str) -> Array:
        """A 64-bit hash of each entry of a text column, (rows,); 0 for no text."""
        found = np.empty(self._written, np.uint64)
        for number, mixed in enumerate(self.hash_blocks(name)):
            found[number * BLOCK :][: len(mixed)] = mixed
        return found

    def sort_words(self, name: str) -> Iterator[Array]:
        """The bytes by which a text column is sorted, 4 at a time as a number, the last ones first.

        Yields:
            Of shape (rows,): 0 for no text.
        """
        shared = self._shared(name)
        for start in reversed(range(shared, min(shared + SORTED, KEY), 4)):
            yield self._words(name, start)

    def _words(self, name: str, start: int) -> Array:
        words = np.zeros(self._written, np.uint32)
        width = min(4, KEY - start)
        for number, keys in enumerate(self.blocks(name)):
            part = words[number * BLOCK :][: len(keys)].view(np.uint8).reshape(-1, 4)
            part[:, :width] = keys.view(np.uint8).reshape(-1, KEY)[:, start : start + width]
        return words.byteswap(inplace=True) if sys.byteorder == "little" else words

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
        pairs = enumerate(zip(low or b"", high, strict=False))
        return next((at for at, (one, other) in pairs if one != other), 0)


def _read(column: Column, start: int, count: int) -> Array:
    type_ = TYPES[column.type]
    return np.fromfile(column.file, type_, count, offset=start * type_.itemsize)


def _floats(values: list[Any]) -> bytes:
    try:
        found = array("d", values)
    except (TypeError, OverflowError):  # not only numbers
        numbers = map(as_score, values)
        found = array("d", [math.nan if each is None else each for each in numbers])
    entries = np.frombuffer(found)
    if np.isinf(entries).any():
        entries = np.where(np.isinf(entries), math.nan, entries)
    return entries.tobytes()
