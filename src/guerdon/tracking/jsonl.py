"""Rewards as lines of JSON in a file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from guerdon.tracking.file_locks import locked, write_all
from guerdon.tracking.protocol import TrackedRun
from guerdon.tracking.records import TrackedRecord

__all__ = ["JsonlTracker"]

# How far back it looks for what was written already: far more than one batch.
TAIL_BYTES = 4 << 20


class JsonlTracker:
    """Appends each record to a file, as a line of JSON with the fields of `TrackedRecord`.

    Beside these stand its ``metrics``, under the names that the other trackers show.

    ``env_id`` is a field, so environments never meet; names are as they were given. Several
    processes may write to one file. Each record is there once, also after a process was killed: a
    half-written line is taken away by the next that writes, and the record comes again.

    Example:
        >>> import json
        >>> from pathlib import Path
        >>> from guerdon.tracking import JsonlTracker, RewardLogger
        >>> with RewardLogger(JsonlTracker("mine.jsonl"), path="logs") as logger:
        ...     logger.log_step(7, 2, 0.5, {"tests": 1.0}, "env-0")
        >>> row = json.loads(Path("mine.jsonl").read_text())
        >>> row["env_id"], row["step"], row["reward"], row["components"]
        ('env-0', 7, 0.5, {'tests': 1.0})
        >>> row["metrics"]
        {'reward/total': 0.5, 'reward/tests': 1.0}

    Args:
        path: The file; by default ``rewards.jsonl`` in the run's folder.
    """

    name = "jsonl"

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = None if path is None else Path(path).absolute()
        self._place = Path()
        self._file = -1
        self._there: set[str] | None = None

    def open(self, run: TrackedRun) -> None:
        """Open the file, making it and its folder where they aren't there."""
        self._place = self.path or run.folder / "rewards.jsonl"
        self._file, self._there = self._opened(), None

    def _opened(self) -> int:
        self._place.parent.mkdir(parents=True, exist_ok=True)
        return os.open(self._place, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, records: Sequence[TrackedRecord]) -> None:
        """Append them, but for those that were there before."""
        self._follow()
        with locked(self._file):
            end = self._mend()
            if self._there is None:
                self._there = set(self._ids(end))
            there = self._there
            data = b"".join(_line(record) for record in records if record.id not in there)
            try:
                write_all(self._file, data)
            except OSError:
                os.ftruncate(self._file, end)
                raise

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
        self._file = -1

    def _follow(self) -> None:
        """Open the file anew where the present one was moved or removed, as logs are rotated."""
        try:
            moved = not os.path.samestat(os.stat(self._place), os.fstat(self._file))
        except FileNotFoundError:
            moved = True
        if moved:
            new = self._opened()
            os.close(self._file)
            self._file = new

    def _mend(self) -> int:
        """Take a last line without its end away; the bytes that there are then."""
        whole = os.lseek(self._file, 0, os.SEEK_END)
        os.lseek(self._file, max(0, whole - 1), os.SEEK_SET)
        if whole and os.read(self._file, 1) != b"\n":
            found = -1
            while whole and found < 0:  # it may be longer than what is read at once
                whole, tail = self._tail(whole)
                found = tail.rfind(b"\n")
            whole += found + 1
            os.ftruncate(self._file, whole)
        return whole

    def _ids(self, end: int) -> Iterator[str]:
        """The records that the end of the file holds."""
        for line in self._tail(end)[1].splitlines():
            try:
                yield json.loads(line)["id"]
            except (ValueError, KeyError, TypeError):  # somebody else's line, or half of one
                continue

    def _tail(self, end: int) -> tuple[int, bytes]:
        start = max(0, end - TAIL_BYTES)
        os.lseek(self._file, start, os.SEEK_SET)
        return start, os.read(self._file, end - start)


def _line(record: TrackedRecord) -> bytes:
    metrics = json.dumps(record.metrics(), allow_nan=False).encode()
    return b'%s,"metrics":%s}\n' % (record.line.rstrip()[:-1], metrics)
