"""`ViewedFile`: one file of the page, its rows joined with their rollouts."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from guerdon.errors import InvalidArgumentError
from guerdon.rollouts.scoring.result_rows import encode_row
from guerdon.viewer.columns import BLOCK, MAX_COLUMNS, NO_VALUE, TYPES, Array, Column
from guerdon.viewer.index import FileIndex
from guerdon.viewer.kinds import Row, text_of, text_of_parts
from guerdon.viewer.searching import rows_with

__all__ = ["ViewedFile"]

# Rows of one answer, and their bytes.
MAX_ROWS = 200
MAX_BYTES = 8 * 2**20
# Characters of a row in the list.
MAX_BRIEF = 200
# Seconds of a search.
SEARCH_S = 5.0


class ViewedFile:
    """One file of the page.

    Args:
        index: The file.
        rollouts: Their rollouts, which are joined by id; None if there are none.
        name: What the page calls it; by default the name of the file without its folder.
    """

    def __init__(
        self, index: FileIndex, rollouts: FileIndex | None = None, *, name: str | None = None
    ) -> None:
        self.index = index
        self.name = index.path.name if name is None else name
        self.rollouts = rollouts if index.kind in ("rows", "diff") else None
        # What was computed, with the state of the files then.
        self._kept: dict[str, tuple[Any, Any]] = {}

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.index.rows

    @property
    def version(self) -> str:
        """A text that differs once the file or its rollouts have changed."""
        seen = self.index.seen + (() if self.rollouts is None else self.rollouts.seen)
        return "-".join(map(str, seen))

    def refresh(self) -> bool:
        """Index what the files have now; returns whether anything has changed."""
        changed = self.index.refresh()
        return (self.rollouts is not None and self.rollouts.refresh()) or changed

    def info(self) -> dict[str, Any]:
        """What the page needs of the file before it requests columns, as JSON data."""
        index = self.index
        info: dict[str, Any] = {
            "name": self.name,
            "kind": index.kind,
            "rows": index.rows,
            "complete": index.is_complete,
            "duplicates": self._kept_for("duplicates", index, index.duplicates),
            "note": self._note(),
            "columns": [_described(name, column) for name, (_, column) in self._columns().items()],
        }
        if self.rollouts is not None:
            info["without_rollout"] = int((self.join(self.rollouts) < 0).sum())
            many = self._kept_for("rollouts", self.rollouts, self.rollouts.duplicates)
            info["duplicate_rollouts"] = many
        return info

    def _kept_for(self, name: str, index: FileIndex, compute: Callable[[], Any]) -> Any:
        """What a function returns, computed again only if a file has changed."""
        state = (self.index.seen, index.seen)
        if name not in self._kept or self._kept[name][0] != state:
            self._kept[name] = state, compute()
        return self._kept[name][1]

    def _note(self) -> str:
        notes = []
        for index in (self.index, self.rollouts):
            if index is None:
                continue
            if index.unreadable:
                notes.append(f"{index.unreadable:,} rows of {index.path.name} can't be read")
            if not index.is_complete:
                notes.append(f"the last line of {index.path.name} is cut off")
            if index.store.is_cut:
                shown = f"the first {MAX_COLUMNS} columns of {index.path.name} are shown"
                notes.append(f"{shown}, and no names over 200 characters")
        return "; ".join(notes)

    # Columns

    def _columns(self) -> dict[str, tuple[FileIndex, Column]]:
        """The columns of the rows and of their rollouts by name."""
        # Copies: another thread may add columns of a file that has grown.
        found = {name: (self.index, each) for name, each in dict(self.index.store.columns).items()}
        if self.rollouts is not None:
            for name, column in dict(self.rollouts.store.columns).items():
                if name in found and name not in ("id", "turns", "error"):
                    name = f"task.{name}"
                found.setdefault(name, (self.rollouts, column))
        return found

    def columns(self, names: Sequence[str]) -> tuple[dict[str, Any], Iterator[Iterator[Array]]]:
        """The header of an answer with columns, and the parts of each column.

        Raises:
            InvalidArgumentError: There is no such column of numbers or categories.
        """
        known = self._columns()
        header: dict[str, Any] = {"rows": self.rows, "columns": []}
        offset = 0
        for name in names:
            if name not in known or known[name][1].type == "text":
                raise InvalidArgumentError(f"there is no column of numbers or categories {name!r}")
            type_ = known[name][1].type
            size = self.rows * TYPES[type_].itemsize
            header["columns"].append({"name": name, "type": type_, "offset": offset, "bytes": size})
            offset += -(-size // 8) * 8
        return header, (self._parts(*known[name], header["rows"]) for name in names)

    def _parts(self, index: FileIndex, column: Column, rows: int) -> Iterator[Array]:
        """The entries of a column of the rows or of their rollouts."""
        store, name = index.store, column.name
        if index is self.index:
            for start in range(0, rows, BLOCK):
                yield store.read(name, start, min(BLOCK, rows - start))
            return
        places = self.join(index)
        entries = store.read(name)
        for start in range(0, rows, BLOCK):
            yield _taken(entries, places[start : min(start + BLOCK, rows)], NO_VALUE[column.type])

    # Ids

    def join(self, other: FileIndex) -> Array:
        """The row of another file with the same id, (rows,); -1 if that file lacks the id.

        The second row with an id belongs to the second one of the other file, and so on; to the
        first one, if the other file has fewer.
        """
        if other is self.rollouts:
            return self._kept_for("join", other, lambda: _join(self.index, other))  # type: ignore[no-any-return]
        return _join(self.index, other)

    def order(self, name: str) -> Array:
        """The rows with a text in a column of texts, in the order of these, (n,).

        Texts are compared by 24 bytes after what all have in common, and equal ones by their row.

        Raises:
            InvalidArgumentError: There is no such column of texts.
        """
        known = self._columns()
        if name not in known or known[name][1].type != "text":
            raise InvalidArgumentError(f"there is no column of texts {name!r}")
        index, column = known[name]
        order, has_text = np.arange(self.rows, dtype=np.int32), np.zeros(self.rows, bool)
        for words in index.store.sort_words(column.name):
            if index is not self.index:
                words = _taken(words, self.join(index), 0)
            has_text |= words != 0
            words = words[order]
            order = order[np.argsort(words, kind="stable")]
        return order[np.count_nonzero(~has_text) :]

    # Rows

    def read(self, rows: Sequence[int], *, brief: bool = False) -> list[bytes]:
        """Rows as lines of JSON, each with its rollout, or null, as ``_rollout``.

        Args:
            rows: Their numbers, at most 200.
            brief: Whether to return ``id``, ``group``, ``error`` and the beginning of the ``text``
                only.

        Raises:
            InvalidArgumentError: There is no such row, or there are too many.
        """
        if len(rows) > MAX_ROWS:
            raise InvalidArgumentError(f"`at` must have at most {MAX_ROWS} rows, got {len(rows)}")
        lines, size = [], 0
        for row in rows:
            line = self._line(row, brief=brief)
            if size + len(line) > MAX_BYTES:
                [found] = self.index.read([row])
                line = encode_row({"_too_large": len(line), "id": found.get("id")})
            size += len(line)
            lines.append(line)
        return lines

    def _line(self, row: int, *, brief: bool) -> bytes:
        try:
            joined = self.joined_row(row)
            return encode_row(_brief(joined) if brief else joined)
        except InvalidArgumentError:
            raise
        except Exception as error:  # of a value of another type, or nested too deeply
            return encode_row({"id": None, "error": f"the row can't be shown: {error}"})

    def joined_row(self, row: int) -> Row:
        """A row with its rollout, or None, as ``_rollout``."""
        [found] = self.index.read([row])
        place = -1 if self.rollouts is None else int(self.join(self.rollouts)[row])
        rollout = None
        if self.rollouts is not None and place >= 0:
            [rollout] = self.rollouts.read([place])
            if text_of(rollout.get("id", found.get("id"))) != text_of(found.get("id")):
                rollout = None  # another id with the same hash
        return {**found, "_rollout": rollout}

    def search(self, text: str) -> tuple[Array, bool]:
        """The rows with a text, in ascending order, and whether the search ran out of time.

        Upper and lower case are the same. Ids, errors, reasons and messages are searched.
        """
        deadline = time.monotonic() + SEARCH_S
        found, is_cut = rows_with(self.index, text, deadline)
        if self.rollouts is not None:
            places, is_also_cut = rows_with(self.rollouts, text, deadline)
            joined = np.isin(self.join(self.rollouts), places)
            found = np.union1d(found, np.flatnonzero(joined)).astype(np.int32)
            is_cut = is_cut or is_also_cut
        return found, is_cut


def packed_header(header: dict[str, Any]) -> bytes:
    """A header as JSON after its length; what follows begins at a multiple of 8 bytes."""
    data = json.dumps(header).encode()
    data += b" " * (-(4 + len(data)) % 8)
    return struct.pack("<I", len(data)) + data


def _join(index: FileIndex, other: FileIndex) -> Array:
    if not other.rows or not all("id" in each.store.columns for each in (index, other)):
        return np.full(index.rows, -1, np.int32)
    hashes = other.store.hashes("id")
    order = np.argsort(hashes, kind="stable").astype(np.int32)
    hashes = hashes[order]
    found = np.full(index.rows, -1, np.int32)
    earlier = _earlier(index.store.hashes("id")) if index.duplicates() else None
    for number, own in enumerate(index.store.hash_blocks("id")):
        rows = slice(number * BLOCK, number * BLOCK + len(own))
        places = np.minimum(np.searchsorted(hashes, own), len(hashes) - 1)
        if earlier is not None:
            later = np.minimum(places + earlier[rows], len(hashes) - 1)
            places = np.where(hashes[later] == own, later, places)
        is_known = (hashes[places] == own) & (own != 0)  # 0 is no id
        found[rows] = np.where(is_known, order[places], -1)
    return found


def _earlier(keys: Array) -> Array:
    """How many of the keys before each one are equal to it."""
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    found = np.empty(len(keys), np.int32)
    found[order] = np.arange(len(keys)) - np.searchsorted(keys, keys)
    return found


def _taken(entries: Array, places: Array, empty: Any) -> Array:
    """The entries at some places; empty where the place is -1."""
    found = entries[np.maximum(places, 0)]
    found[places < 0] = empty
    return found


def _described(name: str, column: Column) -> dict[str, Any]:
    values = {"values": list(column.values)} if column.type == "category" else {}
    return {"name": name, "type": column.type, **values}


def _brief(row: Row) -> Row:
    """What the list shows of a row with its rollout."""
    brief = {name: row.get(name) for name in ("id", "group", "error")}
    messages: Any = (row["_rollout"] or {}).get("messages")
    for message in reversed(messages if isinstance(messages, list) else []):
        if isinstance(message, dict) and message.get("role") == "assistant":
            text = text_of_parts(message.get("content")) or _calls_of(message)
            return {**brief, "text": text[:MAX_BRIEF]}
    return {**brief, "text": str(row.get("reason") or "")[:MAX_BRIEF]}


def _calls_of(message: Row) -> str:
    """The calls of a message, as the page itself shows them."""
    calls: Any = message.get("tool_calls")
    calls = calls if isinstance(calls, list) else ()
    functions = [call.get("function") for call in calls if isinstance(call, dict)]
    named = [each for each in functions if isinstance(each, dict)]
    return "; ".join(f"{each.get('name')}({_inner(each.get('arguments'))})" for each in named)


def _inner(arguments: Any) -> str:
    return str(arguments or "").removeprefix("{").removesuffix("}")
