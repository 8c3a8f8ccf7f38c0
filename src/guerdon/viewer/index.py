"""`FileIndex`: where the rows of a JSONL file are, and their columns."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import itertools
import json
import os
import shutil
import tempfile
import threading
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Self

import numpy as np

from guerdon._logging import plain
from guerdon.errors import InvalidArgumentError
from guerdon.rollouts.scoring.reading import BOM
from guerdon.rubrics.failure import describe_failure
from guerdon.tracking.log import try_lock
from guerdon.viewer.columns import Array, ColumnStore
from guerdon.viewer.kinds import (
    REQUIRED,
    Row,
    batch_of,
    is_header,
    kind_of,
    reduction_of,
    text_of,
)
from guerdon.viewer.lines import MAX_ROW, decode_row, read_rows

__all__ = ["FileIndex"]

# Rows, and bytes of them, that are in memory together. With more, the memory of the rows would not
# be reused while it is in the processor's cache.
CHUNK = 128
CHUNK_BYTES = 2**20
# The file is compared with what was indexed in blocks of so many bytes: when it is opened all of
# them, later so many at its beginning and at its end.
BLOCK_BYTES = 16 * 2**20
COMPARED = 4
# Unreadable lines before the first row, from which the kind of the file follows.
MAX_BAD = 100
# Bytes of an unreadable row that are shown.
MAX_SHOWN = 2000
# Another version makes older indexes useless.
VERSION = 4


@dataclass(slots=True)
class _State:
    """How far a file is indexed, and what it was then.

    Attributes:
        kind: The kind of its rows; empty before the first.
        unreadable: How many rows can't be read.
        is_cut: Whether the last line is cut off, or still being written.
        end: The bytes that are indexed.
        line: The number of the last line of these.
        seen: Inode, size and time of change of the file.
        sums: The checksums of the blocks of that size.
    """

    kind: str = ""
    unreadable: int = 0
    is_cut: bool = False
    end: int = 0
    line: int = 0
    seen: tuple[int, ...] = ()
    sums: tuple[int, ...] = ()


class FileIndex:
    r"""The index of a JSONL file: the place of each row, and columns of numbers, categories, texts.

    It is built while the file is read once, and kept in a folder. It is extended when the file has
    grown, and rebuilt when the file has changed otherwise. It may be used in several threads.

    Example:
        >>> import json, pathlib
        >>> rows = [{"id": each, "score": 0.5, "components": {"brief": 1.0}} for each in "ab"]
        >>> path = pathlib.Path("scored.jsonl")
        >>> _ = path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        >>> with FileIndex(path, cache=pathlib.Path("cache")) as index:
        ...     index.kind, index.rows, index.store.read("components.brief").tolist()
        ('rows', 2, [1.0, 1.0])

    Args:
        path: The file.
        cache: The folder of all indexes; by default ``guerdon/view`` in the user's caches.

    Attributes:
        path: The file.
        store: The columns.
        lock: Acquired while the columns change; acquire it to read several of them.

    Raises:
        InvalidArgumentError: The file can't be read, or has no rows of a known kind.
    """

    def __init__(self, path: str | os.PathLike[str], *, cache: Path | None = None) -> None:
        self.path = Path(path).absolute()
        self.lock = threading.RLock()
        self._closing = contextlib.ExitStack()
        self._is_compared = False
        try:
            self.folder = self._lock_folder(cache or cache_folder())
            self._state, self.store = self._load()
            self.refresh()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let other processes use the folder."""
        self._closing.close()

    @property
    def kind(self) -> str:
        """``rows``, ``diff``, ``log``, ``arena`` or ``rollouts``."""
        return self._state.kind

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.store.rows

    @property
    def seen(self) -> tuple[int, ...]:
        """The inode, the size and the time of change of the file that is indexed."""
        return self._state.seen

    @property
    def is_complete(self) -> bool:
        """Whether the last line isn't cut off."""
        return not self._state.is_cut

    @property
    def unreadable(self) -> int:
        """How many rows can't be read: they aren't valid, or are longer than 8 MiB."""
        return self._state.unreadable

    def duplicates(self, rows: Array | None = None) -> int:
        """How many rows have the id of an earlier row, among some rows or all."""
        if "id" not in self.store.columns:
            return 0
        with self.lock:
            keys = self.store.hashes("id")
        keys = keys if rows is None else keys[rows]
        keys.sort()
        same = keys[1:] == keys[:-1]
        return int(np.count_nonzero(same & (keys[1:] != 0)))  # 0 is no id

    # Rows

    def places(self, start: int, count: int) -> Array:
        """The offsets and the lengths of rows in the file, (n, 2).

        Args:
            start: The first row.
            count: How many rows, at most.
        """
        count = min(count, self.rows - start)
        return np.fromfile(self.folder / "places", "<i8", 2 * count, offset=16 * start).reshape(
            -1, 2
        )

    def read(self, rows: Sequence[int]) -> list[Row]:
        """Read rows from the file.

        Args:
            rows: Their numbers, from 0.

        Returns:
            The rows. One that is longer than 8 MiB is ``{"_too_large": bytes, "id"}``; one that
            isn't valid is ``{"error", "_unreadable": its beginning}``.

        Raises:
            InvalidArgumentError: There is no such row, or the file can't be read any more.
        """
        found = []
        with self.lock, self.opened() as file, open(self.folder / "places", "rb") as places:
            for row in rows:
                if not 0 <= row < self.rows:
                    raise InvalidArgumentError(
                        f"`at` must be in [0, {self.rows}), the rows of {self.path.name}, got {row}"
                    )
                places.seek(16 * row)
                offset, length = np.frombuffer(places.read(16), "<i8").tolist()
                file.seek(offset)
                found.append(_row_of(file.read(min(length, MAX_ROW + 1)), length))
        return found

    # The index

    def refresh(self) -> bool:
        """Index what the file has now; returns whether anything has changed.

        Raises:
            InvalidArgumentError: The file can't be read, or has no rows of a known kind.
        """
        with self.lock:
            with self.opened() as file:
                stat = os.fstat(file.fileno())
                seen = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
                is_stored = (self.folder / "places").exists()
                if is_stored and seen == self._state.seen:
                    return False
                (self.folder / "index.json").unlink(missing_ok=True)
                if not is_stored or not self._is_extended(file, seen):
                    self._begin()
                # Before the rows are read: what changes meanwhile is noticed the next time.
                state = self._state
                same = state.sums[: state.seen[1] // BLOCK_BYTES] if state.seen else ()
                blocks = range(len(same), -(-seen[1] // BLOCK_BYTES))
                state.sums = (*same, *(_checksum(file, block, seen[1]) for block in blocks))
                with _without_collection():
                    self._index(file)
            state.seen, self._is_compared = seen, True
            self._save()
            return True

    @contextlib.contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """Open the file.

        Raises:
            InvalidArgumentError: It can't be read.
        """
        try:
            with open(self.path, "rb") as file:
                yield file
        except OSError as error:
            raise InvalidArgumentError(f"can't read {self.path}: {error.strerror}") from error

    def _is_extended(self, file: IO[bytes], seen: tuple[int, ...]) -> bool:
        state = self._state
        if not state.seen or seen[0] != state.seen[0] or seen[1] <= state.seen[1]:
            return False  # it has been replaced, or was changed without growing
        blocks: Sequence[int] = range(len(state.sums))
        if self._is_compared and len(blocks) > 2 * COMPARED:
            blocks = [*blocks[:COMPARED], *blocks[-COMPARED:]]
        return all(_checksum(file, block, state.seen[1]) == state.sums[block] for block in blocks)

    def _begin(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._state, self.store = _State(), ColumnStore(self.folder)
        for file in self.folder.glob("column-*"):
            file.unlink()
        (self.folder / "places").write_bytes(b"")

    def _index(self, file: IO[bytes]) -> None:
        state = self._state
        state.kind = state.kind or self._find_kind(file)
        state.is_cut = False
        reduce, key = reduction_of(state.kind), REQUIRED.get(state.kind)
        is_rollout = state.kind == "rollouts"
        rows: list[Row] = []
        problems: dict[int, tuple[str, Any]] = {}  # the error and the id of unreadable ones
        places: list[tuple[int, int]] = []
        size = 0
        for number, offset, length, is_whole, row, problem in read_rows(
            file, state.end, state.line
        ):
            if problem and not is_whole:
                state.is_cut = True  # it may still be being written
                break
            state.end, state.line = offset + length, number
            if not problem and key is not None and key not in row:
                if is_header(row):
                    continue
                problem = f"the row has no {key!r}"
            if problem:
                problems[len(rows)] = problem, row.get("id")
                row = {}
            elif is_rollout:
                row.setdefault("id", number)  # as `Rollout.from_row` does
            rows.append(reduce(row))
            places.append((offset, length))
            size += length
            if len(rows) >= CHUNK or size >= CHUNK_BYTES:
                self._append(rows, problems, places)
                rows, problems, places, size = [], {}, [], 0
        if rows:
            self._append(rows, problems, places)
        self.store.flush()

    def _append(
        self,
        rows: list[Row],
        problems: dict[int, tuple[str, Any]],
        places: list[tuple[int, int]],
    ) -> None:
        try:
            batch = batch_of(self.kind, rows)
        except Exception:
            self._leave_out_odd(rows, problems)
            batch = batch_of(self.kind, rows)
        for place, (problem, id) in problems.items():
            known = {"id": text_of(id), "error": problem}
            for name, texts in batch.texts.items():
                texts[place] = known[name]
            for name, values in batch.categories.items():
                values[place] = "unreadable" if name == "status" else None
        self._state.unreadable += len(problems)
        with open(self.folder / "places", "ab") as file:
            file.write(np.array(places, "<i8").tobytes())
        self.store.append(batch)

    def _leave_out_odd(self, rows: list[Row], problems: dict[int, tuple[str, Any]]) -> None:
        """Empty the rows that have no columns, as their values are of other types or too deep."""
        for place, row in enumerate(rows):
            try:
                batch_of(self.kind, [row])
            except Exception as error:
                id = row.get("id")
                known = id if isinstance(id, str | int) else None
                problems[place] = f"the row has no columns: {describe_failure(error)}", known
                rows[place] = {}

    def _find_kind(self, file: IO[bytes]) -> str:
        """The kind of the first row that can be read."""
        for *_, row, problem in itertools.islice(read_rows(file, 0, 0), MAX_BAD):
            if problem:
                continue
            kind = kind_of(row)
            if kind is None:
                raise InvalidArgumentError(
                    f"{self.path} must have rows of guerdon score or guerdon diff --out, of "
                    "RewardLogger or of guerdon arena, or rollouts; its first row has the keys "
                    f"{', '.join(map(plain, list(row)[:8]))}"
                )
            return kind
        raise InvalidArgumentError(
            f"{self.path} has no rows: it is empty or cut off, or its lines are no JSON objects"
        )

    # The folder

    def _lock_folder(self, cache: Path) -> Path:
        """The folder of this file's index, or a new one if that is in use or can't be written."""
        folder = cache / hashlib.sha256(os.fsencode(self.path)).hexdigest()[:32]
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = try_lock(folder / "lock")
            if lock is not None:
                self._closing.callback(os.close, lock)
                (folder / "path").write_bytes(os.fsencode(self.path))
                return folder
        temporary = tempfile.TemporaryDirectory(prefix="guerdon-view-")
        return Path(self._closing.enter_context(temporary))

    def _load(self) -> tuple[_State, ColumnStore]:
        """What an earlier process indexed; empty if there is nothing."""
        try:
            data = json.loads((self.folder / "index.json").read_bytes())
            store = ColumnStore(self.folder, data["store"])
            is_ours = data["version"] == VERSION and data["path"] == str(self.path)
            if is_ours and data["checksum"] == self._stored(store):
                lists = {name: tuple(data["state"][name]) for name in ("seen", "sums")}
                return _State(**{**data["state"], **lists}), store
        except (OSError, ValueError, KeyError, TypeError):
            pass  # there is none, or it is damaged
        return _State(), ColumnStore(self.folder)

    def _save(self) -> None:
        data = {
            "version": VERSION,
            "path": str(self.path),
            "state": asdict(self._state),
            "store": self.store.state(),
            "checksum": self._stored(self.store),
        }
        draft = self.folder / "index.draft"
        draft.write_text(json.dumps(data), encoding="ascii")
        draft.replace(self.folder / "index.json")

    def _stored(self, store: ColumnStore) -> int:
        """The checksum of the files of an index."""
        checksum = 0
        for path in (self.folder / "places", *(column.file for column in store)):
            with path.open("rb") as file:
                while data := file.read(CHUNK_BYTES):
                    checksum = zlib.crc32(data, checksum)
        return checksum


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Pause the garbage collector: rows have no cycles, and it would take a tenth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def cache_folder() -> Path:
    """The folder of all indexes; those of files that don't exist any more are removed."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base, "guerdon", "view")
    for path in folder.glob("*/path"):
        with contextlib.suppress(OSError):
            if not os.path.exists(path.read_bytes()):
                lock = try_lock(path.parent / "lock")
                if lock is not None:  # else a view has it open
                    shutil.rmtree(path.parent)
                    os.close(lock)
    return folder


def _row_of(data: bytes, length: int) -> Row:
    row, problem = decode_row(data.removeprefix(BOM), length)
    if length > MAX_ROW:
        return {"_too_large": length, "id": row.get("id")}
    if problem:
        beginning = data[:MAX_SHOWN].decode("utf-8", "replace")
        return {"id": None, "error": problem, "_unreadable": beginning}
    return row


def _checksum(file: IO[bytes], block: int, end: int) -> int:
    """The checksum of a block of a file, up to an offset."""
    start = block * BLOCK_BYTES
    file.seek(start)
    return zlib.crc32(file.read(min(BLOCK_BYTES, end - start)))
