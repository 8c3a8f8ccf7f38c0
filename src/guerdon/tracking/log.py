"""The durable log of a run: one JSONL file, written by a thread, and each tracker's place in it."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from guerdon._logging import step_logger
from guerdon._validation import shown
from guerdon.errors import InvalidArgumentError, ScoringError, TrackerError
from guerdon.tracking.records import line_of

__all__ = ["TrackedRun"]

logger = step_logger(__name__)

BATCH_BYTES = 256 << 10
# Seconds that records are gathered before they are written: together with the time of the write,
# well within the second that a killed process may lose.
GATHER_S = 0.1
SYNC_S = 1.0
RETRY_S = 0.5
AT_ONCE = 2000  # records per write, so that a long queue doesn't hold the lock for long
MANY = 1000  # different names, beyond which a tracker with one chart per name is unusable


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """A run: the same for every process that opens its folder.

    Example:
        >>> from guerdon.tracking import RewardLogger
        >>> with RewardLogger("console", path="logs", run_name="first") as logger:
        ...     logger.run.name, logger.run.project, logger.run.folder.name
        ('first', 'guerdon', 'first')

    Attributes:
        id: Letters and digits; created once, and kept in the folder's ``run.json``.
        name: Its name.
        project: The project (in MLflow: the experiment) that it belongs to.
        folder: The folder of its files.
    """

    id: str
    name: str
    project: str
    folder: Path


def open_run(path: str | os.PathLike[str], *, name: str | None, project: str) -> TrackedRun:
    """Open the folder of a run, or create it.

    Args:
        path: The folder of the runs.
        name: The run; by default a new one, named after the time.
        project: The project of a new run; an existing run keeps its own.

    Raises:
        InvalidArgumentError: The name can't be a folder's.
        TrackerError: The folder can't be used.
    """
    if name is None:
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(2).hex()}"
    if not isinstance(name, str) or re.fullmatch(r"\w[\w .+=-]{0,127}", name) is None:
        raise InvalidArgumentError(
            "`run_name` must be up to 128 letters, digits, spaces and any of ._-+=, starting with "
            f"a letter or digit, got {shown(name)}"
        )
    if not isinstance(project, str) or not project:
        raise InvalidArgumentError(f"`project` must be a non-empty string, got {shown(project)}")
    folder = Path(path).absolute() / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        row = _created(folder, {"id": os.urandom(6).hex(), "name": name, "project": project})
        return TrackedRun(row["id"], row["name"], row["project"], folder)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrackerError(f"can't use the folder {folder} of the run: {error!r}") from error


def _created(folder: Path, row: dict[str, str]) -> dict[str, str]:
    """Return the content of the folder's run.json, which the first of several processes writes."""
    file = folder / "run.json"
    if not file.exists():
        draft = folder / f".{row['id']}.json"
        draft.write_text(json.dumps(row) + "\n", encoding="utf-8")
        try:
            os.link(draft, file)
        except FileExistsError:
            pass  # another process was first
        except OSError:  # no hard links, as on some network file systems
            draft.replace(file)
        finally:
            draft.unlink(missing_ok=True)
    found: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
    return found


class RewardLog:
    """The file ``rewards.jsonl`` of a run; several processes may append to it.

    Args:
        folder: The run's folder.
        max_bytes: The size from which nothing is appended.
    """

    def __init__(self, folder: Path, *, max_bytes: int) -> None:
        self.path, self.max_bytes = folder / "rewards.jsonl", max_bytes
        self._file = _opened(self.path, os.O_RDWR | os.O_APPEND)
        self.dirty = False
        try:
            with locked(self._file):
                # Otherwise a torn line would count as unsent until the first append.
                self._cut_torn_line()
        except BaseException:
            self.close()
            raise

    def append(self, data: bytes) -> bool:
        """Append whole lines; returns False if the log is full.

        Raises:
            OSError: They can't be written; the file is unchanged.
        """
        if was_replaced(self._file, self.path):  # logs are rotated
            _opened(self.path, os.O_RDWR | os.O_APPEND, replacing=self._file)
        with locked(self._file):
            end = self._cut_torn_line()
            if end + len(data) > self.max_bytes:
                return False
            try:
                write_all(self._file, data)
            except OSError:
                os.ftruncate(self._file, end)
                raise
        self.dirty = True
        return True

    def _cut_torn_line(self) -> int:
        """Remove a last line without its end, whose writer was killed; returns the size."""
        size = os.lseek(self._file, 0, os.SEEK_END)
        keep = size
        while keep and _read(self._file, keep - 1, 1) != b"\n":
            start = max(0, keep - BATCH_BYTES)
            newline = _read(self._file, start, keep - start).rfind(b"\n")
            keep = start if newline < 0 else start + newline + 1
        if keep < size:
            os.ftruncate(self._file, keep)
        return keep

    def has_room(self, size: int) -> bool:
        """Whether a number of bytes can be appended."""
        if was_replaced(self._file, self.path):
            return True
        return os.fstat(self._file).st_size + size <= self.max_bytes

    def sync(self) -> None:
        """Make what was written survive a stop of the machine."""
        if self.dirty:
            os.fsync(self._file)
            self.dirty = False

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
        self._file = -1


