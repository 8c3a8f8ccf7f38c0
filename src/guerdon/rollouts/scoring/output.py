"""Writing result rows to a file, so that a run that was cut off can go on."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self, cast

from guerdon.errors import RolloutError, ScoringError
from guerdon.rollouts.scoring.rows import ResultRow

__all__ = ["RowWriter", "read_finished"]

BUFFER = 256 * 1024

# How every line of a result begins.
BEGINNING = b'{"id": '

_REQUIRED = ResultRow.__required_keys__
_ALL = _REQUIRED | ResultRow.__optional_keys__


class RowWriter:
    """Appends lines to a file, ``-`` being standard output.

    Lines are written in blocks, always whole ones. Where the disk is full, what was written
    before stays.

    Args:
        path: The file; None writes nothing.
        keep: How many bytes that stand in the file already are kept.
    """

    def __init__(self, path: str | None, *, keep: int = 0) -> None:
        self.path = path
        self._cut: int | None = None
        self._buffer = bytearray()
        self._descriptor: int | None = None
        if path == "-":
            sys.stdout.flush()
            self._descriptor = os.dup(sys.stdout.fileno())
        elif path is not None:
            try:
                self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
                # What stood there goes when the first line comes, and not before.
                self._cut = keep if os.path.isfile(path) else None
            except OSError as error:
                raise ScoringError(f"can't write {path}: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if not isinstance(error, ScoringError):
                self.flush()
        finally:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def write(self, lines: bytes) -> None:
        """Add whole lines."""
        if self._descriptor is None:
            return
        self._buffer += lines
        if len(self._buffer) >= BUFFER:
            self.flush()

    def flush(self) -> None:
        """Write what has been added."""
        if self._descriptor is None:
            return
        try:
            if self._cut is not None and self._buffer:
                os.ftruncate(self._descriptor, self._cut)
                os.lseek(self._descriptor, 0, os.SEEK_END)
                self._cut = None
            while self._buffer:
                written = os.write(self._descriptor, self._buffer)
                del self._buffer[:written]
        except BrokenPipeError:
            self._buffer.clear()
            raise
        except OSError as error:
            self._buffer.clear()
            hint = "; make room and go on with --resume" if error.errno == errno.ENOSPC else ""
            raise ScoringError(
                f"can't write {self.path}: {error.strerror}; the rows written before are kept{hint}"
            ) from error
        except BaseException:  # a second ctrl-C: what was written may not be written again
            self._buffer.clear()
            raise


def read_finished(path: str, fingerprint: str) -> Iterator[tuple[ResultRow, int]]:
    """Read the rows that an earlier run has finished.

    Args:
        path: Its file; one that isn't there has none.
        fingerprint: The reward's.

    Yields:
        Each row, with how many bytes the file has up to its end. A last line that was cut off is
        not among them.

    Raises:
        RolloutError: A row is none, or another reward scored it.
    """
    if not Path(path).exists():
        return
    if not Path(path).is_file():
        raise RolloutError(f"{path} is no regular file, so that there is nothing to go on from")
    size = 0
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                if not BEGINNING.startswith(line[: len(BEGINNING)]):
                    raise _foreign(path, number)
                return
            row = _result_row(path, line, number)
            if row["fingerprint"] != fingerprint:
                raise RolloutError(
                    f"{path} was scored by reward {row['fingerprint']}, this one is {fingerprint}; "
                    "leave out --resume to score everything anew",
                    line=number,
                )
            size += len(line)
            yield row, size


def _result_row(path: str, line: bytes, number: int) -> ResultRow:
    try:
        row = json.loads(line)
    except ValueError:
        raise _foreign(path, number) from None
    if not isinstance(row, dict) or not _REQUIRED <= row.keys() <= _ALL:
        raise _foreign(path, number)
    return cast("ResultRow", row)


def _foreign(path: str, number: int) -> RolloutError:
    return RolloutError(
        f"{path} holds something else than result rows; name another file, "
        "or leave out --resume to write it anew",
        line=number,
    )
