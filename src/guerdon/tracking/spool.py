"""Records on disk, until a tracker has taken them."""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

from guerdon.errors import TrackerError
from guerdon.tracking.file_locks import try_lock, write_all

__all__ = ["Spool", "left_behind", "new_spool", "runs_that_wait"]

logger = logging.getLogger(__name__)

SEGMENT_BYTES = 4 << 20
BATCH_BYTES = 256 << 10
LOCK = "sent"


class Spool:
    """One session's lines for one tracker: segments that grow at the end and are sent in order.

    A folder with files ``00000000.jsonl``, ``00000001.jsonl``… and a file ``sent``, which is locked
    by whoever owns the session and says up to where its lines have been sent. `append` is called
    by one thread, `read` and `advance` by another.

    Args:
        folder: Its folder, which is there.
        lock: The locked file ``sent``.
        max_bytes: How many bytes may wait.
    """

    def __init__(self, folder: Path, lock: int, *, max_bytes: int = 1 << 30) -> None:
        self.folder, self.max_bytes = folder, max_bytes
        self._lock_file = lock
        self._segments = {
            int(file.stem): file.stat().st_size for file in folder.glob("[0-9]*.jsonl")
        }
        self._last = max(self._segments, default=-1)
        self._segment, self._offset = self._sent()
        for number in [each for each in self._segments if each < self._segment]:
            del self._segments[number]
        self._file = -1
        self._dirty = self._untold = False
        self._counts = threading.Lock()
        self.appended = self.taken = self.gone = 0
        self._no_room_for = 0

    @property
    def bytes_waiting(self) -> int:
        """How many bytes haven't been sent."""
        with self._counts:
            return self._waiting()

    def _waiting(self) -> int:
        done = min(self._offset, self._segments.get(self._segment, 0))
        return sum(self._segments.values()) - done

    def _sent(self) -> tuple[int, int]:
        os.lseek(self._lock_file, 0, os.SEEK_SET)
        said = os.read(self._lock_file, 64).split()
        first = min(self._segments, default=0)
        if len(said) != 2 or not (said[0].isdigit() and said[1].isdigit()):
            return first, 0
        segment, offset = int(said[0]), int(said[1])
        return (segment, offset) if segment in self._segments else (first, 0)

    # The thread that writes

    def append(self, lines: bytes, count: int) -> bool:
        """Write whole lines at the end; whether there was room for them.

        Raises:
            OSError: They can't be written; nothing of them is there.
        """
        self._no_room_for = len(lines)
        if not self.has_room:
            return False
        self._no_room_for = 0
        if self._file >= 0 and not os.fstat(self._file).st_nlink:
            self._go_on()
        if self._file < 0 or self._segments.get(self._last, 0) >= SEGMENT_BYTES:
            self._next_segment()
        size = os.lseek(self._file, 0, os.SEEK_END)
        try:
            write_all(self._file, lines)
        except OSError:
            os.ftruncate(self._file, size)
            raise
        self._dirty = True
        with self._counts:
            self._segments[self._last] = size + len(lines)
            self.appended += count
        return True

    def _next_segment(self) -> None:
        number = self._last + 1
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        file = os.open(self.folder / f"{number:08}.jsonl", flags, 0o644)
        if self._file >= 0:
            self.sync()
            os.close(self._file)
        self._file, self._last = file, number
        with self._counts:
            self._segments[number] = 0

    def _go_on(self) -> None:
        """Go on in a new segment where somebody has removed the last, perhaps with its folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not os.fstat(self._lock_file).st_nlink:
            lock = try_lock(self.folder / LOCK)
            if lock is None:
                raise FileNotFoundError(f"{self.folder} was removed, and somebody else locks it")
            with self._counts:
                self._lock_file, old = lock, self._lock_file
                os.close(old)
        os.close(self._file)
        self._file, self._dirty = -1, False

    @property
    def has_room(self) -> bool:
        """Whether there is room for what was refused last, if anything was."""
        return self.bytes_waiting + self._no_room_for <= self.max_bytes

    def sync(self) -> None:
        """Have the disk keep what was written, also if the machine stops."""
        if self._dirty:
            os.fsync(self._file)
            self._dirty = False

    # The thread that sends

    def read(self, limit: int | None = None) -> list[bytes]:
        """The next lines, with their ends; none where all are sent.

        The last may lack its end, where its writer was killed.

        Args:
            limit: How many at most; by default what makes a good batch.
        """
        while True:
            number, offset, size = self._place()
            if offset >= size:
                return []
            try:
                with open(self.folder / f"{number:08}.jsonl", "rb") as file:
                    file.seek(offset)
                    data = file.read(min(size - offset, BATCH_BYTES))
                    if len(data) < size - offset and not data.endswith(b"\n"):
                        data += file.readline()
                break
            except FileNotFoundError:
                self._skip(number)
        lines = data.split(b"\n")
        ended = [line + b"\n" for line in lines[:-1]]
        return [*ended, *filter(None, lines[-1:])][:limit]

    def _place(self) -> tuple[int, int, int]:
        """The segment that is read, from where, and where it ends; those before it go."""
        done = []
        with self._counts:
            while self._offset >= self._segments.get(self._segment, 0):
                later = [number for number in self._segments if number > self._segment]
                if not later:
                    break
                done.append(self._segment)
                self._segments.pop(self._segment, None)
                self._segment, self._offset = min(later), 0
            if done:
                self._note()
            place = self._segment, self._offset, self._segments.get(self._segment, 0)
        for number in done:
            (self.folder / f"{number:08}.jsonl").unlink(missing_ok=True)
        return place

    def _skip(self, number: int) -> None:
        """Go on behind a segment that somebody has removed; what waited there is gone."""
        with self._counts:
            self._segments.pop(number, None)
            self._offset = 0
            if not self._waiting():
                self.gone += self.appended - self.taken
                self.taken = self.appended
        logger.error("%s was removed from %s, with records that waited", number, self.folder)

    def advance(self, lines: list[bytes]) -> None:
        """Note that the lines just read have been sent."""
        with self._counts:
            self._offset += sum(map(len, lines))
            self.taken += len(lines)
            self._note()

    def note(self) -> None:
        """Write down up to where lines have been sent.

        Raises:
            OSError: The disk doesn't take it.
        """
        os.lseek(self._lock_file, 0, os.SEEK_SET)
        os.write(self._lock_file, f"{self._segment:08} {self._offset:016}\n".encode())

    def _note(self) -> None:
        try:
            self.note()
            self._untold = False
        except OSError as error:  # the lines have been sent: they may only come twice
            if not self._untold:
                logger.error(
                    "what was sent can't be noted in %s, and would come again if the process were "
                    "killed now: %r", self.folder, error,
                )  # fmt: skip
            self._untold = True

    def keep_aside(self, line: bytes) -> Path:
        """Keep a line that is no record, or that the tracker refuses, beside the sessions."""
        kept = self.folder.parent / "refused.jsonl"
        with open(kept, "ab") as file:
            file.write(line.rstrip(b"\n") + b"\n")
        return kept

    # Its end

    def close(self) -> None:
        """Close it; where all has been sent, its folder goes."""
        self.sync()
        if self._untold:
            self.note()
        if self.bytes_waiting == 0:
            for file in [*self.folder.glob("[0-9]*.jsonl"), self.folder / LOCK]:
                file.unlink(missing_ok=True)
            with suppress(OSError):  # somebody put something there: it stays
                self.folder.rmdir()
        self.forget()

    def forget(self) -> None:
        """Let go of its files, in a forked process: they are the parent's."""
        for file in (self._file, self._lock_file):
            if file >= 0:
                os.close(file)
        self._file = self._lock_file = -1
        self._counts = threading.Lock()  # a thread that is not here may have held it