class Cursor:
    """How far a tracker has read the log, in the locked file ``trackers/{name}.offset``.

    The process that locks the file sends the records of every process of the run. When it ends,
    the lock is free for the next one.

    Args:
        log: The path of the log.
        name: The tracker's name.
        lock: The descriptor of the locked file.
    """

    def __init__(self, log: Path, name: str, lock: int) -> None:
        self.log, self.refused = log, log.parent / "trackers" / f"{name}.refused.jsonl"
        self._lock = lock
        self._file, self.offset = _opened(log, os.O_RDONLY), 0
        inode, offset = _position(_read(lock, 0, 64))
        if inode == os.fstat(self._file).st_ino:
            self.offset = offset

    @staticmethod
    def path(log: Path, name: str) -> Path:
        """Return the path of a tracker's offset file."""
        return log.parent / "trackers" / f"{name}.offset"

    @classmethod
    def open(cls, log: Path, name: str) -> Cursor | None:
        """Lock a tracker's offset file; returns None if another process or logger has locked it."""
        path = cls.path(log, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = try_lock(path)
        return None if lock is None else cls(log, name, lock)

    def read(self, limit: int | None = None) -> list[bytes]:
        """Return the next whole lines, at most `limit`; an empty list at the end of the log."""
        data = _read(self._file, self.offset, BATCH_BYTES)
        while data and b"\n" not in data:  # a single line may be longer than a batch
            more = _read(self._file, self.offset + len(data), BATCH_BYTES)
            if not more:
                break
            data += more
        lines = [line + b"\n" for line in data.split(b"\n")[:-1]]
        if not lines and was_replaced(self._file, self.log):
            _opened(self.log, os.O_RDONLY, replacing=self._file)
            self.offset = 0
            return self.read(limit) if os.fstat(self._file).st_size else []
        return lines[:limit]

    def advance(self, lines: list[bytes]) -> None:
        """Record that these lines have been sent."""
        self.offset += sum(map(len, lines))
        position = f"{os.fstat(self._file).st_ino:020} {self.offset:020}\n"
        os.lseek(self._lock, 0, os.SEEK_SET)
        os.write(self._lock, position.encode())

    def refuse(self, line: bytes) -> Path:
        """Store a line that the tracker will never accept in a separate file."""
        with open(self.refused, "ab") as file:
            file.write(line)
        return self.refused

    def waiting(self) -> int:
        """Return the number of bytes that haven't been sent."""
        return max(0, os.fstat(self._file).st_size - self.offset)

    def close(self) -> None:
        """Release the lock."""
        for file in (self._file, self._lock):
            if file >= 0:
                os.close(file)
        self._file = self._lock = -1


def unsent(log: Path, name: str) -> int:
    """Return the number of bytes of a log that a tracker hasn't been sent, from its offset file."""
    try:
        stat = log.stat()
    except FileNotFoundError:
        return 0
    try:
        inode, offset = _position(Cursor.path(log, name).read_bytes())
    except FileNotFoundError:  # nothing has been sent yet
        inode, offset = stat.st_ino, 0
    return max(0, stat.st_size - (offset if inode == stat.st_ino else 0))


def unsent_runs(path: Path) -> list[str]:
    """Return the runs in a folder with unsent records that no process is sending, sorted."""
    found = set()
    for file in path.glob("*/trackers/*.offset"):
        run = file.parents[1]
        try:
            lock = try_lock(file) if unsent(run / "rewards.jsonl", file.stem) else None
        except OSError:  # it isn't readable for this user
            continue
        if lock is not None:
            os.close(lock)
            found.add(run.name)
    return sorted(found)


def _opened(path: Path, flags: int, *, replacing: int | None = None) -> int:
    """Open a file, creating it if needed, under a new descriptor or under one that is open.

    Another thread that uses the descriptor never finds it closed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, flags | os.O_CREAT, 0o644)
    if replacing is None:
        return file
    os.dup2(file, replacing, inheritable=False)
    os.close(file)
    return replacing


def was_replaced(file: int, path: Path) -> bool:
    """Whether a path no longer refers to an open file."""
    try:
        return not os.path.samestat(os.stat(path), os.fstat(file))
    except FileNotFoundError:
        return True


def _position(data: bytes) -> tuple[int, int]:
    parts = data.split()
    if len(parts) == 2 and parts[0].isdigit() and parts[1].isdigit():
        return int(parts[0]), int(parts[1])
    return -1, 0


def _read(file: int, offset: int, size: int) -> bytes:
    os.lseek(file, offset, os.SEEK_SET)
    return os.read(file, size)


class LogWriter:
    """The thread between the training loop and the log: from a queue in memory to lines on disk.

    Args:
        log: The log.
        size: How many records the queue contains at most.
        on_written: Called after records were appended.
        on_full: Called with the reason why records are lost, and with None when that has ended.
    """

    def __init__(
        self,
        log: RewardLog,
        *,
        size: int,
        on_written: Callable[[], None],
        on_full: Callable[[str | None], None],
    ) -> None:
        self.queue: deque[dict[str, Any] | threading.Event] = deque()
        self.log, self.size = log, size
        self.written = self.lost = 0
        self.error: str | None = None
        self._on_written, self._on_full = on_written, on_full
        self._session, self._count = f"{time.time_ns():x}{os.urandom(3).hex()}", 0
        self._wake, self._hurry = threading.Event(), threading.Event()
        self._room = threading.Condition()
        self._names: dict[str, set[Any]] = {"components": set(), "environments": set()}
        self._pending, self._pending_count = b"", 0
        self._lacking = 0  # the size of the last records that did not fit
        self._marks: list[threading.Event] = []
        self._stuck = self._stopping = self._ended = False
        self._synced = 0.0
        self._thread = threading.Thread(target=self._run, name="guerdon-reward-log", daemon=True)
        self._thread.start()

    # Called by the threads that log

    def put(self, row: dict[str, Any]) -> bool:
        """Queue a record, waiting for room; returns False if it is lost."""
        if len(self.queue) >= self.size and not self._wait_for_room():
            return False
        self.queue.append(row)
        if self._ended:  # meanwhile, after the caller found the logger open
            self._count_unwritten()
            return False
        if not self._wake.is_set():
            self._wake.set()
        return True

    def _wait_for_room(self) -> bool:
        self._hurry.set()
        with self._room:
            self._room.wait_for(lambda: len(self.queue) < self.size or self._stuck or self._ended)
            if len(self.queue) < self.size:
                return True
            self.lost += 1
            if self.lost == 1:
                logger.error("the log can't be written and the queue is full: records are lost")
        return False

    def flush(self, deadline: float) -> bool:
        """Wait until all that is queued is in the log; returns whether it is."""
        mark = threading.Event()
        self.queue.append(mark)
        if self._ended:
            self._count_unwritten()
        self._wake.set()
        self._hurry.set()
        return mark.wait(max(0.0, deadline - time.monotonic()))

    def stop(self, deadline: float) -> bool:
        """End the thread once all is in the log; returns whether it ended in time."""
        self._stopping = True
        self._wake.set()
        self._hurry.set()
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            return False
        self.lost += self._pending_count  # of a disk that can't be written
        self._count_unwritten()
        return True

    def _count_unwritten(self) -> None:
        """Count what is queued although the thread has ended, each record once."""
        with self._room:
            while self.queue:
                row = self.queue.popleft()
                if isinstance(row, dict):
                    self.lost += 1
                else:
                    row.set()

    # The thread

    def _run(self) -> None:
        try:
            while not (self._stopping and (self._stuck or not (self.queue or self._pending))):
                self._wake.wait(SYNC_S if self.log.dirty or self.error else None)
                self._hurry.wait(RETRY_S if self._stuck else GATHER_S)
                self._wake.clear()
                self._hurry.clear()
                while self._write() and self.queue:
                    pass
                if self.error and not self._stuck and self.log.has_room(self._lacking):
                    self.error = None
                    self._on_full(None)
                self._sync()
            self._sync(now=True)
        finally:  # so that no caller waits for room any longer
            self._ended = True
            with self._room:
                self._room.notify_all()

    def _write(self) -> bool:
        """Write the head of the queue; returns False if the disk doesn't accept it."""
        if not self._pending:
            self._take()
        try:
            has_room = not self._pending or self.log.append(self._pending)
        except OSError as error:
            self._stuck = True
            self._wake.set()
            self._report(f"the log can't be written, records stay in memory: {error!r}")
        else:
            self._stuck = False
            if has_room:
                self.written += self._pending_count
                self._lacking = 0
            else:
                self.lost += self._pending_count
                self._lacking = len(self._pending)
                self._report(
                    f"the log {self.log.path} has reached {self.log.max_bytes:,} bytes: "
                    f"{self.lost:,} records are lost"
                )
            self._pending, self._pending_count = b"", 0
            for mark in self._marks:
                mark.set()
            self._marks.clear()
            self._on_written()
        with self._room:
            self._room.notify_all()
        return not self._stuck

    def _take(self) -> None:
        """Encode the next records of the queue, up to a mark."""
        lines: list[bytes] = []
        while self.queue and len(lines) < AT_ONCE:
            row = self.queue.popleft()
            if not isinstance(row, dict):
                self._marks.append(row)
                break
            self._count += 1
            self._watch_names("components", row.get("components", ()))
            self._watch_names("environments", [row.get("env_id")])
            try:
                lines.append(line_of({"id": f"{self._session}-{self._count}", **row}))
            except (TypeError, ValueError) as error:  # such as an id of thousands of digits
                self.lost += 1
                logger.error("a record can't be written, and is lost: %s", error)
        self._pending, self._pending_count = b"".join(lines), len(lines)

    def _watch_names(self, kind: str, names: Iterable[Any]) -> None:
        """Warn once if the number of names keeps growing, for example with an id in each."""
        seen = self._names.get(kind)
        if seen is None:
            return
        seen.update(names)
        if len(seen) > MANY:
            del self._names[kind]
            logger.warning(
                "more than %s %s with different names were logged, such as %r: each is a metric of "
                "its own in a tracker, which becomes slow; do the names contain an id?",
                f"{MANY:,}", kind, next(iter(names)),
            )  # fmt: skip

    def _report(self, problem: str) -> None:
        self.error = problem
        self._on_full(problem)
        logger.error("%s", problem)

    def _sync(self, *, now: bool = False) -> None:
        if now or time.monotonic() - self._synced >= SYNC_S:
            self._synced = time.monotonic()
            try:
                self.log.sync()
            except OSError as error:
                self._report(f"the disk doesn't keep the log: {error!r}")


# Locks on files, and writes that are complete --------------------------------------------------


def try_lock(file: Path) -> int | None:
    """Open a file, creating it if needed, and lock it.

    Returns:
        The descriptor, which keeps the lock until it is closed or the process ends; None if the
        file is locked already.

    Raises:
        FileNotFoundError: The folder doesn't exist, or was removed meanwhile.
    """
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        taken = _lock(descriptor, wait=False)
        if taken and not os.path.samestat(os.stat(file), os.fstat(descriptor)):
            raise FileNotFoundError(f"{file} was replaced while it was locked")
    except BaseException:
        os.close(descriptor)
        raise
    if not taken:
        os.close(descriptor)
        return None
    return descriptor


def lock_output(descriptor: int, path: str | os.PathLike[str]) -> None:
    """Lock an open file that this process alone is to write, until it is closed.

    Raises:
        ScoringError: Another process or run writes to it, or it was replaced meanwhile.
    """
    try:
        taken = _lock(descriptor, wait=False)
    except OSError:  # a file system without locks
        return
    if not taken:
        raise ScoringError(
            f"{path}: {_owner_of(descriptor)} is writing to this file; wait until it has ended, "
            "or write to another file"
        )
    if not os.path.exists(path) or not os.path.samestat(os.stat(path), os.fstat(descriptor)):
        raise ScoringError(f"{path} was replaced by another process; try again")


def _owner_of(descriptor: int) -> str:
    """The process that has locked a file, and since when it runs, as far as Linux says so."""
    try:
        inode = f":{os.fstat(descriptor).st_ino}"
        locks = map(str.split, Path("/proc/locks").read_text().splitlines())
        pid = next(each[4] for each in locks if each[1] == "FLOCK" and each[5].endswith(inode))
        ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        since = time.time() - uptime + int(ticks) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return "another process"
    return f"process {pid}, which runs since {time.strftime('%F %T', time.localtime(since))},"


@contextmanager
def locked(descriptor: int) -> Iterator[None]:
    """Lock an open file during a ``with`` block, waiting for the current owner."""
    _lock(descriptor, wait=True)
    try:
        yield
    finally:
        _unlock(descriptor)


def write_all(file: int, data: bytes) -> None:
    """Write all data to a descriptor."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int, *, wait: bool) -> bool:
        os.lseek(descriptor, 1 << 40, os.SEEK_SET)  # far beyond the data
        try:
            msvcrt.locking(descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        except OSError:
            if wait:
                raise
            return False
        return True

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, 1 << 40, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:

    def _lock(descriptor: int, *, wait: bool) -> bool:
        import fcntl

        # Not lockf: it releases the lock as soon as any descriptor of the file is closed.
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_UN)