def new_spool(folder: Path, *, max_bytes: int) -> Spool:
    """Begin a session in a tracker's folder.

    Raises:
        TrackerError: The folder can't be written to.
    """
    name = f"{time.time_ns():016x}-{os.urandom(4).hex()}"
    hidden = folder / f".{name}"  # nobody takes it for one that was left before it is locked
    try:
        hidden.mkdir(parents=True)
        lock = try_lock(hidden / LOCK)
        hidden.rename(folder / name)
        if lock is None:
            raise BlockingIOError("its files can't be locked")
        spool = Spool(folder / name, lock, max_bytes=max_bytes)
        spool.note()  # while there is room on the disk: later it is only overwritten
    except OSError as error:
        raise TrackerError(f"records can't be spooled in {folder}: {error}") from error
    return spool


def left_behind(folder: Path) -> list[Spool]:
    """Take over the sessions in a tracker's folder whose owners have ended, oldest first."""
    found = []
    for session in sorted(each for each in folder.iterdir() if each.is_dir()):
        if session.name.startswith("."):
            continue
        try:
            lock = try_lock(session / LOCK)
        except FileNotFoundError:  # somebody else took it, and has just sent all
            continue
        except OSError as error:
            logger.warning("what waits in %s can't be sent from here: %s", session, error)
            continue
        if lock is not None:
            found.append(Spool(session, lock))
    return found


def runs_that_wait(path: Path) -> list[str]:
    """The runs in a folder whose processes have ended before all was sent, sorted."""
    found = set()
    for session in {file.parent for file in path.glob("*/spool/*/[!.]*/[0-9]*.jsonl")}:
        with suppress(OSError):  # somebody is just sending it, or it isn't ours to read
            lock = try_lock(session / LOCK)
            if lock is not None:
                spool = Spool(session, lock)
                if spool.bytes_waiting:
                    found.add(session.parents[2].name)
                spool.forget()
    return sorted(found)
